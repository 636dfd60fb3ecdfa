"""The scalar engine's functions, as microcode over wide floats: the one definition that the model, the RTL and the docs use.

Polynomials are those of models.fits; no coefficient is written by hand. Every program is right over the
whole FP32 range: arguments are clamped where the result no longer changes, never where it would.
"""

import enum
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from models import compiled, microcode, wide
from models.fits import NEAR_ZERO, PHI_SCALE, crossing, fit, fit_near_zero, ln2_parts, number
from models.microcode import Builder, Constant, Op, Step, Value

Table = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64], int | None]
"""A program for `compiled.run`: steps, exps, sigs, signs, and PARAMETER's number."""
FAR = 1000
"""exp is computed for arguments from -FAR to FAR, far beyond what FP32 holds, and in range for wide floats."""


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
    PRELU = 24
    """x * slope where x < 0, else x; the slope is the instruction's imm1."""
    D_PRELU = 25
    """1 where x > 0, else the slope."""
    SIN = 26
    COS = 27
    ARCTAN = 28
    D_ERF = 29
    D_GELU_TANH = 30
    D_MISH = 31


SLOPED = (ActFunc.PRELU, ActFunc.D_PRELU)
"""Functions whose parameter is imm1; their bias is src1's, or -0."""


def _clamp(b: Builder, x: Value, low: int | None, high: int | None) -> Value:
    if high is not None:
        x = b.minimum(x, b.const(high))
    if low is not None:
        x = b.maximum(x, b.const(low))
    return x


