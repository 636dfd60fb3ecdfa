"""exp of FP32, one element a cycle."""

from dataclasses import dataclass
from typing import Any

from amaranth import Array, C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from models.exponential import (
    HALF_LN2_SQUARED,
    LN2,
    LOG2E,
    LOG2E_BITS,
    LOW_BITS,
    SHIFT,
    SQUARE_CUT,
    TABLE,
    TABLE_BITS,
    TOP_EXP,
    VALUE_BITS,
    Y_BITS,
)
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 6
"""Cycles from `x` to `o`."""
INTEGER_BITS = 9
"""Bits of y before its point, with its sign."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExponentialConfig:
    """Nothing to choose."""


class Exponential(ClockedTile):
    """o = exp(x) as models.exponential defines it, LATENCY cycles later; one a cycle. While `on` is low it stands still."""

    def __init__(self, config: ExponentialConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"x": In(32), "on": In(1), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # sign, NaN, |x| beyond the range: with every stage
        marks: list[Value] = [
            self.x[31],
            self.x[23:31].all() & self.x[:23].any(),
            self.x[23:31] >= TOP_EXP,
        ]
        product = Signal(24 + LOG2E_BITS + 1, reset_less=True)
        shift = Signal(range(64), reset_less=True)
        y = Signal(signed(INTEGER_BITS + Y_BITS), reset_less=True)
        low = [Signal(LOW_BITS, name=f"low{n}", reset_less=True) for n in range(2)]
        slope = Signal(Y_BITS + 1, reset_less=True)
        base = [Signal(VALUE_BITS + 1, name=f"base{n}", reset_less=True) for n in range(2)]
        rise = Signal(VALUE_BITS - TABLE_BITS + 1, reset_less=True)
        value = Signal(VALUE_BITS + 1, reset_less=True)
        power = [Signal(signed(INTEGER_BITS), name=f"power{n}", reset_less=True) for n in range(3)]
        out = Signal(32, reset_less=True)
        exp = self.x[23:31]
        right = Signal(signed(10))
        m.d.comb += [right.eq(SHIFT - exp), self.o.eq(out)]
        with m.If(self.on):
            for n in range(LATENCY - 1):
                held = [Signal(name=f"{name}{n}", reset_less=True) for name in ("neg", "nan", "far")]
                m.d.sync += [a.eq(b) for a, b in zip(held, marks, strict=True)]
                marks = [*held]
                if n == 0:
                    neg = held[0]
            m.d.sync += [
                product.eq(Cat(self.x[:23], C(1, 1)) * LOG2E),
                shift.eq(Mux(right < 0, 0, Mux(right > 63, 63, right[:6]))),
                y.eq(Mux(neg, -(product >> shift), product >> shift)),
                base[0].eq(Array(C(t, VALUE_BITS + 1) for t in TABLE)[y[LOW_BITS:Y_BITS]]),
                slope.eq(LN2 + ((y[SQUARE_CUT:LOW_BITS] * C(HALF_LN2_SQUARED, 10)) >> 12 - SQUARE_CUT)),
                low[0].eq(y[:LOW_BITS]),
                power[0].eq(y >> Y_BITS),
                rise.eq((low[0] * slope) >> 2 * Y_BITS - VALUE_BITS),
                base[1].eq(base[0]),
                power[1].eq(power[0]),
                value.eq(base[1] + ((base[1] * rise) >> VALUE_BITS)),
                power[2].eq(power[1]),
                out.eq(self._rounded(m, value, power[2], marks)),
            ]
        return m

    def _rounded(self, m: Module, value: Value, power: Value, marks: list[Value]) -> Value:
        """One rounding to nearest even, of normals and subnormals alike; the hidden bit counts the exponent up."""
        neg, nan, far = marks
        beyond = Signal(VALUE_BITS + 1 + 26)
        deep = Signal(range(26))
        below = Signal(signed(INTEGER_BITS + 1))
        kept, code = Signal(25), Signal(33)
        point = VALUE_BITS - 23 + 26
        m.d.comb += [
            below.eq(-126 - power),
            deep.eq(Mux(below < 0, 0, Mux(below > 25, 25, below[:5]))),
            beyond.eq(Cat(C(0, 26), value) >> deep),
            kept.eq(beyond[point:] + (beyond[point - 1] & (beyond[: point - 1].any() | beyond[point]))),
            code.eq((Mux(below < 0, power + 126, 0)[:8] << 23) + kept),
        ]
        number = Mux(far | (power > 127), Mux(neg, C(0, 32), C(0x7F800000, 32)), code[:32])
        return Mux(nan, C(0x7FC00000, 32), number)
