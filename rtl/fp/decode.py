"""Raw element to FP32."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from models.formats import E8M0_BIAS, FLOATS, INTS, DType, FloatFormat
from rtl.fp.round import EXP_BITS, round_pack
from rtl.interfaces import mac_code_bits
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 2
"""Cycles from `raw` to `o`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeConfig:
    """Nothing to choose: all types that are read element by element."""


class Decode(ClockedTile):
    """FP32 value of a raw element, LATENCY cycles later; one a cycle, never stalls.

    Ports: raw (zero-extended element), dtype (DType code), o. Exact but for INT32 and UINT32, which are rounded to nearest even. NaN
    comes out canonical. A packed type gives +0.
    """

    def __init__(self, config: DecodeConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"raw": In(32), "dtype": In(mac_code_bits()), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        mag = Signal(32, reset_less=True)
        lsb = Signal(signed(EXP_BITS), reset_less=True)
        neg, inf, nan = (Signal(name=n, reset_less=True) for n in ("neg", "inf", "nan"))
        m.d.sync += [mag.eq(0), lsb.eq(0), neg.eq(0), inf.eq(0), nan.eq(0)]
        with m.Switch(self.dtype):
            for dtype, fmt in FLOATS.items():
                with m.Case(dtype.value):
                    m.d.sync += self._float(fmt, mag, lsb, neg, inf, nan)
            for dtype, (bits, is_signed) in INTS.items():
                with m.Case(dtype.value):
                    value = self.raw[:bits]
                    sign = value[-1] if is_signed else C(0, 1)
                    m.d.sync += [mag.eq(Mux(sign, (-value)[:bits], value)), neg.eq(sign)]
            with m.Case(DType.E8M0.value):
                m.d.sync += [mag.eq(1), lsb.eq(self.raw[:8] - E8M0_BIAS), nan.eq(self.raw[:8].all())]
        out = Signal(32, reset_less=True)
        m.d.sync += out.eq(round_pack(m, "mag", mag=mag, neg=neg, lsb=lsb, inf=inf, nan=nan))
        m.d.comb += self.o.eq(out)
        return m

    def _float(
        self, fmt: FloatFormat, mag: Signal, lsb: Signal, neg: Signal, inf: Signal, nan: Signal
    ) -> list[Any]:
        raw = self.raw[: fmt.width]
        frac, exp = raw[: fmt.man_bits], raw[fmt.man_bits : -1]
        normal = exp.any()
        if fmt.has_inf:
            is_inf: Value = exp.all() & ~frac.any()
            is_nan: Value = exp.all() & frac.any()
        else:
            is_inf, is_nan = C(0, 1), raw[:-1].all()
        return [
            mag.eq(Cat(frac, normal)),
            lsb.eq(Cat(exp, C(0, 1)).as_signed() + Mux(normal, 0, 1) - (fmt.bias + fmt.man_bits)),
            neg.eq(raw[-1]),
            inf.eq(is_inf),
            nan.eq(is_nan),
        ]
