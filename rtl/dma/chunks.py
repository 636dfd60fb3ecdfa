"""Chunk generator: cuts a DMA's rows where either side crosses 4 KiB, after checking that each row lies where it may."""

from typing import Any

from amaranth import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.addressing import (
    CHIP_LOCAL,
    CHIP_SHIFT,
    CORE_PSUM_BASE,
    PSUM_PARTITION_STRIDE,
    SBUF_PARTITION_STRIDE,
    UNIT_CORE0,
    UNIT_MEMORY,
    UNIT_SHIFT,
)
from models.config import ChipConfig
from rtl.interfaces import InstrLayout
from rtl.tiles import TileLibrary

PAGE_BITS = 12
CHUNK_BITS = PAGE_BITS + 1
SBUF_BITS = SBUF_PARTITION_STRIDE.bit_length() - 1
PSUM_BITS = PSUM_PARTITION_STRIDE.bit_length() - 1
PSUM_SELECT = CORE_PSUM_BASE.bit_length() - 1


class PlaceLayout(data.StructLayout):
    """One side of a chunk: memory channel bytes, or bytes of a partition of SBUF or PSUM."""

    def __init__(self) -> None:
        super().__init__(
            {"memory": unsigned(1), "psum": unsigned(1), "part": unsigned(8), "offset": unsigned(UNIT_SHIFT)}
        )


class ChunkLayout(data.StructLayout):
    """Up to 4096 bytes that cross 4 KiB on neither side, and the 64-bit addresses of the row that they belong to."""

    def __init__(self) -> None:
        super().__init__(
            {
                "src": PlaceLayout(),
                "dst": PlaceLayout(),
                "bytes": unsigned(CHUNK_BITS),
                "src_row": unsigned(64),
                "dst_row": unsigned(64),
            }
        )


