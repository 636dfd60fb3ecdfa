"""FP32 step: psum + S in one rounding, S being an exact sum of products already normalised. The last two stages of a PE."""

from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.pe.operand import PeConfig
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 2
"""Cycles from `psum_in` and `addend` to `psum_out`."""
EXP_BITS = 12
"""Signed exponents inside the step: LSB weights of FP32 (-149) less a window, up to products of the largest operands and scales."""
CANONICAL_NAN = 0x7FC00000
INFINITY = 0x7F800000


class AddendLayout(data.StructLayout):
    """S = (-1)**neg * mag * 2**exp, mag with its top bit set or zero (then neg is zero's sign); nan and inf overrule."""

    def __init__(self, config: PeConfig):
        super().__init__(
            {
                "mag": unsigned(config.sum_bits),
                "neg": unsigned(1),
                "exp": signed(EXP_BITS),
                "inf": unsigned(1),
                "nan": unsigned(1),
            }
        )


def normalise(m: Module, name: str, value: Value) -> tuple[Signal, Signal]:
    """(value shifted left until its top bit is set, positions shifted); a zero stays zero with a position that means nothing."""
    width = len(value)
    steps = [1 << i for i in reversed(range((width - 1).bit_length()))]
    count = Signal((width - 1).bit_length(), name=f"{name}_count")
    bits = []
    for step in steps:
        empty = Signal(name=f"{name}_empty{step}")
        shifted = Signal(width, name=f"{name}_by{step}")
        m.d.comb += empty.eq(~value[width - step :].any() if step < width else 0)
        m.d.comb += shifted.eq(Mux(empty, Cat(C(0, step), value[: width - step]), value))
        value = shifted
        bits.append(empty)
    m.d.comb += count.eq(Cat(*reversed(bits)))
    assert isinstance(value, Signal)
    return value, count


class Fp32Step(ClockedTile):
    """RNE_fp32(psum_in + S): IEEE 754-2019 fused multiply-add of an exact product sum, subnormals kept, NaN canonical.

    Ports: psum_in, psum_out: FP32. addend: AddendLayout, sampled together with psum_in. Latency: LATENCY cycles, one step a cycle.
    """

    def __init__(self, config: PeConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"psum_in": In(32), "addend": In(AddendLayout(config)), "psum_out": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self._round(m, *self._align(m))
        return m

    def _align(self, m: Module) -> tuple[Signal, Signal, Signal, Signal, Signal]:
        """First stage: registers with |sum|, its sign, LSB exponent, NaN and Inf."""
        cfg, s = self.config, self.addend
        p_neg, p_exp, p_frac = self.psum_in[31], self.psum_in[23:31], self.psum_in[:23]
        p_mag = Signal(24)
        p_lsb, lead = Signal(signed(EXP_BITS)), Signal(signed(EXP_BITS))
        p_inf, p_nan = Signal(), Signal()
        m.d.comb += [
            p_mag.eq(Cat(p_frac, p_exp.any())),
            p_lsb.eq(Cat(p_exp, C(0, 1)).as_signed() - Mux(p_exp.any(), 150, 149)),
            lead.eq(p_lsb - s.exp),
            p_inf.eq(p_exp.all() & ~p_frac.any()),
            p_nan.eq(p_exp.all() & p_frac.any()),
        ]
        # The operand whose last bit weighs more is shifted left, up to where the other one is nothing but sticky.
        s_zero, p_high = Signal(), Signal()
        distance, shift = Signal(EXP_BITS), Signal(range(max(cfg.above, cfg.below) + 1))
        far = Signal()
        limit = Mux(p_high, cfg.above, cfg.below)
        m.d.comb += [
            s_zero.eq(~s.mag[-1]),
            p_high.eq(s_zero | (lead >= 0)),
            distance.eq(Mux(lead[-1], -lead, lead)),
            far.eq(~s_zero & (distance > limit)),
            shift.eq(Mux(s_zero, 0, Mux(far, limit, distance))),
        ]
        width = cfg.window_bits
        top, high, low = Signal(width), Signal(width), Signal(width)
        back = Signal(range(max(cfg.above, cfg.below) + 1))
        m.d.comb += [
            top.eq(Mux(p_high, p_mag << cfg.above, s.mag << cfg.below)),
            back.eq(limit - shift),
            high.eq(top >> back),
            low.eq(Mux(far, Mux(p_high, 1, p_mag.any()), Mux(p_high, s.mag, p_mag))),
        ]
        same, less = Signal(), Signal()
        total = Signal(width, reset_less=True)
        neg, lsb = Signal(reset_less=True), Signal(signed(EXP_BITS), reset_less=True)
        inf, nan = Signal(reset_less=True), Signal(reset_less=True)
        m.d.comb += [same.eq(p_neg == s.neg), less.eq(high < low)]
        high_neg = Mux(p_high, p_neg, s.neg)
        empty = ~s.mag[-1] & ~p_mag.any()
        m.d.sync += [
            total.eq(Mux(same, (high + low)[:width], Mux(less, (low - high)[:width], (high - low)[:width]))),
            # zero: -0 only from two of them; exact cancellation gives +0
            neg.eq(Mux(same, p_neg, Mux(empty | (high == low), 0, high_neg ^ less))),
            lsb.eq(Mux(p_high, p_lsb, s.exp) - shift),
            inf.eq(p_inf | s.inf),
            nan.eq(p_nan | s.nan | (p_inf & s.inf & ~same)),
        ]
        with m.If(s.inf | p_inf):
            m.d.sync += neg.eq(Mux(p_inf, p_neg, s.neg))
        return total, neg, lsb, inf, nan

    def _round(self, m: Module, total: Signal, neg: Signal, lsb: Signal, inf: Signal, nan: Signal) -> None:
        """Second stage: normalise, round to nearest even, pack."""
        width = self.config.window_bits
        found, count = normalise(m, "total", total)
        exp, tiny = Signal(signed(EXP_BITS)), Signal()
        down = Signal(EXP_BITS)
        kept, rest = Signal(25), Signal()
        m.d.comb += [
            exp.eq(lsb - count + (width - 1 + 127)),
            tiny.eq(exp <= 0),
            down.eq(1 - exp),
        ]
        # Below the smallest normal the last bit stays at 2**-149: the significand moves down.
        moved = Signal(50)
        by = Mux(tiny, Mux(down[5:].any(), 31, down[:5]), 0)
        m.d.comb += [
            moved.eq(Cat(C(0, 25), found[width - 25 :]) >> by),
            kept.eq(moved[25:]),
            rest.eq(moved[:25].any() | found[: width - 25].any()),
        ]
        up, packed = Signal(), Signal(EXP_BITS + 23)
        base = Mux(tiny | ~found[-1], 0, exp[: EXP_BITS - 1] - 1)
        m.d.comb += [
            up.eq(kept[0] & (rest | kept[1])),
            packed.eq(Cat(C(0, 23), base) + kept[1:] + up),
        ]
        over = inf | (packed[23:] >= 255)
        out = Signal(32, reset_less=True)
        m.d.sync += out.eq(Mux(nan, CANONICAL_NAN, Cat(Mux(over, C(INFINITY, 31), packed[:31]), neg)))
        m.d.comb += self.psum_out.eq(out)
