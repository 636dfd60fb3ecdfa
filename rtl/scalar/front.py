"""Front of the scalar engine: takes instructions one by one, measures their patterns, checks their fields."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.config import ChipConfig
from models.formats import FLOATS, INTS, DType
from models.functions import ActFunc
from models.isa import AluOp, Flag, Opcode
from models.scalar import SCALAR_OPS
from rtl.access.check import pattern_ok
from rtl.access.size import LATENCY, PatternSize, SizeConfig
from rtl.interfaces import IssueLayout
from rtl.tiles import TileLibrary

SIZE = SizeConfig(bits=64)
"""Sizes are compared exactly: the largest product of four counts has 64 bits."""
BIAS, ACCUMULATE, FRESH, NEGATE = (
    f.bit_length() - 1 for f in (Flag.SRC1_SCALAR, Flag.ACCUMULATE, Flag.FRESH, Flag.NEGATE)
)
"""Bits of `flags`."""


class CheckedLayout(data.StructLayout):
    """An instruction that may run, and its number of elements. `legal` low: ILLEGAL_FIELD, nothing else means anything.

    recall: it is READ_ACCUMULATOR, which has no source.
    """

    def __init__(self) -> None:
        super().__init__(
            {"issue": IssueLayout(), "legal": unsigned(1), "recall": unsigned(1), "count": unsigned(64)}
        )


class ScalarFront(wiring.Component):
    """Ports: issue (instructions), checked (one item for each), clear, idle. LATENCY + 2 cycles an instruction.

    clear: for as long as it is high nothing is accepted or comes out, and what is under way is forgotten.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "issue": In(stream.Signature(IssueLayout())),
                "checked": Out(stream.Signature(CheckedLayout())),
                "clear": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        item = Signal(CheckedLayout())
        wait = Signal(range(LATENCY + 1))
        sizes = {}
        for name in ("dst", "src0", "src1"):
            unit = self.tiles.place(PatternSize, SIZE)
            m.submodules[f"size_{name}"] = unit
            ap = getattr(self.issue.payload.instr, name)
            m.d.comb += [
                unit.start.eq(self.issue.valid & self.issue.ready),
                unit.counts.as_value().eq(Cat(ap.count0, ap.count1, ap.count2, ap.count3)),
            ]
            sizes[name] = unit.size
        recall = item.issue.instr.opcode == Opcode.READ_ACCUMULATOR
        legal = self._legal(m, item.issue.instr, sizes, recall)
        m.d.comb += self.checked.payload.eq(item)
        with m.FSM() as fsm:
            m.d.comb += [
                self.idle.eq(fsm.ongoing("IDLE")),
                self.issue.ready.eq(self.idle & ~self.clear),
                self.checked.valid.eq(fsm.ongoing("CHECKED") & ~self.clear),
            ]
            with m.State("IDLE"):
                with m.If(self.issue.valid & ~self.clear):
                    m.d.sync += [item.issue.eq(self.issue.payload), wait.eq(LATENCY - 1)]
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(self.clear):
                    m.next = "IDLE"
                with m.Elif(wait == 0):
                    m.d.sync += [item.legal.eq(legal), item.recall.eq(recall), item.count.eq(sizes["src0"])]
                    m.next = "CHECKED"
            with m.State("CHECKED"):
                with m.If(self.checked.ready | self.clear):
                    m.next = "IDLE"
        return m

    def _legal(self, m: Module, instr: Any, sizes: dict[str, Value], recall: Value) -> Signal:
        """The field rules of models.scalar."""
        parts, bias = instr.parts, instr.flags[BIAS]
        # all eight bits: the complement of a narrower constant would let the upper ones pass
        allowed = Signal(8)
        with m.Switch(instr.opcode):
            for opcode, flags in SCALAR_OPS.items():
                with m.Case(opcode.value):
                    m.d.comb += allowed.eq(flags)
        writable = {*FLOATS, *INTS}
        p = self.config.partitions
        legal = Signal()
        m.d.comb += legal.eq(
            (parts >= 1)
            & (parts <= self.config.partitions)
            & ((instr.flags & ~allowed) == 0)
            & (instr.flags[ACCUMULATE] | ~instr.flags[FRESH])
            & Mux(
                recall,
                (instr.op0 == AluOp.ADD) & (instr.op1 == 0) & (sizes["dst"] == 1),
                (instr.op0 <= max(ActFunc).value) & (sizes["dst"] == sizes["src0"]),
            )
            & (~bias | (sizes["src1"] == 1))
            & pattern_ok(m, "dst", instr.dst, parts, partitions=p, dtypes=writable)
            & (
                recall
                | pattern_ok(m, "src0", instr.src0, parts, partitions=p, dtypes={*writable, DType.E8M0})
            )
            & (~bias | pattern_ok(m, "src1", instr.src1, parts, partitions=p, dtypes={DType.FP32}))
        )
        return legal
