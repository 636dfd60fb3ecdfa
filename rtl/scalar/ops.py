"""The scalar engine's operations other than multiply-add: each is a few gates on wide floats, without a clock."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from models import wide
from models.microcode import Op, constant
from models.wide import EXP_BITS, SEED_BITS, SIG_BITS, SQRT_HALF
from rtl.fp.round import normalise
from rtl.scalar.wide import WideLayout, finish, is_zero, magnitude, wide_bits
from rtl.tiles import ClockedTile, TileLibrary

OP_BITS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class WideOpsConfig:
    """Nothing to choose."""


class WideOps(ClockedTile):
    """o = op(a, b, c) as models.microcode.execute, in the same cycle. FMA, TURN and QUADRANT are not among them: `o` then means nothing.

    Ports: op (models.microcode.Op); a, b, c, o: WideLayout.
    """

    def __init__(self, config: WideOpsConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        w = WideLayout()
        super().__init__({"op": In(OP_BITS), "a": In(w), "b": In(w), "c": In(w), "o": Out(w)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        a, b, c = self.a, self.b, self.c
        a_less, b_less = self._less(m)
        one = C(wide_bits(constant(1)), WideLayout().size)
        nan = C(wide_bits(constant("nan")), WideLayout().size)
        signed_a = Signal(WideLayout())
        m.d.comb += [signed_a.eq(a), signed_a.neg.eq(b.neg & ~a.nan)]
        results: dict[Op, Value] = {
            Op.RINT: self._rint(m).as_value(),
            Op.SCALE: self._scale(m).as_value(),
            Op.EXPONENT: self._exponent(m).as_value(),
            Op.FRACTION: self._fraction(m).as_value(),
            Op.RECIPROCAL_SEED: self._reciprocal_seed(m).as_value(),
            Op.RSQRT_SEED: self._rsqrt_seed(m).as_value(),
            Op.LESS: Mux(a_less, one, 0),
            Op.SELECT: Mux(is_zero(a), c.as_value(), b.as_value()),
            Op.COPYSIGN: signed_a.as_value(),
            Op.MIN: Mux(a.nan | b.nan, nan, Mux(b_less, b.as_value(), a.as_value())),
        }
        with m.Switch(self.op):
            for op, value in results.items():
                with m.Case(op.value):
                    m.d.comb += self.o.as_value().eq(value)
        return m

    def _less(self, m: Module) -> tuple[Value, Value]:
        """(a < b, b < a)."""
        a, b = self.a, self.b
        below, above = Signal(), Signal()
        left, right = magnitude(a), magnitude(b)
        numbers = ~a.nan & ~b.nan
        some = ~(is_zero(a) & is_zero(b))
        m.d.comb += [below.eq(left < right), above.eq(left > right)]
        a_less = numbers & Mux(a.neg == b.neg, Mux(a.neg, above, below), a.neg & some)
        b_less = numbers & Mux(a.neg == b.neg, Mux(a.neg, below, above), b.neg & some)
        return a_less, b_less

    def _rint(self, m: Module) -> Any:
        a = self.a
        whole, half_or_more = a.exp >= SIG_BITS - 1, a.exp >= -1
        drop = Signal(range(SIG_BITS + 1))
        mask, bump, moved = (Signal(SIG_BITS + 1, name=n) for n in ("rint_mask", "rint_bump", "rint_moved"))
        m.d.comb += [
            drop.eq((SIG_BITS - 1) - a.exp),
            mask.eq((1 << drop) - 1),
            # half a unit, less one unless the unit's bit is set: ties go to even
            bump.eq((mask >> 1) + (Cat(a.sig, C(0, 1)) & (mask + 1)).any()),
            moved.eq((a.sig + bump) & ~mask),
        ]
        over = moved[-1]
        sig = Mux(whole, a.sig, Mux(half_or_more, Mux(over, 1 << (SIG_BITS - 1), moved[:SIG_BITS]), 0))
        exp = Mux(whole, a.exp, a.exp + over)
        return finish(m, "rint", neg=a.neg, exp=exp, sig=sig, inf=a.inf, nan=a.nan)

    def _scale(self, m: Module) -> Any:
        a, b = self.a, self.b
        small = ~b.inf & ~b.nan & (b.exp < EXP_BITS)
        shift = Signal(range(EXP_BITS))
        amount = Signal(EXP_BITS + 1)
        exp = Signal(signed(EXP_BITS + 3))
        m.d.comb += [
            shift.eq(EXP_BITS - 1 - b.exp),
            amount.eq(Mux(small, Mux(b.exp < 0, 0, b.sig[-EXP_BITS:] >> shift), 1 << EXP_BITS)),
            exp.eq(a.exp + Mux(b.neg, -amount, amount)),
        ]
        return finish(m, "scale", neg=a.neg, exp=exp, sig=a.sig, inf=a.inf, nan=a.nan | b.nan)

    def _exponent(self, m: Module) -> Any:
        a = self.a
        value = Signal(signed(EXP_BITS + 1))
        mag = Signal(EXP_BITS)
        m.d.comb += [
            value.eq(Mux(a.sig[-1], a.exp + (a.sig >= SQRT_HALF), 0)),
            mag.eq(Mux(value < 0, -value, value)),
        ]
        found, count = normalise(m, "exponent_norm", mag)
        sig = Cat(C(0, SIG_BITS - EXP_BITS), found)
        exp = Signal(signed(EXP_BITS))
        m.d.comb += exp.eq(EXP_BITS - 1 - count)
        return finish(m, "exponent", neg=value < 0, exp=exp, sig=sig, inf=C(0, 1), nan=C(0, 1))

    def _fraction(self, m: Module) -> Any:
        a = self.a
        return finish(
            m,
            "fraction",
            neg=a.neg,
            exp=Mux(a.sig >= SQRT_HALF, C(-1, signed(EXP_BITS)), 0),
            sig=a.sig,
            inf=a.inf,
            nan=a.nan,
        )

    def _seed(self, m: Module, name: str, table: list[int], index: Value, exp: Value) -> Any:
        a = self.a
        code = Signal(SEED_BITS + 1, name=f"{name}_code")
        with m.Switch(index):
            for i, entry in enumerate(table):
                with m.Case(i):
                    m.d.comb += code.eq(entry)
        whole = code[-1]
        sig = Cat(C(0, SIG_BITS - SEED_BITS), Mux(whole, 1 << (SEED_BITS - 1), code[:SEED_BITS]))
        zero = is_zero(a)
        total = Signal(signed(EXP_BITS + 2), name=f"{name}_exp")
        m.d.comb += total.eq(exp + whole)
        return finish(m, name, neg=a.neg, exp=total, sig=Mux(a.inf | zero, 0, sig), inf=zero, nan=a.nan)

    def _reciprocal_seed(self, m: Module) -> Any:
        a = self.a
        return self._seed(m, "reciprocal", wide.reciprocal_table(), a.sig[24:31], -a.exp - 1)

    def _rsqrt_seed(self, m: Module) -> Any:
        a = self.a
        half = Signal(signed(EXP_BITS))
        m.d.comb += half.eq(a.exp >> 1)
        return self._seed(m, "rsqrt", wide.rsqrt_table(), Cat(a.sig[24:31], a.exp[0]), -half - 1)
