"""FP32 divider: three quotient bits a cycle."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from rtl.fp.round import EXP_BITS, round_pack
from rtl.tiles import ClockedTile, TileLibrary

SIG = 24
STEP = 3
"""Quotient bits a cycle."""
QUOTIENT = 27
"""Quotient bits: with those that are left of a number in [1/2, 2) and a sticky bit it can be rounded."""
PACE = QUOTIENT // STEP + 1
"""Cycles from one division to the next."""
LATENCY = PACE + 1
"""Cycles from `a` and `b` to `o`."""
assert QUOTIENT % STEP == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fp32DivideConfig:
    """Nothing to choose."""


class Fp32Divide(ClockedTile):
    """o = RNE_fp32(a / b). Subnormals kept, NaN canonical, x / 0 = Inf, 0 / 0 and Inf / Inf NaN.

    start: takes a and b; not again for PACE cycles. The result is there LATENCY cycles later, and stays until the next one's.
    """

    def __init__(self, config: Fp32DivideConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"start": In(1), "a": In(32), "b": In(32), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        rest = Signal(SIG + 1, reset_less=True)
        divisor = Signal(SIG, reset_less=True)
        quotient = Signal(QUOTIENT, reset_less=True)
        lsb = Signal(signed(EXP_BITS), reset_less=True)
        neg, inf, nan, zero = (Signal(name=n, reset_less=True) for n in ("neg", "inf", "nan", "zero"))
        left = Signal(range(PACE + 1))
        out = Signal(32, reset_less=True)
        a, b = self._parts(m, "a", self.a), self._parts(m, "b", self.b)
        with m.If(self.start):
            m.d.sync += [
                rest.eq(a["sig"]),
                divisor.eq(b["sig"]),
                lsb.eq(a["exp"] - b["exp"] - QUOTIENT),
                neg.eq(self.a[31] ^ self.b[31]),
                zero.eq(a["zero"] | b["inf"]),
                inf.eq(a["inf"] | b["zero"]),
                nan.eq(a["nan"] | b["nan"] | (a["zero"] & b["zero"]) | (a["inf"] & b["inf"])),
                left.eq(PACE),
            ]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        value: Value = rest
        bits: list[Value] = []
        for n in range(STEP):
            fits = Signal(name=f"fits{n}")
            after = Signal(SIG + 1, name=f"rest{n}")
            m.d.comb += [
                fits.eq(value >= divisor),
                after.eq(Mux(fits, value - divisor, value)[:SIG] << 1),
            ]
            bits.insert(0, fits)
            value = after
        with m.If(left > 1):
            m.d.sync += [rest.eq(value), quotient.eq(Cat(*bits, quotient))]
        mag = Mux(zero, C(0, QUOTIENT + 1), Cat(rest.any(), quotient))
        rounded = round_pack(m, "quotient", mag=mag, neg=neg, lsb=lsb, inf=inf, nan=nan)
        with m.If(left == 1):
            m.d.sync += out.eq(rounded)
        m.d.comb += self.o.eq(out)
        return m

    def _parts(self, m: Module, name: str, x: Value) -> dict[str, Value]:
        """Significand with its top bit set, exponent of that bit's right neighbour's end (value = sig * 2^(exp - 23)), classes."""
        exp, frac = x[23:31], x[:23]
        sig, lead = Signal(SIG, name=f"{name}_sig"), Signal(range(SIG), name=f"{name}_lead")
        raw = Signal(SIG, name=f"{name}_raw")
        m.d.comb += [raw.eq(Cat(frac, exp.any())), sig.eq((raw << lead)[:SIG])]
        for bit in range(SIG):
            with m.If(raw[bit]):
                m.d.comb += lead.eq(SIG - 1 - bit)
        power = Signal(signed(EXP_BITS), name=f"{name}_power")
        m.d.comb += power.eq(Mux(exp.any(), exp, 1) - lead)
        return {
            "sig": sig,
            "exp": power,
            "zero": ~x[:31].any(),
            "inf": exp.all() & ~frac.any(),
            "nan": exp.all() & frac.any(),
        }
