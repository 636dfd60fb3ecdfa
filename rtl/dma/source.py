"""Source side of the DMA: chunks become a stream of aligned 16-byte beats."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.config import ChipConfig
from rtl.dma.chunks import PlaceLayout, beats
from rtl.interfaces import (
    BEAT_BYTES,
    BurstReadSignature,
    RowReadSignature,
    psum_addr_bits,
    sbuf_addr_bits,
)
from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary

DEPTH = 16
"""Beats between a source and the aligner."""


class SourceLayout(data.StructLayout):
    """Where a chunk starts, and how many bytes it has."""

    def __init__(self) -> None:
        super().__init__({"place": PlaceLayout(), "bytes": unsigned(13)})


class BeatLayout(data.StructLayout):
    """16 aligned bytes; `error`: the bus said so."""

    def __init__(self) -> None:
        super().__init__({"data": unsigned(8 * BEAT_BYTES), "error": unsigned(1)})


class DmaSource(wiring.Component):
    """Ports: chunk (SourceLayout stream), read (burst reads), sbuf, psum (row reads), beat (BeatLayout stream), quiet (nothing under way).

    Bursts are asked for ahead of their data. A chunk from another kind of memory waits until everything before it has arrived.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "chunk": In(stream.Signature(SourceLayout())),
                "read": Out(BurstReadSignature()),
                "sbuf": Out(RowReadSignature(sbuf_addr_bits(config), config.partitions)),
                "psum": Out(RowReadSignature(psum_addr_bits(config), config.partitions)),
                "beat": Out(stream.Signature(BeatLayout())),
                "quiet": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.queue = queue = self.tiles.place(
            Queue, QueueConfig(width=BeatLayout().size, depth=DEPTH)
        )
        place, count = self.chunk.payload.place, Signal(9)
        m.d.comb += count.eq(beats(place.offset, self.chunk.payload.bytes))
        kind, was = Cat(place.memory, place.psum & ~place.memory), Signal(2)
        bursts = Signal(8)  # memory bursts under way
        owed = Signal(range(DEPTH + 1))  # row beats asked for or held
        flight = Signal(range(DEPTH + 1))
        may_start, done_beats = Signal(), Signal(9)
        m.d.comb += may_start.eq((kind == was) | ((bursts == 0) & (flight == 0)))

        # memory: one burst a chunk
        request = self.read.req
        burst_taken = request.valid & request.ready
        burst_ended = self.read.rsp.valid & self.read.rsp.ready & self.read.rsp.payload.last
        m.d.comb += [
            request.valid.eq(self.chunk.valid & place.memory & may_start & ~bursts.all()),
            request.payload.addr.eq(Cat(Signal(4), place.offset[4:])),
            request.payload.beats.eq(count),
        ]
        m.d.sync += bursts.eq(bursts + burst_taken - burst_ended)

        # SBUF, PSUM: a request a beat, into room that is kept for it
        row_taken = Signal()
        last = done_beats + 1 == count
        wants = self.chunk.valid & ~place.memory & may_start & (owed != DEPTH)
        for port, mine in ((self.sbuf, ~place.psum), (self.psum, place.psum)):
            m.d.comb += [
                port.req.valid.eq(wants & mine),
                port.req.payload.addr.eq(place.offset[4:] + done_beats),
                port.req.payload.part.eq(place.part),
            ]
        m.d.comb += row_taken.eq(
            (self.sbuf.req.valid & self.sbuf.req.ready) | (self.psum.req.valid & self.psum.req.ready)
        )
        with m.If(row_taken):
            m.d.sync += done_beats.eq(Mux(last, 0, done_beats + 1))
        arrived = self.sbuf.rsp_valid | self.psum.rsp_valid
        m.d.sync += flight.eq(flight + row_taken - arrived)
        m.d.comb += self.chunk.ready.eq(burst_taken | (row_taken & last))
        with m.If(burst_taken | row_taken):
            m.d.sync += was.eq(kind)

        item = Signal(BeatLayout())
        m.d.comb += [
            item.data.eq(
                Mux(
                    self.sbuf.rsp_valid,
                    self.sbuf.rsp,
                    Mux(self.psum.rsp_valid, self.psum.rsp, self.read.rsp.payload.data),
                )
            ),
            item.error.eq(~arrived & self.read.rsp.payload.error),
            queue.i.valid.eq(arrived | self.read.rsp.valid),
            queue.i.payload.eq(item),
            self.read.rsp.ready.eq(queue.i.ready & ~arrived),
            self.beat.valid.eq(queue.o.valid),
            self.beat.payload.as_value().eq(queue.o.payload),
            queue.o.ready.eq(self.beat.ready),
            self.quiet.eq(
                ~self.chunk.valid & (bursts == 0) & (flight == 0) & ~queue.o.valid & (queue.level == 0)
            ),
        ]
        # Beats of memory bursts that are still in the queue when row reads start take room as well.
        held = Signal(range(DEPTH + 2))
        m.d.comb += [held.eq(queue.level), owed.eq(Mux(held + flight > DEPTH, DEPTH, held + flight))]
        return m
