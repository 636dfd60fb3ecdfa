"""Front of the tensor engine: takes instructions one by one, measures their patterns, checks their fields."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.config import ChipConfig
from models.formats import MAC_CLASSES, PACKED, DType
from models.isa import Flag, Opcode, Space
from rtl.access.size import LATENCY, PatternSize, SizeConfig
from rtl.interfaces import IssueLayout, mac_code_bits
from rtl.lib.element import log2_bytes
from rtl.pe.operand import DOUBLE_CODES, WORD
from rtl.tiles import TileLibrary

SIZE_BITS = 16


class CheckedLayout(data.StructLayout):
    """An instruction that may run: what it is, columns to stream or to load, and whether it brings new weights into use.

    load, stream: it loads weights, it streams columns; TRANSPOSE (`words`) does both. size: log2 of the operand word's bytes.
    code: type, as the array takes it (rtl.pe.operand). packed: src1 is scales; double: src1 is second rows. `legal` low: ILLEGAL_FIELD, nothing else means anything.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "issue": IssueLayout(),
                "legal": unsigned(1),
                "load": unsigned(1),
                "stream": unsigned(1),
                "words": unsigned(1),
                "columns": unsigned(SIZE_BITS),
                "swap": unsigned(1),
                "size": unsigned(2),
                "code": unsigned(mac_code_bits()),
                "packed": unsigned(1),
                "double": unsigned(1),
            }
        )


def _one_of(code: Value, dtypes: Any) -> Value:
    return reduce(or_, [code == d.value for d in dtypes], C(0, 1))