def _reduced(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """(k, r, (e**r - 1)) with x = k ln 2 + r."""
    high, low = ln2_parts()
    k = b.step(Op.RINT, b.mul(x, b.const(number("log2e"))))
    r = b.fma(-k, b.const(high), x)
    r = b.fma(-k, b.const(low), r)
    return k, r, b.mul(r, b.polynomial(r, list(fit("expm1"))))


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
    p = b.polynomial(b.mul(s, s), list(fit("log1p")))
    return b.mul(b.add(s, s), p)


def _log(b: Builder) -> Value:
    x = b.x
    k, f = b.step(Op.EXPONENT, x), b.step(Op.FRACTION, x)
    m = b.add(f, b.const(-1))
    s = b.mul(m, b.reciprocal(b.add(f, b.const(1))))
    p = b.polynomial(b.mul(s, s), list(fit("log")))
    high, low = ln2_parts()
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
    p = b.polynomial(b.add(w, b.const(Fraction(-1, 2))), list(fit("phi")))
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
    t = b.mul(x, b.const(Fraction(number("sqrt_half") * 2)))
    q, _ = _lower_tail(b, t)
    far = b.fma(q, b.const(-2), b.const(1))
    near = b.mul(abs(b.x), b.polynomial(b.mul(x, x), list(fit("erf"))))
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
    slope = b.fma(b.mul(near, near), b.const(number("gelu_3")), b.const(number("gelu_1")))
    return b.mul(x, _sigmoid(b, b.mul(near, slope)))


def _across_zero(b: Builder, name: str, value: Value) -> Value:
    """`value`, but near the derivative's zero a product with the distance from it, so that it has a relative accuracy there too."""
    zero = crossing(name)
    nearest = microcode.constant(zero)
    rest = zero - microcode.exact(nearest)
    t = b.add(b.add(b.x, -b.const(nearest)), b.const(-rest))  # the first difference is exact
    close = b.mul(t, b.polynomial(t, list(fit_near_zero(name))))
    return b.select(b.less(abs(t), b.const(NEAR_ZERO)), close, value)


def _d_silu(b: Builder) -> Value:
    """s (1 + x (1 - s))."""
    x = _clamp(b, b.x, -FAR, FAR)
    s, rest = _sigmoids(b, x)
    return _across_zero(b, "d_silu", b.mul(s, b.fma(x, rest, b.const(1))))


def _d_gelu(b: Builder) -> Value:
    """Phi(x) + x e**(-x**2 / 2) / sqrt(2 pi)."""
    x = _clamp(b, b.x, -FAR, FAR)
    p, g = _phi(b, x)
    return _across_zero(b, "d_gelu", b.fma(b.mul(x, g), b.const(number("inv_sqrt_2pi")), p))


def _prelu(b: Builder) -> Value:
    return b.select(b.less(b.x, b.const(0)), b.mul(b.x, b.parameter), b.x)


def _circle(b: Builder) -> tuple[Value, Value, Value]:
    """(quarter turns k, cos(y), sin(y)) of |x| = k pi / 2 + y, k from 0 to 3, |y| <= pi / 4; NaN for infinities and NaN."""
    small = b.less(abs(b.x), b.const(Fraction(3, 4)))
    y = b.mul(b.step(Op.TURN, b.x), b.const(number("half_pi")))
    y = b.select(small, abs(b.x), y)
    k = b.select(small, b.const(0), b.step(Op.QUADRANT, b.x))
    z = b.mul(y, y)
    return k, b.polynomial(z, list(fit("cos"))), b.mul(y, b.polynomial(z, list(fit("sin"))))


def _odd(b: Builder, k: Value) -> Value:
    """Not zero where k, from 0 to 3, is odd."""
    half = b.step(Op.RINT, b.mul(k, b.const(Fraction(1, 2))))
    return b.fma(half, b.const(-2), k)


def _sin(b: Builder) -> Value:
    k, cosine, sine = _circle(b)
    value = b.select(_odd(b, k), cosine, sine)
    value = b.select(b.less(b.const(1), k), -value, value)
    return b.mul(value, b.copysign(b.const(1), b.x))


def _cos(b: Builder) -> Value:
    k, cosine, sine = _circle(b)
    value = b.select(_odd(b, k), sine, cosine)
    from_middle = b.add(k, b.const(Fraction(-3, 2)))
    return b.select(b.less(abs(from_middle), b.const(1)), -value, value)


def _arctan(b: Builder) -> Value:
    """atan(n / d) + base: |x| itself, (|x| - 1) / (|x| + 1) + pi / 4 in the middle, -1 / |x| + pi / 2 far out."""
    x = b.minimum(
        abs(b.x), b.const(2**100)
    )  # where the result no longer changes, and 1 / x is still a number
    # x < tan(pi / 8), and x < 1 / tan(pi / 8)
    near = b.less(x, b.const(number("tan_pi_8")))
    middle = b.less(x, b.const(number("tan_pi_8") + 2))
    n = b.select(near, x, b.select(middle, b.add(x, b.const(-1)), -b.const(1)))
    d = b.select(near, b.const(1), b.select(middle, b.add(x, b.const(1)), x))
    quarters = b.select(
        near, b.const(0), b.select(middle, b.const(number("half_pi") / 2), b.const(number("half_pi")))
    )
    r = b.mul(n, b.reciprocal(d))
    p = b.polynomial(b.mul(r, r), list(fit("atan")))
    return b.copysign(b.fma(r, p, quarters), b.x)


def _d_erf(b: Builder) -> Value:
    """2 / sqrt(pi) e**(-x**2)."""
    g = _exp(b, _clamp(b, -b.mul(b.x, b.x), -FAR, None))
    return b.mul(g, b.const(number("two_over_sqrt_pi")))


def _d_gelu_tanh(b: Builder) -> Value:
    """s (1 + x (1 - s) u'), s = sigmoid(u), u = gelu_1 x + gelu_3 x**3."""
    x = _clamp(b, b.x, -FAR, FAR)
    square = b.mul(x, x)
    u = b.mul(x, b.fma(square, b.const(number("gelu_3")), b.const(number("gelu_1"))))
    s, rest = _sigmoids(b, u)
    slope = b.fma(square, b.const(number("gelu_3") * 3), b.const(number("gelu_1")))
    return _across_zero(b, "d_gelu_tanh", b.mul(s, b.fma(b.mul(x, slope), rest, b.const(1))))


def _d_mish(b: Builder) -> Value:
    """(n + 4 x m / d) / d: tanh(log(1 + e**x)) = n / d and its derivative 4 m / d**2, with polynomials n, d, m of e = e**-|x|."""
    x = _clamp(b, b.x, -FAR, FAR)
    e = _exp_minus_abs(b, x)
    negative, square = b.less(x, b.const(0)), b.mul(e, e)
    far = b.fma(e, b.const(2), b.const(1))
    near = b.fma(e, b.const(2), square)
    n = b.select(negative, near, far)
    d = b.select(negative, b.add(near, b.const(2)), b.fma(square, b.const(2), far))
    m = b.mul(b.select(negative, e, square), b.add(e, b.const(1)))
    r = b.reciprocal(d)
    term = b.mul(b.mul(b.mul(m, r), x), b.const(4))
    return _across_zero(b, "d_mish", b.mul(b.add(n, term), r))


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
    ActFunc.PRELU: _prelu,
    ActFunc.D_PRELU: lambda b: b.select(b.less(b.const(0), b.x), b.const(1), b.parameter),
    ActFunc.SIN: _sin,
    ActFunc.COS: _cos,
    ActFunc.ARCTAN: _arctan,
    ActFunc.D_ERF: _d_erf,
    ActFunc.D_GELU_TANH: _d_gelu_tanh,
    ActFunc.D_MISH: _d_mish,
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
    f: ActFunc,
    x: NDArray[np.float32],
    factor: np.float32,
    offset: np.float32 | NDArray[np.float32],
    parameter: np.float32 | None = None,
) -> NDArray[np.float32]:
    """f(x * factor + offset), the argument a wide float: product and sum are rounded to 32 bits each, the result once to FP32.

    x: [rows, n], offset [rows, 1] or one number, or x of any shape and one number. `parameter`: the slope of functions that are SLOPED; +0 when there is none.
    """
    table = _table(f)
    if table is None or np.shape(offset) not in ((), (x.shape[0], 1), (1, 1)):
        return activated(f, x, factor, offset, parameter)
    steps, exps, sigs, signs, slope = table
    if parameter is not None and slope is not None:
        given = _parameter(parameter)
        exps, sigs, signs = exps.copy(), sigs.copy(), signs.copy()
        exps[slope], sigs[slope], signs[slope] = given.exp, given.sig, (given.neg, given.kind)
    added = np.asarray(offset, dtype=np.float32).reshape(-1, 1).view(np.uint32)
    bits = x.view(np.uint32) if x.ndim == 2 else x.view(np.uint32).reshape(1, -1)
    out = np.empty(bits.shape, dtype=np.uint32)
    compiled.run(steps, exps, sigs, signs, bits, factor.view(np.uint32), added, out)
    return out.view(np.float32).reshape(x.shape)


