"""Target side of the DMA: strobed beats go to memory bursts or to rows of SBUF and PSUM."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.config import ChipConfig
from rtl.dma.align import StrobedLayout
from rtl.dma.chunks import CHUNK_BITS, PlaceLayout, beats
from rtl.interfaces import BurstWriteSignature, RowWriteSignature, psum_addr_bits, sbuf_addr_bits
from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary

BURSTS = 16
"""Write bursts that wait for their response."""


class TargetLayout(data.StructLayout):
    """Where a chunk goes, its bytes, and its row's target address, for error reports."""

    def __init__(self) -> None:
        super().__init__({"place": PlaceLayout(), "bytes": unsigned(CHUNK_BITS), "row": unsigned(64)})


class DmaTarget(wiring.Component):
    """Ports: chunk (TargetLayout stream), beat (StrobedLayout stream), write (burst writes), sbuf, psum (row writes), quiet (everything that
    was taken has been written and answered), error_valid, error_row (a response with an error; the target address of its row).
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "chunk": In(stream.Signature(TargetLayout())),
                "beat": In(stream.Signature(StrobedLayout())),
                "write": Out(BurstWriteSignature()),
                "sbuf": Out(RowWriteSignature(sbuf_addr_bits(config), config.partitions)),
                "psum": Out(RowWriteSignature(psum_addr_bits(config), config.partitions)),
                "quiet": Out(1),
                "error_valid": Out(1),
                "error_row": Out(64),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.rows = rows = self.tiles.place(Queue, QueueConfig(width=64, depth=BURSTS))
        job = Signal(TargetLayout())
        place = job.place
        active, asked = Signal(), Signal()
        count, done_beats = Signal(9), Signal(9)
        moved, last = Signal(), Signal()
        write, beat = self.write, self.beat
        m.d.comb += [
            last.eq(done_beats + 1 == count),
            write.req.valid.eq(active & place.memory & ~asked & rows.i.ready),
            write.req.payload.addr.eq(Cat(Signal(4), place.offset[4:])),
            write.req.payload.beats.eq(count),
            rows.i.valid.eq(write.req.valid & write.req.ready),
            rows.i.payload.eq(job.row),
            write.data.valid.eq(active & place.memory & asked & beat.valid),
            write.data.payload.data.eq(beat.payload.data),
            write.data.payload.strb.eq(beat.payload.strb),
        ]
        for port, mine in ((self.sbuf, ~place.psum), (self.psum, place.psum)):
            m.d.comb += [
                port.req.valid.eq(active & ~place.memory & mine & beat.valid),
                port.req.payload.addr.eq(place.offset[4:] + done_beats),
                port.req.payload.part.eq(place.part),
                port.req.payload.strb.eq(beat.payload.strb),
                port.req.payload.data.eq(beat.payload.data),
            ]
        ready = Mux(
            place.memory, asked & write.data.ready, Mux(place.psum, self.psum.req.ready, self.sbuf.req.ready)
        )
        left = Signal(range(BURSTS + 2))
        ended = write.done.valid & write.done.ready
        m.d.comb += [
            beat.ready.eq(active & ready),
            moved.eq(beat.valid & beat.ready),
            self.chunk.ready.eq(~active | (moved & last)),
            # the row's address is there one cycle or more before its response can be
            write.done.ready.eq(rows.o.valid),
            rows.o.ready.eq(ended),
            self.error_valid.eq(ended & write.done.payload.error),
            self.error_row.eq(rows.o.payload),
            self.quiet.eq(~active & ~self.chunk.valid & (left == 0)),
        ]
        m.d.sync += left.eq(left + rows.i.valid - ended)
        with m.If(rows.i.valid):
            m.d.sync += asked.eq(1)
        with m.If(moved):
            m.d.sync += done_beats.eq(done_beats + 1)
            with m.If(last):
                m.d.sync += active.eq(0)
        with m.If(self.chunk.valid & self.chunk.ready):
            chunk = self.chunk.payload
            m.d.sync += [
                job.eq(chunk),
                active.eq(1),
                asked.eq(0),
                done_beats.eq(0),
                count.eq(beats(chunk.place.offset, chunk.bytes)),
            ]
        return m
