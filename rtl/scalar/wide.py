"""Wide floats in hardware: layout, conversion from and to FP32. The numbers are those of models.wide."""

from typing import Any

from amaranth import C, Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data

from models.microcode import Constant
from models.wide import EXP_BITS, EXP_MAX, EXP_MIN, SIG_BITS
from rtl.fp.round import EXP_BITS as FP_EXP_BITS
from rtl.fp.round import normalise, round_pack

FP_FAR = 1000
"""An exponent that is far beyond FP32's on either side, and that FP32's rounding still takes."""


class WideLayout(data.StructLayout):
    """(-1)**neg * sig * 2**(exp - 31); inf and nan overrule. sig 0 has exp 0; infinities and NaN have sig 0, NaN has neg 0."""

    def __init__(self) -> None:
        super().__init__(
            {
                "sig": unsigned(SIG_BITS),
                "exp": signed(EXP_BITS),
                "neg": unsigned(1),
                "inf": unsigned(1),
                "nan": unsigned(1),
            }
        )


WIDE_BITS = WideLayout().size


def wide_bits(c: Constant) -> int:
    """A constant's bits."""
    exp = c.exp % (1 << EXP_BITS)
    return c.sig | exp << SIG_BITS | c.neg << (SIG_BITS + EXP_BITS) | (c.kind << (SIG_BITS + EXP_BITS + 1))


def is_zero(x: Any) -> Value:
    """x is a zero of either sign."""
    return ~(x.sig[-1] | x.inf | x.nan)


def magnitude(x: Any) -> Value:
    """An unsigned number that orders |x|: 0 for zeros, the largest for infinities. NaN means nothing."""
    biased = Cat(x.exp[: EXP_BITS - 1], ~x.exp[EXP_BITS - 1])
    return Mux(is_zero(x), 0, Cat(x.sig, Mux(x.inf, C(-1, EXP_BITS), biased), x.inf))


def finish(m: Module, name: str, *, neg: Value, exp: Value, sig: Value, inf: Value, nan: Value) -> Any:
    """A wide float from parts whose exponent may be out of range (it becomes an infinity or a zero). Combinational."""
    out = Signal(WideLayout(), name=name)
    something = sig[-1] & ~inf & ~nan
    above, below, keep = (
        Signal(name=f"{name}_above"),
        Signal(name=f"{name}_below"),
        Signal(name=f"{name}_keep"),
    )
    m.d.comb += [
        above.eq(something & (exp > EXP_MAX)),
        below.eq(something & (exp < EXP_MIN)),
        keep.eq(something & ~above & ~below),
        out.sig.eq(Mux(keep, sig, 0)),
        out.exp.eq(Mux(keep, exp[:EXP_BITS].as_signed(), 0)),
        out.neg.eq(neg & ~nan),
        out.inf.eq(~nan & (inf | above)),
        out.nan.eq(nan),
    ]
    return out


def from_fp32(m: Module, name: str, bits: Value) -> Any:
    """The wide float of FP32 bits, exact. Combinational."""
    field, frac = bits[23:31], bits[:23]
    mag = Signal(24, name=f"{name}_mag")
    m.d.comb += mag.eq(Cat(frac, field.any()))
    found, count = normalise(m, f"{name}_norm", mag)
    special = field.all()
    exp = Signal(signed(EXP_BITS + 2), name=f"{name}_exp")
    m.d.comb += exp.eq(Mux(field.any(), field, 1) - 127 - count)
    sig = Mux(special, 0, Cat(C(0, 8), found))
    return finish(
        m,
        name,
        neg=bits[31],
        exp=exp,
        sig=sig,
        inf=special & ~frac.any(),
        nan=special & frac.any(),
    )


def to_fp32(m: Module, name: str, x: Any) -> Signal:
    """FP32 bits of a wide float, rounded once. Combinational."""
    lsb = Signal(signed(FP_EXP_BITS), name=f"{name}_lsb")
    near = Mux(x.exp > FP_FAR, FP_FAR, Mux(x.exp < -FP_FAR, -FP_FAR, x.exp))
    m.d.comb += lsb.eq(near - (SIG_BITS - 1))
    return round_pack(m, name, mag=x.sig, neg=x.neg, lsb=lsb, inf=x.inf, nan=x.nan)


def wide_const(c: Constant) -> Const:
    """A constant as a value of WideLayout's bits."""
    return Const(wide_bits(c), WIDE_BITS)
