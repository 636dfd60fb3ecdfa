"""Chunk generator: no chunk, and so no AXI burst, crosses 4 KiB on either side; chunks are the rows, whole, each byte once, in order."""

import pytest
from amaranth import Module, Mux, Signal

from models.config import find
from rtl.dma import chunks
from rtl.tiles import TileLibrary
from tb.formal.prove import Assert, RefutedError, Spec, mutant, prove, stays

PAGE = 4096


class Whole(Spec):
    """Some module's generator with any instruction at any time."""

    invariants = (
        "(=> [active] (= [generator.row_bytes] [length]))",
        "(=> [active] (= [generator.rows] [rows_left]))",
        "(=> [emits] (= [generator.left] [left]))",
        "(=> [active] (= [generator.src] [src]))",
        "(=> [active] (= [generator.dst] [dst]))",
        "(=> [active] (= [generator.src_stride] [src_stride]))",
        "(=> [active] (= [generator.dst_stride] [dst_stride]))",
    )

    def __init__(self, module=chunks):
        self.module = module
        super().__init__()

    def specify(self, m: Module) -> None:
        m.submodules.generator = g = self.module.ChunkGenerator(find("nano"), tiles=TileLibrary(inline=True))
        out, chunk = g.out, g.out.payload
        start, instr = self.free(1, "start"), g.instr
        m.d.comb += [
            g.start.eq(start & g.done),
            instr.as_value().eq(self.free(len(instr.as_value()), "instr")),
            g.core_index.eq(self.free(8, "core_index")),
            g.chip_id.eq(self.free(16, "chip_id")),
            out.ready.eq(self.free(1, "ready")),
        ]
        stays(m, Assert, out.valid, out.ready, chunk.as_value())

        active, emits = self.shown(1, "active"), self.shown(1, "emits")
        length, rows, left = (
            self.shown(32, "length"),
            self.shown(32, "rows_left"),
            self.shown(32, "left"),
        )
        src, dst, src_stride, dst_stride = (
            self.shown(64, name) for name in ("src", "dst", "src_stride", "dst_stride")
        )
        rest, first, ended = Signal(32), Signal(init=1), Signal()
        next_src, next_dst = Signal(len(chunk.src.offset)), Signal(len(chunk.dst.offset))
        m.d.comb += [emits.eq(out.valid), left.eq(Mux(first, length, rest)), active.eq(~g.done)]
        taken = out.valid & out.ready
        with m.If(g.start):
            m.d.sync += [
                length.eq(instr.dma_row_bytes),
                rows.eq(instr.dma_rows),
                src.eq(instr.dma_src),
                dst.eq(instr.dma_dst),
                src_stride.eq(instr.dma_src_stride),
                dst_stride.eq(instr.dma_dst_stride),
                first.eq(1),
                ended.eq((instr.dma_rows == 0) | (instr.dma_row_bytes == 0)),
            ]
        with m.If(taken):
            m.d.sync += [
                rest.eq(left - chunk.bytes),
                first.eq(left == chunk.bytes),
                next_src.eq(chunk.src.offset + chunk.bytes),
                next_dst.eq(chunk.dst.offset + chunk.bytes),
            ]
            with m.If(left == chunk.bytes):
                m.d.sync += [rows.eq(rows - 1), src.eq(src + src_stride), dst.eq(dst + dst_stride)]
                m.d.sync += ended.eq(rows == 1)
        m.d.comb += [
            Assert(~out.valid | (chunk.bytes != 0)),
            Assert(~out.valid | (chunk.src.offset[:12] + chunk.bytes <= PAGE)),
            Assert(~out.valid | (chunk.dst.offset[:12] + chunk.bytes <= PAGE)),
            Assert(~out.valid | (chunk.bytes <= left)),
            Assert(~out.valid | (left != 0)),
            Assert(~out.valid | first | ((chunk.src.offset == next_src) & (chunk.dst.offset == next_dst))),
            Assert(~out.valid | ((chunk.src_row == src) & (chunk.dst_row == dst))),
            Assert(~out.valid | ~ended),
            Assert(~active | (length != 0)),
            Assert(~active | (ended == (rows == 0))),
            Assert(~active | ~ended | first),
            # nothing is left when it says so without an error
            Assert(~g.done | g.bad | ended | ~self._started(m, g)),
        ]

    def _started(self, m: Module, g: object) -> Signal:
        started = Signal()
        with m.If(g.start):  # type: ignore[attr-defined]
            m.d.sync += started.eq(1)
        return started


def test_holds():
    prove(Whole(), steps=4)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Mux(a < b, a, b)", "a"),
        ("left.eq(left - chunk)", "left.eq(left - 1)"),
        ("dst_place.offset.eq(dst_place.offset + chunk)", "dst_place.offset.eq(dst_place.offset + a)"),
        ("rows.eq(rows - 1)", "rows.eq(rows - 2)"),
    ],
    ids=["crosses 4 KiB", "repeats bytes", "leaves a gap", "loses rows"],
)
def test_mutant_falls(old, new):
    with mutant(chunks, old, new) as module, pytest.raises(RefutedError, match="from reset"):
        prove(Whole(module), steps=10, induction=False)