@cache
def _table(f: ActFunc) -> Table | None:
    """A program as `compiled.run` takes it; None where it has steps that are not compiled.

    With constants of its own, not the library's: so only the polynomials that it has are fitted.
    """
    constants = [microcode.constant(0)]
    b = Builder(constants)
    steps = b.program(_WRITERS[f](b))
    if not {s.op for s in steps} <= compiled.OPS:
        return None
    every = [constants[0]] * microcode.REGISTERS + constants
    slope = every.index(microcode.PARAMETER) if microcode.PARAMETER in every else None
    numbers = [constants[0] if c == microcode.PARAMETER else c for c in every]

    def operand(o: microcode.Operand) -> tuple[int, int, int]:
        return o.index + (microcode.REGISTERS if o.constant else 0), int(o.negate), int(o.absolute)

    return (
        np.array([(s.op, s.target, *operand(s.a), *operand(s.b), *operand(s.c)) for s in steps]),
        np.array([c.exp for c in numbers], dtype=np.int64),
        np.array([c.sig for c in numbers], dtype=np.uint64),
        np.array([(c.neg, c.kind) for c in numbers], dtype=np.int64),
        slope,
    )


def _parameter(value: np.float32) -> Constant:
    p = wide.from_fp32(np.array([value], dtype=np.float32).view(np.uint32))
    return Constant(int(p.neg[0]), int(p.exp[0]), int(p.sig[0]), 2 if p.nan[0] else int(p.inf[0]))


def activated(
    f: ActFunc,
    x: NDArray[np.float32],
    factor: np.float32,
    offset: np.float32 | NDArray[np.float32],
    parameter: np.float32 | None = None,
) -> NDArray[np.float32]:
    """The definition of `activate`, for arrays of any shape."""
    programs, constants = library()

    def wides(values: NDArray[np.float32]) -> wide.Wide:
        return wide.from_fp32(np.ascontiguousarray(values, dtype=np.float32).view(np.uint32))

    argument = wide.fma(
        wides(x), wides(np.broadcast_to(factor, x.shape)), wides(np.broadcast_to(offset, x.shape))
    )
    given = None if parameter is None else _parameter(parameter)
    return wide.to_fp32(microcode.run(programs[f], constants, argument, given)).view(np.float32)


def evaluate(f: ActFunc, x: NDArray[np.float32], slope: float | None = None) -> NDArray[np.float32]:
    """f of every element, FP32 to FP32, bit for bit as the scalar engine; `slope` for functions that are SLOPED."""
    parameter = None if slope is None else np.float32(slope)
    return activate(f, np.asarray(x, dtype=np.float32), np.float32(1), np.float32(-0.0), parameter)
