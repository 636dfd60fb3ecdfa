"""The scalar engine's functions, as microcode over wide floats: the one definition that the model, the RTL and the docs use.

Polynomials are Chebyshev fits computed here, exactly and once, with mpmath; no coefficient is written by hand. Every program is right over the
whole FP32 range: arguments are clamped where the result no longer changes, never where it would.
"""

import enum
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from models import microcode, wide
from models.microcode import Builder, Constant, Op, Step, Value

PRECISION = 160
"""Bits that coefficients are computed with."""
FAR = 1000
"""exp is computed for arguments from -FAR to FAR, far beyond what FP32 holds, and in range for wide floats."""
PHI_SCALE = 4
"""The normal tail is fitted over 1 / (1 + t / PHI_SCALE)."""


class ActFunc(enum.IntEnum):
    """Functions of ACTIVATE. D_*: the derivative with respect to the argument."""

    COPY = 0
    SQUARE = 1
    ABS = 2
    SIGN = 3
    """-1, 1, or the zero that came in; NaN stays."""
    RELU = 4
    RECIPROCAL = 5
    SQRT = 6
    RSQRT = 7
    EXP = 8
    LOG = 9
    SIGMOID = 10
    TANH = 11
    SILU = 12
    GELU = 13
    """x * Phi(x), Phi the normal distribution."""
    GELU_TANH = 14
    """The tanh form: x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x**3))."""
    ERF = 15
    SOFTPLUS = 16
    MISH = 17
    D_RELU = 18
    """1 where x > 0, else 0."""
    D_SIGMOID = 19
    D_TANH = 20
    D_SILU = 21
    D_GELU = 22
    D_SOFTPLUS = 23
    """sigmoid."""


def _fraction(x: Any) -> Fraction:
    number = mpmath.mpf(x)
    man, exp = number.man_exp
    return Fraction(int(man)) * Fraction(2) ** int(exp) * (-1 if number < 0 else 1)


@cache
def _fit(name: str) -> tuple[Fraction, ...]:
    """Coefficients, highest power first, of the polynomial that a program calls `name`."""
    with mpmath.workprec(PRECISION):
        mp = mpmath
        half = mp.mpf(1) / 2

        def at_zero(f: Callable[[Any], Any], limit: Any) -> Callable[[Any], Any]:
            return lambda z: limit if abs(z) < mp.mpf(2) ** -100 else f(z)

        def root(z: Any) -> Any:
            return mp.sqrt(abs(z))

        def tail(u: Any) -> Any:
            t = PHI_SCALE * (1 / (u + half) - 1)
            return mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2 / (u + half)

        ln2 = mp.log(2) / 2 * mp.mpf("1.0001")
        least = 1 / (1 + mp.mpf(15) / PHI_SCALE) - half
        fits = {
            # (e**r - 1) / r
            "expm1": (at_zero(lambda r: mp.expm1(r) / r, mp.mpf(1)), (-ln2, ln2), 8),
            # atanh(s) / s over z = s**2: for log, |s| <= 3 - 2 sqrt(2); for log1p of 0..1, s <= 1/3
            "log": (at_zero(lambda z: mp.atanh(root(z)) / root(z), mp.mpf(1)), (0, mp.mpf("0.02945")), 6),
            "log1p": (at_zero(lambda z: mp.atanh(root(z)) / root(z), mp.mpf(1)), (0, mp.mpf(1) / 9), 10),
            # e**(t**2 / 2) Phi(-t) / w over u = w - 1/2, w = 1 / (1 + t / PHI_SCALE)
            "phi": (tail, (least, half), 14),
            # erf(x) / x over z = x**2, |x| < 0.75; (Phi(t) - 1/2) / t is the same function of t**2 / 2
            "erf": (
                at_zero(lambda z: mp.erf(root(z)) / root(z), 2 / mp.sqrt(mp.pi)),
                (0, mp.mpf("0.5626")),
                9,
            ),
        }
        f, (low, high), count = fits[name]
        return tuple(_fraction(c) for c in reversed(mp.chebyfit(f, [low, high], count, asc=True)))