class TensorFront(wiring.Component):
    """Ports: issue (instructions), checked (one item for each), clear, idle. LATENCY + 2 cycles an instruction.

    Keeps the shape and type of the weights loaded last, which a MATMUL must match.
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
        issue = Signal(IssueLayout())
        instr = issue.instr
        wait = Signal(range(LATENCY + 1))
        sizes = {}
        for name in ("dst", "src0", "src1"):
            unit = self.tiles.place(PatternSize, SizeConfig(bits=SIZE_BITS))
            m.submodules[f"size_{name}"] = unit
            ap = getattr(self.issue.payload.instr, name)
            m.d.comb += [
                unit.start.eq(self.issue.valid & self.issue.ready),
                unit.counts.as_value().eq(Cat(ap.count0, ap.count1, ap.count2, ap.count3)),
            ]
            sizes[name] = unit.size

        # weights loaded last
        held, fresh = Signal(), Signal()
        held_k, held_m, held_dtype = Signal(8), Signal(8), Signal(mac_code_bits())
        held_double, double = Signal(), Signal()
        m.d.comb += double.eq(instr.flags[Flag.DOUBLE_ROW.bit_length() - 1])
        item = Signal(CheckedLayout())
        same = held & (held_k == instr.parts) & (held_m == instr.cols) & (held_double == double)
        legal = self._legal(m, instr, sizes, double, same, held_dtype)
        m.d.comb += self.checked.payload.eq(item)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.issue.ready.eq(~self.clear), self.idle.eq(1)]
                with m.If(self.issue.valid & ~self.clear):
                    m.d.sync += [issue.eq(self.issue.payload), wait.eq(LATENCY - 1)]
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(self.clear):
                    m.next = "IDLE"
                with m.Elif(wait == 0):
                    load = instr.opcode == Opcode.LOAD_STATIONARY
                    words = instr.opcode == Opcode.TRANSPOSE
                    m.d.sync += [
                        item.issue.eq(issue),
                        item.legal.eq(legal),
                        item.load.eq(load | words),
                        item.stream.eq(~load),
                        item.words.eq(words),
                        item.columns.eq(Mux(words, instr.parts, sizes["src0"])),
                        item.swap.eq(fresh | words),
                        item.size.eq(log2_bytes(instr.src0.dtype)),
                        item.code.eq(self._code(instr.src0.dtype, words, double)),
                        item.packed.eq(_one_of(instr.src0.dtype, PACKED) & ~words),
                        item.double.eq(double & ~words),
                    ]
                    with m.If(legal & load):
                        m.d.sync += [
                            held.eq(1),
                            fresh.eq(1),
                            held_k.eq(instr.parts),
                            held_m.eq(instr.cols),
                            held_dtype.eq(instr.src0.dtype),
                            held_double.eq(double),
                        ]
                    with m.If(legal & ~load & (sizes["src0"] != 0)):
                        m.d.sync += fresh.eq(0)
                    # its words have taken the place of the weights
                    with m.If(legal & words):
                        m.d.sync += held.eq(0)
                    m.next = "CHECKED"
            with m.State("CHECKED"):
                m.d.comb += self.checked.valid.eq(~self.clear)
                with m.If(self.checked.ready | self.clear):
                    m.next = "IDLE"
        with m.If(self.clear):
            m.d.sync += [held.eq(0), fresh.eq(0)]
        return m

    def _legal(
        self,
        m: Module,
        instr: Any,
        sizes: dict[str, Value],
        double: Signal,
        same: Value,
        held_dtype: Signal,
    ) -> Signal:
        """The field rules of models.machine for this engine's own opcodes. `same`: the loaded weights have this MATMUL's shape and rows."""
        cfg = self.config
        p = cfg.partitions
        dst, src0, src1 = instr.dst, instr.src0, instr.src1
        packed = Signal()
        align = Signal()
        m.d.comb += packed.eq(_one_of(src0.dtype, PACKED))
        size = log2_bytes(src0.dtype)
        m.d.comb += align.eq(((src0.addr[0] & (size != 0)) | (src0.addr[1] & size[1])) == 0)
        step = (p // 4).bit_length() - 1
        quadrant = cfg.quadrant.bit_length() - 1
        shape = (instr.parts >= 1) & (instr.parts <= p) & (instr.cols >= 1) & (instr.cols <= p)
        number = _one_of(src0.dtype, cfg.tensor.formats)
        operand = (
            (src0.space == Space.SBUF) & align & (src0.part[:step] == 0) & (src0.part + instr.parts <= p)
        )
        offset_ok = (src1.part & 0xF3) == 0 if p >= 32 else src1.part == 0
        rows = self._legal_rows(instr, sizes, double)
        scales = ~packed | (
            (src1.dtype == DType.E8M0)
            & (src1.space == Space.SBUF)
            & offset_ok
            & (src0.part[:quadrant] == 0)
            & (sizes["src1"] == sizes["src0"])
        )
        double_row = int(Flag.DOUBLE_ROW)
        load = ((instr.flags & (0xFF ^ double_row)) == 0) & (sizes["src0"] == instr.cols)
        same_class = reduce(
            or_,
            [
                _one_of(src0.dtype, kinds & {*cfg.tensor.formats})
                & _one_of(held_dtype, kinds & {*cfg.tensor.formats})
                for kinds in MAC_CLASSES
            ],
        )
        target = (dst.space == Space.PSUM) & (dst.part[:step] == 0) & (dst.part + instr.cols <= p)
        matmul = (
            ((instr.flags & (0xFF ^ int(Flag.ACCUMULATE) ^ double_row)) == 0)
            & same
            & same_class
            & target
            & (dst.dtype == DType.FP32)
            & (dst.addr[:2] == 0)
            & (sizes["dst"] == sizes["src0"])
            & (sizes["src0"] <= cfg.psum.bank_bytes // 4)
        )
        dst_align = ((dst.addr[0] & (size != 0)) | (dst.addr[1] & size[1])) == 0
        transpose = (
            (instr.flags == 0)
            & target
            & _one_of(src0.dtype, DType)
            & _one_of(dst.dtype, DType)
            & (log2_bytes(dst.dtype) == size)
            & dst_align
            & (sizes["src0"] == instr.cols)
            & (sizes["dst"] == instr.parts)
        )
        legal = Signal()
        m.d.comb += legal.eq(shape & operand & number & scales & rows & matmul)
        with m.If(instr.opcode == Opcode.LOAD_STATIONARY):
            m.d.comb += legal.eq(shape & operand & number & scales & rows & load)
        with m.Elif(instr.opcode == Opcode.TRANSPOSE):
            m.d.comb += legal.eq(shape & operand & transpose)
        return legal

    def _legal_rows(self, instr: Any, sizes: dict[str, Value], double: Value) -> Value:
        """Where there are second rows, they may be there and are as src0."""
        src0, src1 = instr.src0, instr.src1
        p = self.config.partitions
        step = (p // 4).bit_length() - 1
        return ~double | (
            _one_of(src0.dtype, self.config.tensor.double_row)
            & (src1.dtype == src0.dtype)
            & (src1.space == Space.SBUF)
            & (src1.part[:step] == 0)
            & (src1.part + instr.parts <= p)
            & (sizes["src1"] == sizes["src0"])
        )

    def _code(self, dtype: Value, words: Value, double: Value) -> Value:
        code: Value = dtype
        for kind in self.config.tensor.double_row:
            code = Mux(double & (dtype == kind.value), DOUBLE_CODES[kind], code)
        return Mux(words, WORD, code)