class ChunkGenerator(wiring.Component):
    """Members
    -------
    start, instr: one cycle, when `done`: a DMA instruction. stop: give up after the chunk that is shown.
    out: ChunkLayout, in row order. 3 cycles a row and one a chunk.
    done: nothing (more) to come. bad, bad_addr: `done`, because this row is not where it may be; source is looked at first.
    core_index, chip_id: whose SBUF and PSUM, and which chip's memory.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "start": In(1),
                "instr": In(InstrLayout()),
                "stop": In(1),
                "out": Out(stream.Signature(ChunkLayout())),
                "done": Out(1),
                "bad": Out(1),
                "bad_addr": Out(64),
                "core_index": In(8),
                "chip_id": In(16),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # each on a line of its own: Amaranth names a signal after what it is assigned to, and the proofs name these
        src = Signal(64)
        dst = Signal(64)
        src_stride = Signal(64)
        dst_stride = Signal(64)
        row_bytes = Signal(32)
        rows = Signal(32)
        left = Signal(32)
        bad, bad_addr = Signal(), Signal(64)
        src_place, dst_place = Signal(PlaceLayout()), Signal(PlaceLayout())
        chunk = Signal(CHUNK_BITS)
        m.d.comb += [self.bad.eq(bad), self.bad_addr.eq(bad_addr)]

        def room(offset: Value) -> Value:
            return ((1 << PAGE_BITS) - offset[:PAGE_BITS])[:CHUNK_BITS]

        side, ok, place = Signal(), Signal(), Signal(PlaceLayout())
        self._locate(m, Mux(side, dst, src), row_bytes, ok, place)
        a, b = room(src_place.offset), room(dst_place.offset)
        least = Signal(CHUNK_BITS)
        m.d.comb += [
            least.eq(Mux(a < b, a, b)),
            chunk.eq(Mux(left < least, left, least)),
            self.out.payload.src.eq(src_place),
            self.out.payload.dst.eq(dst_place),
            self.out.payload.bytes.eq(chunk),
            self.out.payload.src_row.eq(src),
            self.out.payload.dst_row.eq(dst),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.done.eq(1)
                with m.If(self.start):
                    m.d.sync += [
                        src.eq(self.instr.dma_src),
                        dst.eq(self.instr.dma_dst),
                        src_stride.eq(self.instr.dma_src_stride),
                        dst_stride.eq(self.instr.dma_dst_stride),
                        row_bytes.eq(self.instr.dma_row_bytes),
                        rows.eq(self.instr.dma_rows),
                        bad.eq(0),
                    ]
                    with m.If((self.instr.dma_rows != 0) & (self.instr.dma_row_bytes != 0)):
                        m.next = "SOURCE"
            with m.State("SOURCE"):
                m.d.sync += [src_place.eq(place), left.eq(row_bytes)]
                m.next = "TARGET"
                with m.If(~ok):
                    m.d.sync += [bad.eq(1), bad_addr.eq(src)]
                    m.next = "IDLE"
            with m.State("TARGET"):
                m.d.comb += side.eq(1)
                m.d.sync += dst_place.eq(place)
                m.next = "EMIT"
                with m.If(~ok):
                    m.d.sync += [bad.eq(1), bad_addr.eq(dst)]
                    m.next = "IDLE"
            with m.State("EMIT"):
                m.d.comb += self.out.valid.eq(1)
                with m.If(self.out.ready):
                    m.d.sync += [
                        left.eq(left - chunk),
                        src_place.offset.eq(src_place.offset + chunk),
                        dst_place.offset.eq(dst_place.offset + chunk),
                    ]
                    with m.If(self.stop):
                        m.next = "IDLE"
                    with m.Elif(left == chunk):
                        m.d.sync += [rows.eq(rows - 1), src.eq(src + src_stride), dst.eq(dst + dst_stride)]
                        m.next = "NEXT"
            with m.State("NEXT"):
                m.next = "SOURCE"
                with m.If((rows == 0) | self.stop):
                    m.next = "IDLE"
        return m

    def _locate(self, m: Module, address: Value, length: Value, ok: Signal, place: Any) -> None:
        """Where a row of `length` bytes from `address` lies, and whether it may."""
        cfg = self.config
        at = Signal(64)
        chip_ok, is_memory, is_core = Signal(), Signal(), Signal()
        offset, unit, chip = at[:UNIT_SHIFT], at[UNIT_SHIFT:CHIP_SHIFT], at[CHIP_SHIFT:]
        m.d.comb += [
            at.eq(address),
            chip_ok.eq((chip == CHIP_LOCAL) | (chip == self.chip_id)),
            is_memory.eq(unit == UNIT_MEMORY),
            is_core.eq(unit == (self.core_index + UNIT_CORE0)[:8]),
        ]
        psum = offset[PSUM_SELECT:].any()
        # PSUM starts at 2**32, so that an offset's low bits are the same with and without its base
        relative = (offset - CORE_PSUM_BASE)[:UNIT_SHIFT]
        sbuf_part, psum_part = offset[SBUF_BITS:PSUM_SELECT], relative[PSUM_BITS:]
        within = Mux(psum, offset[:PSUM_BITS], offset[:SBUF_BITS])
        limit = Mux(psum, cfg.psum.bytes_per_partition, cfg.sbuf.bytes_per_partition)
        part_ok = Mux(psum, psum_part < cfg.partitions, sbuf_part < cfg.partitions)
        inside = Signal()
        m.d.comb += [
            inside.eq(
                Mux(is_memory, offset + length <= cfg.memory.bytes, part_ok & (within + length <= limit)),
            ),
            ok.eq(chip_ok & (is_memory | is_core) & inside),
            place.memory.eq(is_memory),
            place.psum.eq(psum),
            place.part.eq(Mux(psum, psum_part[:8], sbuf_part[:8])),
            place.offset.eq(Mux(is_memory, offset, within)),
        ]


def beats(offset: Value, length: Value) -> Value:
    """16-byte beats that `length` bytes from `offset` touch."""
    return (offset[:4] + length + 15)[4:]
