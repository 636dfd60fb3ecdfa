"""One lane of the vector engine: decode, two ALU stages, encode."""

from dataclasses import dataclass
from typing import Any

from amaranth import Array, C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.formats import DType
from models.fp import PARTIALS
from models.isa import AluOp
from rtl.fp import add, decode, divide, encode, exponential, mul
from rtl.fp.extreme import canonical, extreme, is_nan
from rtl.interfaces import mac_code_bits
from rtl.lib.delay import Delay, DelayConfig
from rtl.tiles import ClockedTile, TileLibrary
from rtl.vector import groups, moments, top8
from rtl.vector.groups import ALU_LATENCY, OP_BITS, TAG_BITS, ReduceLayout

LATENCY = decode.LATENCY + 2 * ALU_LATENCY + encode.LATENCY
"""Cycles from `a` and `b` to `o`."""
REDUCE_LATENCY = groups.LATENCY + encode.LATENCY
"""Cycles from a group's last element at `a` to its result at `o`."""
EXP_LATENCY = LATENCY + exponential.LATENCY
"""The same for an exponential."""
DIVIDE_LATENCY = LATENCY + divide.LATENCY - ALU_LATENCY
"""The same for a division, which takes the first ALU's place."""
RANK_LATENCY = LATENCY + top8.LATENCY
"""The same for what comes from the lane's list of eight values."""
ONE = 0x3F800000
"""True, of comparisons and logical operations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneConfig:
    """Nothing to choose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AluConfig:
    """`chains`: the ALU can also add to a product, and multiply a product."""

    chains: bool = False


def comparisons(m: Module, name: str, a: Value, b: Value) -> dict[AluOp, Value]:
    """Whether FP32 a op b holds, for each comparison."""
    numbers, equal, above = (Signal(name=f"{name}_{n}") for n in ("numbers", "equal", "above"))
    magnitude_above = a[:31] > b[:31]
    m.d.comb += [
        numbers.eq(~is_nan(a) & ~is_nan(b)),
        equal.eq((a == b) | ~(a[:31].any() | b[:31].any())),
        above.eq(~equal & Mux(a[31], b[31] & ~magnitude_above, b[31] | magnitude_above)),
    ]
    return {
        AluOp.IS_EQ: numbers & equal,
        AluOp.NOT_EQ: ~(numbers & equal),
        AluOp.IS_GT: numbers & above,
        AluOp.IS_GE: numbers & (above | equal),
        AluOp.IS_LT: numbers & ~above & ~equal,
        AluOp.IS_LE: numbers & ~above,
    }


class SumLayout(data.StructLayout):
    """What the lanes are told about their accumulators.

    on: results go into them, with op1 (held). load: all become `start`. tag: which one the element that enters the second ALU goes to.
    put, put_tag: the second ALU gives this accumulator's next value.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "on": unsigned(1),
                "load": unsigned(1),
                "start": unsigned(32),
                "tag": unsigned(TAG_BITS),
                "put": unsigned(1),
                "put_tag": unsigned(TAG_BITS),
            }
        )


class SpanLayout(data.StructLayout):
    """An element's number, FP32, as it enters the first ALU; both bounds (FP32) are held."""

    def __init__(self) -> None:
        super().__init__({"number": unsigned(32), "low": unsigned(32), "high": unsigned(32)})


