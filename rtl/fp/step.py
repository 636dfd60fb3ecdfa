"""FP32 step: a + S in one rounding, S being an exact number of many bits. Every PE's accumulate, and the FP32 adder."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.fp.round import EXP_BITS, round_pack
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 2
"""Cycles from `a` and `addend` to `o`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepConfig:
    """`bits` of the addend's magnitude. `moves`: the step can also hand on 32 bits as they are."""

    bits: int
    moves: bool = False

    def __post_init__(self) -> None:
        if self.bits < 4:
            raise ValueError(f"bits must be at least 4, not {self.bits!r}")

    @property
    def below(self) -> int:
        """Most positions that `a` is kept exact below the addend's last bit.

        Further down it is smaller than the addend's last bit, and is told by a sticky bit; the rounding position of the result must
        lie above that bit, hence the second bound for narrow addends.
        """
        return max(23, 49 - self.bits)

    @property
    def above(self) -> int:
        """Most positions that the last bit of `a` is kept exact above the addend's last bit.

        Further up the addend is below half of the last place of anything near `a`, and is told by a sticky bit.
        """
        return self.bits + 1

    @property
    def window(self) -> int:
        """Bits of the aligned sum."""
        return max(24 + self.above, self.bits + self.below + 1)


class AddendLayout(data.StructLayout):
    """S = (-1)**neg * mag * 2**exp; inf and nan overrule. A zero has its sign.

    Either the top bit of `mag` is set, or mag is zero, or exp is FP32's least, -149: then `a` has no bits below it.
    move (where the step has it): nothing else counts, the result is the step's `word`.
    """

    def __init__(self, config: StepConfig):
        members: dict[str, Any] = {
            "mag": unsigned(config.bits),
            "neg": unsigned(1),
            "exp": signed(EXP_BITS),
            "inf": unsigned(1),
            "nan": unsigned(1),
        }
        super().__init__(members | ({"move": unsigned(1)} if config.moves else {}))


class Fp32Step(ClockedTile):
    """o = RNE_fp32(a + S): IEEE 754-2019 fused multiply-add of an exact product sum, subnormals kept, NaN canonical.

    Ports: a, o: FP32. addend: AddendLayout, sampled together with `a`. Latency: LATENCY cycles, one step a cycle, never stalls.
    word (where the step moves): sampled together with `a`; with addend.move it is `o`, bit for bit, in the same time.
    """

    def __init__(self, config: StepConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {"a": In(32), "addend": In(AddendLayout(config)), "o": Out(32)}
        super().__init__(ports | ({"word": In(32)} if config.moves else {}))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        total, neg, lsb, inf, nan = self._align(m)
        out = Signal(32, reset_less=True)
        rounded: Value = round_pack(m, "total", mag=total, neg=neg, lsb=lsb, inf=inf, nan=nan)
        if self.config.moves:
            # The word takes the sum's register between the two stages.
            moved = Signal(reset_less=True)
            m.d.sync += moved.eq(self.addend.move)
            with m.If(self.addend.move):
                m.d.sync += total.eq(self.word)
            rounded = Mux(moved, total[:32], rounded)
        m.d.sync += out.eq(rounded)
        m.d.comb += self.o.eq(out)
        return m

    def _align(self, m: Module) -> tuple[Signal, Signal, Signal, Signal, Signal]:
        """First stage: registers with |sum|, its sign, LSB exponent, Inf and NaN."""
        cfg, s = self.config, self.addend
        a_neg, a_exp, a_frac = self.a[31], self.a[23:31], self.a[:23]
        a_mag = Signal(24)
        a_lsb, lead = Signal(signed(EXP_BITS)), Signal(signed(EXP_BITS))
        a_inf, a_nan = Signal(), Signal()
        m.d.comb += [
            a_mag.eq(Cat(a_frac, a_exp.any())),
            a_lsb.eq(Cat(a_exp, C(0, 1)).as_signed() - Mux(a_exp.any(), 150, 149)),
            lead.eq(a_lsb - s.exp),
            a_inf.eq(a_exp.all() & ~a_frac.any()),
            a_nan.eq(a_exp.all() & a_frac.any()),
        ]
        # The operand whose last bit weighs more is shifted left, up to where the other one is nothing but sticky.
        s_zero, a_high, far = Signal(), Signal(), Signal()
        distance = Signal(EXP_BITS)
        amounts = range(max(cfg.above, cfg.below) + 1)
        limit, shift, back = Signal(amounts), Signal(amounts), Signal(amounts)
        m.d.comb += [
            s_zero.eq(~s.mag.any()),
            a_high.eq(s_zero | ~lead[-1]),
            distance.eq(Mux(lead[-1], -lead, lead)),
            limit.eq(Mux(a_high, cfg.above, cfg.below)),
            far.eq(~s_zero & (distance > limit)),
            shift.eq(Mux(s_zero, 0, Mux(far, limit, distance))),
            back.eq(limit - shift),
        ]
        width = cfg.window
        top, high, low = Signal(width), Signal(width), Signal(width)
        m.d.comb += [
            top.eq(Mux(a_high, a_mag << cfg.above, s.mag << cfg.below)),
            high.eq(top >> back),
            low.eq(Mux(far, Mux(a_high, 1, a_mag.any()), Mux(a_high, s.mag, a_mag))),
        ]
        same, less = Signal(), Signal()
        total = Signal(width, reset_less=True)
        neg, lsb = Signal(reset_less=True), Signal(signed(EXP_BITS), reset_less=True)
        inf, nan = Signal(reset_less=True), Signal(reset_less=True)
        high_neg = Mux(a_high, a_neg, s.neg)
        m.d.comb += [same.eq(a_neg == s.neg), less.eq(high < low)]
        m.d.sync += [
            total.eq(Mux(same, (high + low)[:width], Mux(less, (low - high)[:width], (high - low)[:width]))),
            # zero: -0 only from two of them; exact cancellation gives +0
            neg.eq(Mux(same, a_neg, Mux(high == low, 0, high_neg ^ less))),
            lsb.eq(Mux(a_high, a_lsb, s.exp) - shift),
            inf.eq(a_inf | s.inf),
            nan.eq(a_nan | s.nan | (a_inf & s.inf & ~same)),
        ]
        with m.If(s.inf | a_inf):
            m.d.sync += neg.eq(Mux(a_inf, a_neg, s.neg))
        return total, neg, lsb, inf, nan
