"""FP32 multiplier."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from rtl.fp.round import EXP_BITS, round_pack
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 2
"""Cycles from `a` and `b` to `o`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fp32MulConfig:
    """Nothing to choose."""


class Fp32Mul(ClockedTile):
    """o = RNE_fp32(a * b), LATENCY cycles later; one a cycle, never stalls. Subnormals kept, NaN canonical, zeros signed."""

    def __init__(self, config: Fp32MulConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"a": In(32), "b": In(32), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        product = Signal(48, reset_less=True)
        lsb = Signal(signed(EXP_BITS), reset_less=True)
        neg, inf, nan = (Signal(name=n, reset_less=True) for n in ("neg", "inf", "nan"))

        def parts(x: Value) -> tuple[Value, Value, Value, Value, Value]:
            exp, frac = x[23:31], x[:23]
            mag = Cat(frac, exp.any())
            last = Cat(exp, C(0, 1)).as_signed() - Mux(exp.any(), 150, 149)
            return mag, last, ~x[:31].any(), exp.all() & ~frac.any(), exp.all() & frac.any()

        a_mag, a_lsb, a_zero, a_inf, a_nan = parts(self.a)
        b_mag, b_lsb, b_zero, b_inf, b_nan = parts(self.b)
        m.d.sync += [
            product.eq(a_mag * b_mag),
            lsb.eq(a_lsb + b_lsb),
            neg.eq(self.a[31] ^ self.b[31]),
            inf.eq(a_inf | b_inf),
            nan.eq(a_nan | b_nan | (a_inf & b_zero) | (a_zero & b_inf)),
        ]
        out = Signal(32, reset_less=True)
        m.d.sync += out.eq(round_pack(m, "product", mag=product, neg=neg, lsb=lsb, inf=inf, nan=nan))
        m.d.comb += self.o.eq(out)
        return m