class VectorAlu(ClockedTile):
    """o = a op b, or b op a with `reverse`, in FP32, ALU_LATENCY cycles later; `op` (AluOp) and `reverse` are held while results are under way.

    Where it chains: with `chain` and ADD o = c + a * b, rounded twice, c being sampled ALU_LATENCY cycles after a and b, and o coming
    ALU_LATENCY later; with `again` the product that leaves takes the place of a.
    """

    def __init__(self, config: AluConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        chain = {"chain": In(1), "again": In(1), "c": In(32)} if config.chains else {}
        super().__init__(
            {"a": In(32), "b": In(32), "op": In(OP_BITS), "reverse": In(1), "o": Out(32)} | chain
        )

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
        if self.config.chains:
            with m.If(self.chain):
                m.d.comb += [adder.a.eq(multiplier.o), adder.b.eq(self.c)]
            with m.If(self.again):
                m.d.comb += multiplier.a.eq(multiplier.o)
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
        a_some, b_some, holds = (Signal(name=n) for n in ("a_some", "b_some", "holds"))
        m.d.comb += [a_some.eq(a[:31].any()), b_some.eq(b[:31].any())]
        conditions = comparisons(m, "compare", a, b) | {
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
    copy: o is a, bit for bit. zero: with o, b was a zero. exp: FP32 exponent field of a, decode.LATENCY cycles later. reduce: see rtl.vector.groups; op1 is op0 then.
    exponential: op1 is applied to exp(a op0 b), EXP_LATENCY cycles. divide: to a / b, DIVIDE_LATENCY cycles; b and a are taken with `divide_start`,
        which comes with them at the first ALU. select: to a, or to c where b is a zero (`flip`: where it is none). within: to a, or to c where
        span.number op0 span.low and span.number op1 span.high do not both hold.
    sums, mine: the accumulators, and whether this lane's change. recall: they are the elements, see ReduceLayout.tag.
    rank: the list of eight values, with b as values and c as its `other`, see rtl.vector.top8; RANK_LATENCY cycles.
    moments: counts, means and variances, see rtl.vector.moments.
    All but `a`, `b`, `reduce`, `sums`, `rank`, `moments`, `span.number` and `divide_start` are held while results are under way.
    """

    def __init__(self, config: LaneConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        code = mac_code_bits()
        held = ("reverse0", "reverse1", "second", "saturate", "copy", "exponential", "divide", "select")
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
                **{name: In(1) for name in held},
                "flip": In(1),
                "within": In(1),
                "recall": In(1),
                "mine": In(1),
                "divide_start": In(1),
                "reduce": In(ReduceLayout()),
                "sums": In(SumLayout()),
                "span": In(SpanLayout()),
                "rank": In(top8.RankLayout()),
                "moments": In(moments.MomentLayout()),
                "o": Out(32),
                "zero": Out(1),
                "exp": Out(8),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        values: list[Value] = []
        for name, raw, dtype in (("a", self.a, self.a_dtype), ("b", self.b, self.b_dtype)):
            m.submodules[f"decode_{name}"] = unit = self.tiles.place(decode.Decode, decode.DecodeConfig())
            m.d.comb += [unit.raw.eq(raw), unit.dtype.eq(dtype)]
            values.append(unit.o)
        m.submodules.alu0 = alu0 = self.tiles.place(VectorAlu, AluConfig())
        m.submodules.alu1 = alu1 = self.tiles.place(VectorAlu, AluConfig(chains=True))
        m.submodules.encode = out = self.tiles.place(encode.Encode, encode.EncodeConfig())
        m.submodules.late = late = self.tiles.place(Delay, DelayConfig(width=32, cycles=ALU_LATENCY))
        m.submodules.past = past = self.tiles.place(Delay, DelayConfig(width=32, cycles=ALU_LATENCY))
        m.submodules.zero = zero = self.tiles.place(
            Delay, DelayConfig(width=1, cycles=LATENCY - decode.LATENCY)
        )
        m.submodules.raw = raw = self.tiles.place(Delay, DelayConfig(width=32, cycles=LATENCY))
        ctl = self.reduce
        held = Signal(32, name="scan_state", reset_less=True)
        with m.If(ctl.state):
            m.d.sync += held.eq(alu1.o)
        state = Mux(ctl.begin, ctl.identity, held)
        partial, even_partial, halves, partials = self._partials(m, alu0.o, alu1.o)
        sums = self._accumulators(m, alu1.o)
        m.submodules.top8 = eight = self.tiles.place(top8.Top8, None)
        m.d.comb += [
            eight.x.eq(values[0]),
            eight.value.eq(values[1]),
            eight.number.eq(self.span.number),
            eight.other.eq(self.c),
            eight.control.eq(self.rank),
        ]
        element = Mux(self.recall, sums[ctl.tag], Mux(self.rank.on, eight.o, values[0]))
        m.submodules.moments = own = self.tiles.place(moments.Moments, None)
        # what the second ALU works on
        first, quotient = self._first(m, alu0.o, values, late.o, own)
        m.d.comb += [
            alu0.a.eq(Mux(ctl.scan, state, Mux(ctl.on & ctl.pad, ctl.identity, element))),
            alu0.b.eq(Mux(ctl.scan, values[0], Mux(ctl.on, partial, Mux(self.second, self.c, values[1])))),
            alu0.op.eq(Mux(self.within, 0, self.op0)),
            alu0.reverse.eq(self.reverse0),
            late.i.eq(values[1]),
            past.i.eq(first),
            alu1.a.eq(Mux(ctl.on, Mux(ctl.final, halves[0], even_partial), first)),
            alu1.b.eq(
                Mux(
                    ctl.on,
                    Mux(ctl.final, halves[1], alu0.o),
                    Mux(self.sums.on, sums[self.sums.tag], Mux(self.second, late.o, self.c)),
                )
            ),
            alu1.op.eq(Mux(self.within, Mux(self.sums.on, AluOp.MAX.value, 0), self.op1)),
            alu1.reverse.eq(self.reverse1),
            out.x.eq(Mux(self.sums.on, past.o, alu1.o) ^ Cat(C(0, 31), ctl.negate)),
            out.dtype.eq(self.o_dtype),
            out.saturate.eq(self.saturate),
            zero.i.eq(~values[1][:31].any()),
            self.exp.eq(values[0][23:31]),
            self.zero.eq(zero.o),
            raw.i.eq(self.a),
            self.o.eq(Mux(self.copy, raw.o, out.raw)),
            own.x.eq(values[0]),
            own.first.eq(alu0.o),
            own.quotient.eq(quotient),
            *(own.sums[n].eq(partial) for n, partial in enumerate(partials)),
            own.control.eq(self.moments),
            alu1.chain.eq(self.moments.on),
            alu1.again.eq(self.moments.again),
            alu1.c.eq(own.addend),
        ]
        with m.If(self.moments.on):
            m.d.comb += [
                alu0.a.eq(own.a),
                alu0.b.eq(own.b),
                alu0.op.eq(self.moments.op),
                alu1.b.eq(own.factor),
                alu1.op.eq(AluOp.ADD.value),
                # results come from the registers, past the second ALU
                out.x.eq(past.o),
            ]
        return m

    def _first(
        self, m: Module, alu: Value, values: list[Value], late: Value, own: Any
    ) -> tuple[Signal, Value]:
        """The first operation's result: the first ALU's, or that of a unit beside it; and the divider's. `own`: rtl.vector.moments."""
        m.submodules.exponential = exp = self.tiles.place(
            exponential.Exponential, exponential.ExponentialConfig()
        )
        m.submodules.divide = div = self.tiles.place(divide.Fp32Divide, divide.Fp32DivideConfig())
        inside = []
        for n, (bound, op) in enumerate(((self.span.low, self.op0), (self.span.high, self.op1))):
            holds = Signal(name=f"inside{n}")
            with m.Switch(op):
                for code, condition in comparisons(m, f"bound{n}", self.span.number, bound).items():
                    with m.Case(code.value):
                        m.d.comb += holds.eq(condition)
            inside.append(holds)
        m.submodules.within = within = self.tiles.place(Delay, DelayConfig(width=1, cycles=ALU_LATENCY))
        first, taken = Signal(32, name="first"), Signal()
        m.d.comb += [
            exp.x.eq(alu),
            exp.on.eq(self.exponential),
            div.start.eq(self.divide_start | self.moments.divide),
            div.a.eq(Mux(self.reverse0, values[1], values[0])),
            div.b.eq(Mux(self.reverse0, values[0], values[1])),
            within.i.eq(inside[0] & inside[1]),
            taken.eq(Mux(self.within, within.o, ~self.select | (late[:31].any() ^ self.flip))),
            first.eq(Mux(taken, alu, self.c)),
        ]
        with m.If(self.moments.on):
            m.d.comb += [div.a.eq(own.a), div.b.eq(own.b)]
        with m.If(self.exponential):
            m.d.comb += first.eq(exp.o)
        with m.If(self.divide):
            m.d.comb += first.eq(div.o)
        return first, div.o

    def _accumulators(self, m: Module, second: Value) -> Array:
        """The lane's accumulators; +0 after reset, as all state that a program can see."""
        ctl = self.sums
        sums = [Signal(32, name=f"sum{n}") for n in range(PARTIALS)]
        for n, total in enumerate(sums):
            with m.If(self.mine & ctl.load):
                m.d.sync += total.eq(ctl.start)
            with m.Elif(self.mine & ctl.put & (ctl.put_tag == n)):
                m.d.sync += total.eq(second)
        return Array(sums)

    def _partials(
        self, m: Module, first: Value, second: Value
    ) -> tuple[Value, Value, list[Signal], list[Signal]]:
        """A reduction's running values: the entering element's own, the one before the leaving one, both halves of a group, and all."""
        ctl, other = self.reduce, self.moments
        partials = [Signal(32, name=f"partial{n}", reset_less=True) for n in range(PARTIALS)]
        halves = [Signal(32, name=f"half{n}", reset_less=True) for n in range(2)]
        for n, partial in enumerate(partials):
            with m.If(ctl.put & (ctl.put_tag == n)):
                m.d.sync += partial.eq(first)
            with m.If(other.begin):
                m.d.sync += partial.eq(moments.NOTHING)
            with m.Elif(other.put & (other.put_tag == n)):
                m.d.sync += partial.eq(second)
        for n, half in enumerate(halves):
            with m.If(ctl.keep & (ctl.half == n)):
                m.d.sync += half.eq(second)
        own = Mux(ctl.fresh, ctl.identity, Array(partials)[ctl.tag])
        return own, Mux(ctl.put_tag[-1], partials[2], partials[0]), halves, partials


FP32_CODE = C(DType.FP32.value, mac_code_bits())
"""Type of immediates."""
