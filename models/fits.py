"""Coefficients of the scalar engine's programs: Chebyshev fits and constants, computed here, exactly and once, with mpmath."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath

PRECISION = 160
"""Bits that coefficients are computed with."""
PHI_SCALE = 4
"""The normal tail is fitted over 1 / (1 + t / PHI_SCALE)."""
NEAR_ZERO = Fraction(1, 16)
"""Distance from a derivative's zero within which it is a polynomial times that distance."""


def _fraction(x: Any) -> Fraction:
    number = mpmath.mpf(x)
    man, exp = number.man_exp
    return Fraction(int(man)) * Fraction(2) ** int(exp) * (-1 if number < 0 else 1)


def derivative(name: str) -> tuple[Callable[[Any], Any], float]:
    """(a derivative that crosses zero, for mpmath; about where it does)."""
    mp = mpmath

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + mp.exp(-x))

    def silu(x: Any, u: Any, slope: Any) -> Any:
        return sigmoid(u) * (1 + x * sigmoid(-u) * slope)

    def gelu_tanh(x: Any) -> Any:
        a, c = 2 * mp.sqrt(2 / mp.pi), mp.mpf("0.044715")
        return silu(x, a * (x + c * x**3), a * (1 + 3 * c * x**2))

    def mish(x: Any) -> Any:
        soft = mp.log(1 + mp.exp(x))
        return mp.tanh(soft) + x * mp.sech(soft) ** 2 * sigmoid(x)

    return {
        "d_silu": (lambda x: silu(x, x, 1), -1.278),
        "d_gelu": (lambda x: mp.ncdf(x) + x * mp.npdf(x), -0.752),
        "d_gelu_tanh": (gelu_tanh, -0.753),
        "d_mish": (mish, -1.192),
    }[name]


@cache
def crossing(name: str) -> Fraction:
    """Where a derivative crosses zero, to nearly PRECISION bits."""
    f, about = derivative(name)
    with mpmath.workprec(PRECISION + 20):
        return _fraction(mpmath.findroot(f, mpmath.mpf(about)))


@cache
def fit_near_zero(name: str) -> tuple[Fraction, ...]:
    """Coefficients of f(zero + t) / t, highest power first."""
    f, _ = derivative(name)
    with mpmath.workprec(2 * PRECISION):
        mp = mpmath
        zero, tiny = mp.findroot(f, _mpf(crossing(name))), mp.mpf(2) ** -60
        span = _mpf(NEAR_ZERO) * mp.mpf("1.001")
        # close to the zero the quotient's limit is the slope, from both sides
        slope = (f(zero + tiny) - f(zero - tiny)) / (2 * tiny)
        quotient = lambda t: slope if abs(t) < tiny else f(zero + t) / t  # noqa: E731
        return tuple(_fraction(c) for c in reversed(mp.chebyfit(quotient, [-span, span], 7, asc=True)))


def _mpf(x: Fraction) -> Any:
    return mpmath.mpf(x.numerator) / x.denominator


@cache
def fit(name: str) -> tuple[Fraction, ...]:
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
            # sin(y) / y and cos(y) over z = y**2, |y| <= pi / 4, and a little more for arguments that are not reduced
            "sin": (at_zero(lambda z: mp.sin(root(z)) / root(z), mp.mpf(1)), (0, mp.mpf("0.6175")), 6),
            "cos": (lambda z: mp.cos(root(z)), (0, mp.mpf("0.6175")), 6),
            # atan(x) / x over z = x**2, |x| <= tan(pi / 8)
            "atan": (at_zero(lambda z: mp.atan(root(z)) / root(z), mp.mpf(1)), (0, mp.mpf("0.1717")), 8),
        }
        f, (low, high), count = fits[name]
        return tuple(_fraction(c) for c in reversed(mp.chebyfit(f, [low, high], count, asc=True)))


@cache
def number(name: str) -> Fraction:
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
                "half_pi": lambda: mp.pi / 2,
                "tan_pi_8": lambda: mp.sqrt(2) - 1,
                "two_over_sqrt_pi": lambda: 2 / mp.sqrt(mp.pi),
            }[name]()
        )


def ln2_parts() -> tuple[Fraction, Fraction]:
    """ln 2 as a part of 20 bits, whose product with any exponent is exact, and the rest."""
    high = Fraction(int(number("ln2") * 2**20), 2**20)
    return high, number("ln2") - high
