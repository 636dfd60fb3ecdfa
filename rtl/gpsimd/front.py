"""Front of the gpsimd engine: takes instructions one by one, measures their patterns, checks their fields."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.config import ChipConfig
from models.elements import READABLE, WRITABLE
from models.formats import DType
from models.fp import COMPARISONS
from models.gpsimd import INDICES, MOST_GATHERED, REDUCING, WORDS
from models.isa import Flag, Opcode, Space
from rtl.access.check import one_of, pattern_ok
from rtl.access.size import LATENCY, PatternSize, SizeConfig
from rtl.gpsimd.lane import LIMIT_BITS
from rtl.interfaces import IssueLayout
from rtl.tiles import TileLibrary

SIZE = SizeConfig(bits=64)
"""Sizes are compared exactly: the largest product of four counts has 64 bits."""


class CheckedLayout(data.StructLayout):
    """An instruction that may run. `legal` low: ILLEGAL_FIELD, nothing else means anything.

    iota, choose, gather, reduce: which one it is. copy: bits go on as they are. count: elements of dst. limit: elements of a gather's src0.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "issue": IssueLayout(),
                "legal": unsigned(1),
                "iota": unsigned(1),
                "choose": unsigned(1),
                "gather": unsigned(1),
                "reduce": unsigned(1),
                "copy": unsigned(1),
                "count": unsigned(SIZE.bits),
                "limit": unsigned(LIMIT_BITS),
            }
        )


class GpsimdFront(wiring.Component):
    """Ports: issue (instructions), checked (one item for each), clear, idle. LATENCY + 2 cycles an instruction.

    checked.valid comes LATENCY + 1 cycles after an instruction was accepted; the next is accepted after that item was taken. clear: for as
    long as it is high nothing is accepted or comes out, and what is under way is forgotten.
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
        instr = item.issue.instr
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
        kinds = {
            "iota": instr.opcode == Opcode.IOTA,
            "choose": instr.opcode == Opcode.AFFINE_SELECT,
            "gather": instr.opcode == Opcode.LOCAL_GATHER,
            "reduce": instr.opcode == Opcode.PARTITION_REDUCE,
        }
        copy = (kinds["iota"] & one_of(instr.dst.dtype, WORDS)) | (
            kinds["gather"] & (instr.dst.dtype == instr.src0.dtype)
        )
        legal = self._legal(m, instr, sizes, kinds, copy)
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
                    m.d.sync += [
                        item.legal.eq(legal),
                        item.copy.eq(copy),
                        item.count.eq(sizes["dst"]),
                        item.limit.eq(sizes["src0"]),
                        *(item[kind].eq(is_it) for kind, is_it in kinds.items()),
                    ]
                    m.next = "CHECKED"
            with m.State("CHECKED"):
                with m.If(self.checked.ready | self.clear):
                    m.next = "IDLE"
        return m

    def _legal(
        self, m: Module, instr: Any, sizes: dict[str, Value], kinds: dict[str, Value], copy: Value
    ) -> Signal:
        """The field rules of models.gpsimd."""
        dst, src0, src1, parts = instr.dst, instr.src0, instr.src1, instr.parts
        iota, choose, gather, reduce = kinds.values()
        p = self.config.partitions
        one = {"partitions": p, "spaces": (Space.SBUF,)}
        numbers = (src1.space == 0) & (src1.dtype == 0) & (src1.part == 0)
        fields = (
            (parts >= 1)
            & (parts <= p)
            & ((instr.flags & (0xFF ^ int(Flag.SATURATE))) == 0)
            & Mux(
                choose,
                one_of(instr.op0, COMPARISONS),
                Mux(reduce, one_of(instr.op0, REDUCING), instr.op0 == 0),
            )
            & (instr.op1 == 0)
        )
        types = one_of(dst.dtype, WRITABLE) & (iota | one_of(src0.dtype, READABLE))
        shape = (
            (iota | gather | (sizes["src0"] == sizes["dst"]))
            & (reduce | (sizes["src1"] == sizes["dst"]))
            & (~gather | (sizes["src0"] <= MOST_GATHERED))
        )
        written = Signal(8)
        m.d.comb += written.eq(Mux(reduce, 1, parts))
        legal = Signal()
        m.d.comb += legal.eq(
            fields
            & ((gather & copy) | types)
            & shape
            & pattern_ok(m, "dst", dst, written, dtypes=DType, **one)
            & (iota | pattern_ok(m, "src0", src0, parts, dtypes=DType, **one))
            & Mux(
                gather,
                pattern_ok(m, "src1", src1, parts, dtypes=INDICES, **one),
                reduce | numbers,
            )
        )
        return legal
