"""Coefficients: what the fits promise, in exact arithmetic."""

import mpmath
import pytest

from models import fits
from tb.lib.simulate import rng


def _value(coefficients, x):
    total = mpmath.mpf(0)
    for c in coefficients:
        total = total * x + fits._mpf(c)
    return total


@pytest.mark.parametrize(
    ("name", "f", "low", "high"),
    [
        ("expm1", lambda x: mpmath.expm1(x) / x, -0.34, 0.34),
        ("sin", lambda z: mpmath.sin(mpmath.sqrt(z)) / mpmath.sqrt(z), 0.001, 0.617),
        ("cos", lambda z: mpmath.cos(mpmath.sqrt(z)), 0.001, 0.617),
        ("atan", lambda z: mpmath.atan(mpmath.sqrt(z)) / mpmath.sqrt(z), 0.001, 0.1715),
        ("erf", lambda z: mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z), 0.001, 0.562),
    ],
)
def test_fits_are_right_to_wide_floats(name, f, low, high):
    r = rng()
    with mpmath.workprec(120):
        for _ in range(200):
            x = mpmath.mpf(r.uniform(low, high))
            assert abs(_value(fits.fit(name), x) / f(x) - 1) < mpmath.mpf(2) ** -32


@pytest.mark.parametrize("name", ["d_silu", "d_gelu", "d_gelu_tanh", "d_mish"])
def test_derivatives_near_their_zeros(name):
    r, (f, about) = rng(), fits.derivative(name)
    with mpmath.workprec(300):
        zero = fits._mpf(fits.crossing(name))
        assert abs(zero - about) < 0.002
        assert abs(f(zero)) < mpmath.mpf(2) ** -fits.PRECISION
        for _ in range(200):
            t = mpmath.mpf(r.uniform(-1, 1) * 2.0 ** -r.randint(4, 40))
            assert abs(_value(fits.fit_near_zero(name), t) * t / f(zero + t) - 1) < mpmath.mpf(2) ** -31


def test_ln2_in_two_parts():
    high, low = fits.ln2_parts()
    assert (high * 2**20).denominator == 1
    assert high + low == fits.number("ln2")
    assert low < high / 2**19
