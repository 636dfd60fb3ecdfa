"""FP32 to raw element, in one rounding."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from models.formats import FLOATS, INTS, PACKED, FloatFormat
from rtl.interfaces import mac_code_bits
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 2
"""Cycles from `x` to `raw`."""
POINT = 32
"""Fraction bits of the fixed-point number that is rounded."""
LEFT = 8
"""Positions that a significand is shifted left, so that the largest integers need no further left shift."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodeConfig:
    """Nothing to choose: all types that are written element by element."""


class Encode(ClockedTile):
    """Raw element of an FP32 value, LATENCY cycles later; one a cycle, never stalls.

    Ports: x, dtype (DType code), saturate, raw (zero-extended). Round to nearest even, subnormals kept. Floats: overflow and Inf become
    the format's overflow, or with `saturate` its largest finite value; NaN the canonical one. Integers saturate, NaN is 0. An x4 type stands for one of its elements, and always saturates. Other types give 0.

    Every case is one right shift: a significand, as an integer of units of the result's last place, is rounded at the binary point.
    """

    def __init__(self, config: EncodeConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"x": In(32), "dtype": In(mac_code_bits()), "saturate": In(1), "raw": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        exp, frac = self.x[23:31], self.x[:23]
        special = exp.all()
        least = Signal(8)  # a subnormal's exponent is that of the least normal
        m.d.comb += least.eq(Mux(exp.any(), exp, 1))

        # first stage: the shift, and where the result's exponent starts
        sig = Signal(24, reset_less=True)
        shift = Signal(6, reset_less=True)
        base = Signal(32, reset_less=True)
        neg, nan, over, is_float = (
            Signal(name=n, reset_less=True) for n in ("neg", "nan", "over", "is_float")
        )
        limit, overflow, nan_code = (
            Signal(32, name=n, reset_less=True) for n in ("limit", "overflow", "nan_code")
        )
        sign_bit = Signal(32, reset_less=True)
        m.d.sync += [
            sig.eq(Cat(frac, exp.any())),
            neg.eq(self.x[31]),
            nan.eq(special & frac.any()),
            over.eq(special & ~frac.any()),
            [r.eq(0) for r in (shift, base, limit, overflow, nan_code, sign_bit, is_float)],
        ]
        with m.Switch(self.dtype):
            for dtype, fmt in (FLOATS | PACKED).items():
                with m.Case(dtype.value):
                    m.d.sync += self._float(
                        m, dtype.name, fmt, least, shift, base, limit, overflow, nan_code, sign_bit
                    )
                    m.d.sync += is_float.eq(1)
            for dtype, (bits, is_signed) in INTS.items():
                with m.Case(dtype.value):
                    m.d.sync += self._integer(
                        bits, is_signed, least, shift, limit, over, special & ~frac.any()
                    )

        # second stage: shift, round, compare
        fixed = Signal(2 * POINT)
        whole, code = Signal(POINT + 1), Signal(POINT + 2)
        m.d.comb += [
            fixed.eq(Cat(C(0, POINT + LEFT), sig) >> shift),
            whole.eq(fixed[POINT:] + (fixed[POINT - 1] & (fixed[: POINT - 1].any() | fixed[POINT]))),
            code.eq(whole + base),
        ]
        beyond = over | (code > limit)
        integer = Mux(beyond, limit, code)[:32]
        value = Signal(32)
        with m.If(is_float):
            m.d.comb += value.eq(Mux(beyond, overflow, code[:32] | Mux(neg, sign_bit, 0)))
        with m.Else():
            m.d.comb += value.eq(Mux(neg, (-integer)[:32], integer))
        mask = Signal(32, reset_less=True)
        m.d.sync += mask.eq(0xFFFFFFFF)
        with m.Switch(self.dtype):
            for dtype, (bits, _) in INTS.items():
                with m.Case(dtype.value):
                    m.d.sync += mask.eq((1 << bits) - 1)
        out = Signal(32, reset_less=True)
        m.d.sync += out.eq(Mux(nan, nan_code, value & mask))
        m.d.comb += self.raw.eq(out)
        return m

    def _float(
        self,
        m: Module,
        name: str,
        fmt: FloatFormat,
        exp: Value,
        shift: Signal,
        base: Signal,
        limit: Signal,
        overflow: Signal,
        nan_code: Signal,
        sign_bit: Signal,
    ) -> list[Any]:
        """`base` is the result's exponent field where the significand's hidden bit adds one, 0 for its subnormals."""
        first = 128 - fmt.bias  # FP32 exponent field of the least normal
        sign = 1 << (fmt.width - 1)
        normal = exp >= first
        deep = Signal(9, name=f"deep_{name}")
        m.d.comb += deep.eq(LEFT + 23 - fmt.man_bits + Mux(normal, 0, (first - exp)[:9]))
        infinite = ((1 << fmt.exp_bits) - 1) << fmt.man_bits if fmt.has_inf else fmt.nan
        saturate = self.saturate | (self.dtype >= min(PACKED).value)
        top = Mux(saturate, fmt.max_code, infinite or 0)
        signed_top = Mux(self.x[31] & (saturate | bool(fmt.has_inf)), top | sign, top)
        return [
            shift.eq(Mux(deep > 63, 63, deep[:6])),
            base.eq(Mux(normal, (exp - first)[:8] << fmt.man_bits, 0)),
            limit.eq(fmt.max_code),
            overflow.eq(signed_top),
            nan_code.eq(fmt.nan or 0),
            sign_bit.eq(sign),
        ]

    def _integer(
        self, bits: int, is_signed: bool, exp: Value, shift: Signal, limit: Signal, over: Signal, inf: Value
    ) -> list[Any]:
        """The last place is 1: an FP32 significand's is 2**(exp - 150)."""
        top = 150 + LEFT
        most = (1 << (bits - 1)) - 1 if is_signed else (1 << bits) - 1
        least = 1 << (bits - 1) if is_signed else 0
        distance = (top - exp)[:8]
        return [
            shift.eq(Mux(exp > top, 0, Mux(distance > 63, 63, distance[:6]))),
            limit.eq(Mux(self.x[31], least, most)),
            over.eq(inf | (exp > top)),
        ]
