"""One lane of the vector engine: decode, two ALU stages, encode."""

from dataclasses import dataclass
from typing import Any

from amaranth import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from models.formats import DType
from models.fp import PARTIALS
from models.isa import AluOp
from rtl.fp import add, decode, encode, mul
from rtl.fp.extreme import canonical, extreme, is_nan
from rtl.interfaces import mac_code_bits
from rtl.lib.delay import Delay, DelayConfig
from rtl.tiles import ClockedTile, TileLibrary
from rtl.vector import groups
from rtl.vector.groups import ALU_LATENCY, OP_BITS, ReduceLayout

LATENCY = decode.LATENCY + 2 * ALU_LATENCY + encode.LATENCY
"""Cycles from `a` and `b` to `o`."""
REDUCE_LATENCY = groups.LATENCY + encode.LATENCY
"""Cycles from a group's last element at `a` to its result at `o`."""
ONE = 0x3F800000
"""True, of comparisons and logical operations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneConfig:
    """Nothing to choose."""


class VectorAlu(ClockedTile):
    """o = a op b, or b op a with `reverse`, in FP32, ALU_LATENCY cycles later; `op` (AluOp) and `reverse` are held while results are under way."""

    def __init__(self, config: LaneConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"a": In(32), "b": In(32), "op": In(OP_BITS), "reverse": In(1), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.add = adder = self.tiles.place(add.Fp32Add, add.Fp32AddConfig())
        m.submodules.mul = multiplier = self.tiles.place(mul.Fp32Mul, mul.Fp32MulConfig())
        subtract = self.op == AluOp.SUB
        a, b, other = Signal(32), Signal(32), Signal(32)
        m.d.comb += [
            a.eq(Mux(self.reverse, self.b, self.a)),
            b.eq(Mux(self.reverse, self.a, self.b)),
            adder.a.eq(a),
            adder.b.eq(Cat(b[:31], b[31] ^ subtract)),
            multiplier.a.eq(a),
            multiplier.b.eq(b),
            other.eq(self._single(m, a, b)),
        ]
        for stage in range(ALU_LATENCY):
            held = Signal(32, name=f"other{stage}", reset_less=True)
            m.d.sync += held.eq(other)
            other = held
        with m.Switch(self.op):
            with m.Case(AluOp.ADD.value, AluOp.SUB.value):
                m.d.comb += self.o.eq(adder.o)
            with m.Case(AluOp.MUL.value):
                m.d.comb += self.o.eq(multiplier.o)
            with m.Default():
                m.d.comb += self.o.eq(other)
        return m

    def _single(self, m: Module, a: Value, b: Value) -> Signal:
        """Operations that take a cycle: BYPASS, extremes, comparisons, logical ones."""
        absolute = self.op == AluOp.ABS_MAX
        sign = ~absolute
        largest = absolute | (self.op == AluOp.MAX)
        best = extreme(m, "best", Cat(a[:31], a[31] & sign), Cat(b[:31], b[31] & sign), largest)
        a_some, b_some, numbers, equal, above, holds = (
            Signal(name=n) for n in ("a_some", "b_some", "numbers", "equal", "above", "holds")
        )
        magnitude_above = a[:31] > b[:31]
        m.d.comb += [
            a_some.eq(a[:31].any()),
            b_some.eq(b[:31].any()),
            numbers.eq(~is_nan(a) & ~is_nan(b)),
            equal.eq((a == b) | ~(a_some | b_some)),
            above.eq(~equal & Mux(a[31], b[31] & ~magnitude_above, b[31] | magnitude_above)),
        ]
        conditions = {
            AluOp.IS_EQ: numbers & equal,
            AluOp.NOT_EQ: ~(numbers & equal),
            AluOp.IS_GT: numbers & above,
            AluOp.IS_GE: numbers & (above | equal),
            AluOp.IS_LT: numbers & ~above & ~equal,
            AluOp.IS_LE: numbers & ~above,
            AluOp.LOGICAL_AND: a_some & b_some,
            AluOp.LOGICAL_OR: a_some | b_some,
            AluOp.LOGICAL_XOR: a_some ^ b_some,
        }
        out = Signal(32)
        m.d.comb += out.eq(Mux(holds, ONE, 0))
        with m.Switch(self.op):
            for op, condition in conditions.items():
                with m.Case(op.value):
                    m.d.comb += holds.eq(condition)
            with m.Case(AluOp.BYPASS.value):
                m.d.comb += out.eq(canonical(a))
            with m.Case(AluOp.MAX.value, AluOp.MIN.value, AluOp.ABS_MAX.value):
                m.d.comb += out.eq(best)
        return out


class VectorLane(ClockedTile):
    """o = encode((decode(a) op0 decode(b)) op1 c), LATENCY cycles later; one element a cycle, never stalls.

    With `second` it is encode((decode(a) op0 c) op1 decode(b)).

    Members
    -------
    a, b: raw elements of types a_dtype and b_dtype. c: FP32 bits. o: raw element of type o_dtype, cast as `saturate` says.
    copy: o is a, bit for bit. zero: with o, b was a zero. reduce: see rtl.vector.groups; op1 is op0 then. All but `a`, `b` and `reduce` are held while results are
    under way.
    """

    def __init__(self, config: LaneConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        code = mac_code_bits()
        super().__init__(
            {
                "a": In(32),
                "b": In(32),
                "c": In(32),
                "a_dtype": In(code),
                "b_dtype": In(code),
                "o_dtype": In(code),
                "op0": In(OP_BITS),
                "op1": In(OP_BITS),
                "reverse0": In(1),
                "reverse1": In(1),
                "second": In(1),
                "saturate": In(1),
                "copy": In(1),
                "reduce": In(ReduceLayout()),
                "o": Out(32),
                "zero": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        values: list[Value] = []
        for name, raw, dtype in (("a", self.a, self.a_dtype), ("b", self.b, self.b_dtype)):
            m.submodules[f"decode_{name}"] = unit = self.tiles.place(decode.Decode, decode.DecodeConfig())
            m.d.comb += [unit.raw.eq(raw), unit.dtype.eq(dtype)]
            values.append(unit.o)
        m.submodules.alu0 = alu0 = self.tiles.place(VectorAlu, self.config)
        m.submodules.alu1 = alu1 = self.tiles.place(VectorAlu, self.config)
        m.submodules.encode = out = self.tiles.place(encode.Encode, encode.EncodeConfig())
        m.submodules.late = late = self.tiles.place(Delay, DelayConfig(width=32, cycles=ALU_LATENCY))
        m.submodules.zero = zero = self.tiles.place(
            Delay, DelayConfig(width=1, cycles=LATENCY - decode.LATENCY)
        )
        m.submodules.raw = raw = self.tiles.place(Delay, DelayConfig(width=32, cycles=LATENCY))
        ctl = self.reduce
        held = Signal(32, name="scan_state", reset_less=True)
        with m.If(ctl.state):
            m.d.sync += held.eq(alu1.o)
        state = Mux(ctl.begin, ctl.identity, held)
        partial, even_partial, halves = self._partials(m, alu0.o, alu1.o)
        m.d.comb += [
            alu0.a.eq(Mux(ctl.scan, state, Mux(ctl.on & ctl.pad, ctl.identity, values[0]))),
            alu0.b.eq(Mux(ctl.scan, values[0], Mux(ctl.on, partial, Mux(self.second, self.c, values[1])))),
            alu0.op.eq(self.op0),
            alu0.reverse.eq(self.reverse0),
            late.i.eq(values[1]),
            alu1.a.eq(Mux(ctl.on, Mux(ctl.final, halves[0], even_partial), alu0.o)),
            alu1.b.eq(Mux(ctl.on, Mux(ctl.final, halves[1], alu0.o), Mux(self.second, late.o, self.c))),
            alu1.op.eq(self.op1),
            alu1.reverse.eq(self.reverse1),
            out.x.eq(alu1.o ^ Cat(C(0, 31), ctl.negate)),
            out.dtype.eq(self.o_dtype),
            out.saturate.eq(self.saturate),
            zero.i.eq(~values[1][:31].any()),
            self.zero.eq(zero.o),
            raw.i.eq(self.a),
            self.o.eq(Mux(self.copy, raw.o, out.raw)),
        ]
        return m

    def _partials(self, m: Module, first: Value, second: Value) -> tuple[Value, Value, list[Signal]]:
        """A reduction's running values: the entering element's own, the one before the leaving one, and both halves of a group."""
        ctl = self.reduce
        partials = [Signal(32, name=f"partial{n}", reset_less=True) for n in range(PARTIALS)]
        halves = [Signal(32, name=f"half{n}", reset_less=True) for n in range(2)]
        for n, partial in enumerate(partials):
            with m.If(ctl.put & (ctl.put_tag == n)):
                m.d.sync += partial.eq(first)
        for n, half in enumerate(halves):
            with m.If(ctl.keep & (ctl.half == n)):
                m.d.sync += half.eq(second)
        own = Mux(ctl.fresh, ctl.identity, Array(partials)[ctl.tag])
        return own, Mux(ctl.put_tag[-1], partials[2], partials[0]), halves


FP32_CODE = C(DType.FP32.value, mac_code_bits())
"""Type of immediates."""