@cache
def _number(name: str) -> Fraction:
    """A real constant to PRECISION bits."""
    with mpmath.workprec(PRECISION):
        mp = mpmath
        return _fraction(
            {
                "ln2": lambda: mp.log(2),
                "log2e": lambda: 1 / mp.log(2),
                "sqrt_half": lambda: mp.sqrt(mp.mpf(1) / 2),
                "inv_sqrt_2pi": lambda: 1 / mp.sqrt(2 * mp.pi),
                "gelu_1": lambda: 2 * mp.sqrt(2 / mp.pi),
                "gelu_3": lambda: 2 * mp.sqrt(2 / mp.pi) * mp.mpf("0.044715"),
            }[name]()
        )


def _ln2_parts() -> tuple[Fraction, Fraction]:
    """ln 2 as a part of 20 bits, whose product with any exponent is exact, and the rest."""
    high = Fraction(int(_number("ln2") * 2**20), 2**20)
    return high, _number("ln2") - high


def _clamp(b: Builder, x: Value, low: int | None, high: int | None) -> Value:
    if high is not None:
        x = b.minimum(x, b.const(high))
    if low is not None:
        x = b.maximum(x, b.const(low))
    return x


def _reduced(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """(k, r, (e**r - 1)) with x = k ln 2 + r."""
    high, low = _ln2_parts()
    k = b.step(Op.RINT, b.mul(x, b.const(_number("log2e"))))
    r = b.fma(-k, b.const(high), x)
    r = b.fma(-k, b.const(low), r)
    return k, r, b.mul(r, b.polynomial(r, list(_fit("expm1"))))


def _exp(b: Builder, x: Value) -> Value:
    """e**x for -FAR <= x <= FAR."""
    k, _, m = _reduced(b, x)
    return b.step(Op.SCALE, b.add(m, b.const(1)), k)


def _expm1(b: Builder, x: Value) -> Value:
    """e**x - 1, to a relative precision, for 0 <= x <= FAR."""
    k, _, m = _reduced(b, x)
    power = b.step(Op.SCALE, b.const(1), k)
    return b.add(b.step(Op.SCALE, m, k), b.add(power, b.const(-1)))


def _exp_minus_abs(b: Builder, x: Value) -> Value:
    """e**-|x|."""
    return _exp(b, _clamp(b, -abs(x), -FAR, None))


def _sigmoids(b: Builder, x: Value) -> tuple[Value, Value]:
    """(sigmoid(x), sigmoid(-x))."""
    e = _exp_minus_abs(b, x)
    r = b.reciprocal(b.add(e, b.const(1)))
    negative, er = b.less(x, b.const(0)), b.mul(e, r)
    return b.select(negative, er, r), b.select(negative, r, er)


def _sigmoid(b: Builder, x: Value) -> Value:
    e = _exp_minus_abs(b, x)
    r = b.reciprocal(b.add(e, b.const(1)))
    return b.mul(b.select(b.less(x, b.const(0)), e, b.const(1)), r)


def _from_far(b: Builder) -> Value:
    """The argument, -FAR when it is less: what is multiplied by a tail that is zero there, so that -Inf gives -0."""
    return _clamp(b, b.x, -FAR, None)


def _log1p(b: Builder, e: Value) -> Value:
    """log(1 + e), to a relative precision, for 0 <= e <= 1."""
    s = b.mul(e, b.reciprocal(b.add(e, b.const(2))))
    p = b.polynomial(b.mul(s, s), list(_fit("log1p")))
    return b.mul(b.add(s, s), p)


def _log(b: Builder) -> Value:
    x = b.x
    k, f = b.step(Op.EXPONENT, x), b.step(Op.FRACTION, x)
    m = b.add(f, b.const(-1))
    s = b.mul(m, b.reciprocal(b.add(f, b.const(1))))
    p = b.polynomial(b.mul(s, s), list(_fit("log")))
    high, low = _ln2_parts()
    y = b.fma(k, b.const(low), b.mul(b.add(s, s), p))
    y = b.fma(k, b.const(high), y)
    y = b.select(b.less(x, b.const("inf")), y, x)  # infinity and NaN as they are
    y = b.select(x, y, -b.const("inf"))
    return b.select(b.less(x, b.const(0)), b.const("nan"), y)


def _rsqrt(b: Builder, x: Value) -> Value:
    """1/sqrt(x) for finite x > 0."""
    r = b.step(Op.RSQRT_SEED, x)
    half = b.mul(x, b.const(Fraction(1, 2)))
    for _ in range(2):
        error = b.fma(-b.mul(half, r), r, b.const(Fraction(1, 2)))
        r = b.fma(r, error, r)
    return r


def _regular(b: Builder, x: Value, y: Value, special: Value) -> Value:
    """y where x is finite and not zero, else `special`."""
    y = b.select(b.less(abs(x), b.const("inf")), y, special)
    return b.select(x, y, special)


def _roots(b: Builder, y: Value, special: Value) -> Value:
    """y for finite x > 0; `special` for +-0, Inf and NaN; NaN below 0."""
    return b.select(b.less(b.x, b.const(0)), b.const("nan"), _regular(b, b.x, y, special))


def _lower_tail(b: Builder, x: Value) -> tuple[Value, Value]:
    """(Phi(-|x|), e**(-x**2 / 2))."""
    g = _exp(b, _clamp(b, b.mul(b.mul(x, x), b.const(Fraction(-1, 2))), -FAR, None))
    w = b.reciprocal(b.fma(abs(x), b.const(Fraction(1, PHI_SCALE)), b.const(1)))
    p = b.polynomial(b.add(w, b.const(Fraction(-1, 2))), list(_fit("phi")))
    return b.mul(g, b.mul(p, w)), g


def _phi(b: Builder, x: Value) -> tuple[Value, Value]:
    """(Phi(x), e**(-x**2 / 2)), x not too large for x**2 to be a number."""
    q, g = _lower_tail(b, x)
    return b.select(b.less(x, b.const(0)), q, b.add(-q, b.const(1))), g


def _gelu(b: Builder) -> Value:
    x = _from_far(b)
    return b.mul(x, _phi(b, b.minimum(x, b.const(FAR)))[0])


def _erf(b: Builder) -> Value:
    x = _clamp(b, b.x, -FAR, FAR)
    t = b.mul(x, b.const(Fraction(_number("sqrt_half") * 2)))
    q, _ = _lower_tail(b, t)
    far = b.fma(q, b.const(-2), b.const(1))
    near = b.mul(abs(b.x), b.polynomial(b.mul(x, x), list(_fit("erf"))))
    return b.copysign(b.select(b.less(abs(b.x), b.const(Fraction(3, 4))), near, far), b.x)


def _tanh(b: Builder) -> Value:
    m = _expm1(b, _clamp(b, b.mul(abs(b.x), b.const(2)), None, 80))
    return b.copysign(b.mul(m, b.reciprocal(b.add(m, b.const(2)))), b.x)


def _mish(b: Builder) -> Value:
    """x tanh(log(1 + e**x)) = x n / (n + 2 d) with n, d polynomials of e = e**-|x|: no overflow on either side."""
    e = _exp_minus_abs(b, b.x)
    negative = b.less(b.x, b.const(0))
    n = b.select(negative, b.mul(e, b.add(e, b.const(2))), b.fma(e, b.const(2), b.const(1)))
    d = b.select(negative, b.const(2), b.mul(b.mul(e, e), b.const(2)))
    return b.mul(_from_far(b), b.mul(n, b.reciprocal(b.add(n, d))))


def _bell(b: Builder, x: Value) -> Value:
    """e / (1 + e)**2 with e = e**-|x|: sigmoid's derivative."""
    e = _exp_minus_abs(b, x)
    r = b.reciprocal(b.add(e, b.const(1)))
    return b.mul(b.mul(e, r), r)


def _gelu_tanh(b: Builder) -> Value:
    x = _from_far(b)
    near = b.minimum(x, b.const(FAR))
    slope = b.fma(b.mul(near, near), b.const(_number("gelu_3")), b.const(_number("gelu_1")))
    return b.mul(x, _sigmoid(b, b.mul(near, slope)))


def _d_silu(b: Builder) -> Value:
    """s (1 + x (1 - s))."""
    x = _clamp(b, b.x, -FAR, FAR)
    s, rest = _sigmoids(b, x)
    return b.mul(s, b.fma(x, rest, b.const(1)))


def _d_gelu(b: Builder) -> Value:
    """Phi(x) + x e**(-x**2 / 2) / sqrt(2 pi)."""
    x = _clamp(b, b.x, -FAR, FAR)
    p, g = _phi(b, x)
    return b.fma(b.mul(x, g), b.const(_number("inv_sqrt_2pi")), p)


def _sign(b: Builder) -> Value:
    one = b.select(b.x, b.copysign(b.const(1), b.x), b.x)
    return b.select(b.less(b.const(-1), abs(b.x)), one, b.x)  # only NaN is not above -1


def _softplus(b: Builder) -> Value:
    return b.add(b.maximum(b.x, b.const(0)), _log1p(b, _exp_minus_abs(b, b.x)))


def _reciprocal(b: Builder) -> Value:
    return _regular(b, b.x, b.reciprocal(b.x), b.step(Op.RECIPROCAL_SEED, b.x))


_WRITERS: dict[ActFunc, Callable[[Builder], Value]] = {
    ActFunc.COPY: lambda b: b.mul(b.x, b.const(1)),
    ActFunc.SQUARE: lambda b: b.mul(b.x, b.x),
    ActFunc.ABS: lambda b: b.mul(abs(b.x), b.const(1)),
    ActFunc.SIGN: _sign,
    ActFunc.RELU: lambda b: b.maximum(b.const(0), b.x),
    ActFunc.RECIPROCAL: _reciprocal,
    ActFunc.SQRT: lambda b: _roots(b, b.mul(b.x, _rsqrt(b, b.x)), b.x),
    ActFunc.RSQRT: lambda b: _roots(b, _rsqrt(b, b.x), b.step(Op.RSQRT_SEED, b.x)),
    ActFunc.EXP: lambda b: _exp(b, _clamp(b, b.x, -FAR, FAR)),
    ActFunc.LOG: _log,
    ActFunc.SIGMOID: lambda b: _sigmoid(b, b.x),
    ActFunc.TANH: _tanh,
    ActFunc.SILU: lambda b: b.mul(_from_far(b), _sigmoid(b, b.x)),
    ActFunc.GELU: _gelu,
    ActFunc.GELU_TANH: _gelu_tanh,
    ActFunc.ERF: _erf,
    ActFunc.SOFTPLUS: _softplus,
    ActFunc.MISH: _mish,
    ActFunc.D_RELU: lambda b: b.less(b.const(0), b.x),
    ActFunc.D_SIGMOID: lambda b: _bell(b, b.x),
    ActFunc.D_TANH: lambda b: b.mul(_bell(b, b.mul(b.x, b.const(2))), b.const(4)),
    ActFunc.D_SILU: _d_silu,
    ActFunc.D_GELU: _d_gelu,
    ActFunc.D_SOFTPLUS: lambda b: _sigmoid(b, b.x),
}


@cache
def library() -> tuple[dict[ActFunc, tuple[Step, ...]], list[Constant]]:
    """(steps of every function, the constants they share)."""
    constants = [microcode.constant(0)]
    programs = {}
    for f, write in _WRITERS.items():
        b = Builder(constants)
        programs[f] = b.program(write(b))
    return programs, constants


def activate(
    f: ActFunc, x: NDArray[np.float32], factor: np.float32, offset: np.float32 | NDArray[np.float32]
) -> NDArray[np.float32]:
    """f(x * factor + offset), the argument a wide float: product and sum are rounded to 32 bits each, the result once to FP32."""
    programs, constants = library()

    def wides(values: NDArray[np.float32]) -> wide.Wide:
        return wide.from_fp32(np.ascontiguousarray(values, dtype=np.float32).view(np.uint32))

    argument = wide.fma(
        wides(x), wides(np.broadcast_to(factor, x.shape)), wides(np.broadcast_to(offset, x.shape))
    )
    return wide.to_fp32(microcode.run(programs[f], constants, argument)).view(np.float32)


def evaluate(f: ActFunc, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """f of every element, FP32 to FP32, bit for bit as the scalar engine."""
    return activate(f, np.asarray(x, dtype=np.float32), np.float32(1), np.float32(-0.0))
