"""Wide floats against exact rationals."""

from fractions import Fraction

import numpy as np
import pytest

from models import wide
from models.microcode import Constant, constant
from models.wide import EXP_MAX, EXP_MIN
from tb.lib.simulate import rng
from tb.scalar.wides import item, random_wide, wides

LAST = Fraction(1, 1 << 31)


def value(c: Constant) -> Fraction:
    """A finite wide float exactly."""
    return Fraction(-1 if c.neg else 1) * c.sig * Fraction(2) ** (c.exp - 31)


def _finite(r):
    while True:
        c = random_wide(r)
        if c.kind == 0 and abs(c.exp) < 1000:
            return c


def test_product_and_sum_are_within_half_a_place_and_a_guard_bit():
    r = rng()
    a, b, c = ([_finite(r) for _ in range(3000)] for _ in range(3))
    minus_zero = [Constant(1, 0, 0)] * len(a)
    product, total = wide.fma(wides(a), wides(b), wides(minus_zero)), wide.fma(wides(a), wides(b), wides(c))
    for i in range(len(a)):
        exact, got = value(a[i]) * value(b[i]), value(item(product, i))
        assert abs(got - exact) <= abs(exact) * LAST / 2
        exact, final = got + value(c[i]), value(item(total, i))
        # what an aligned operand loses is below an eighth of the larger one's last place
        larger = max(abs(got), abs(value(c[i])))
        assert abs(final - exact) <= abs(exact) * LAST / 2 + larger * LAST / 8


def test_round_trip_and_rounding_to_fp32():
    r = rng()
    codes = np.array([r.getrandbits(32) for _ in range(20000)], dtype=np.uint32)
    back = wide.to_fp32(wide.from_fp32(codes))
    number = ~np.isnan(codes.view(np.float32))
    assert np.array_equal(back[number], codes[number])
    assert (back[~number] == 0x7FC00000).all()
    items = [
        Constant(r.getrandbits(1), r.randint(-152, 128), 1 << 31 | r.getrandbits(31)) for _ in range(3000)
    ]
    got = wide.to_fp32(wides(items)).view(np.float32)
    with np.errstate(over="ignore"):
        want = np.array([np.float32(float(value(c))) for c in items])  # float64 holds 32 bits exactly
    assert np.array_equal(got, want)


def test_specials():
    inf, nan, zero, one = (wides([constant(v)]) for v in ("inf", "nan", 0, 1))
    minus_zero, minus_inf = wide.negate(zero), wide.negate(inf)
    assert item(wide.fma(inf, zero, one), 0).kind == 2
    assert item(wide.fma(one, inf, minus_inf), 0).kind == 2
    assert item(wide.fma(one, inf, inf), 0) == constant("inf")
    assert item(wide.fma(nan, one, one), 0) == constant("nan")
    assert item(wide.fma(one, minus_zero, minus_zero), 0) == constant("-0")
    assert item(wide.fma(one, one, wide.negate(one)), 0) == constant(0), "an exact cancellation is +0"
    assert item(wide.negate(nan), 0) == constant("nan")
    assert not wide.less(minus_zero, zero)[0]
    assert not wide.less(nan, one)[0]
    assert wide.less(minus_inf, inf)[0]
    big = wides([Constant(0, EXP_MAX, 1 << 31)])
    small = wides([Constant(0, EXP_MIN, 1 << 31)])
    assert item(wide.fma(big, big, zero), 0) == constant("inf")
    assert item(wide.fma(small, small, zero), 0) == constant(0)
    assert item(wide.scale(small, wide.negate(one)), 0) == constant(0)
    assert item(wide.scale(one, nan), 0) == constant("nan")


@pytest.mark.parametrize("x", [0.4999999, 0.5, 0.5000001, 1.5, 2.5, -2.5, 3.49, 1e9, -0.3, 0.0])
def test_rint_ties_to_even(x):
    f = np.array([x], dtype=np.float32)
    got = wide.to_fp32(wide.rint(wide.from_fp32(f.view(np.uint32)))).view(np.float32)
    assert got[0] == np.rint(f[0])
    assert np.signbit(got[0]) == np.signbit(f[0])


def test_exponent_and_fraction_make_the_number():
    r = rng()
    x = [_finite(r) for _ in range(2000)]
    e, f = wide.exponent(wides(x)), wide.fraction(wides(x))
    for i, c in enumerate(x):
        fraction = value(item(f, i))
        assert fraction * Fraction(2) ** int(value(item(e, i))) == value(c)
        assert fraction == 0 or Fraction(1, 2) <= fraction * fraction <= 2


def test_seeds():
    r = rng()
    x = [c for c in (_finite(r) for _ in range(3000)) if c.sig]
    a, b = wide.reciprocal_seed(wides(x)), wide.rsqrt_seed(wide.absolute(wides(x)))
    for i, c in enumerate(x):
        assert abs(value(item(a, i)) * value(c) - 1) < Fraction(1, 200)
        assert abs(value(item(b, i)) ** 2 * abs(value(c)) - 1) < Fraction(1, 100)
    zero = wides([constant("-0")])
    assert item(wide.reciprocal_seed(zero), 0) == Constant(1, 0, 0, 1)
    assert item(wide.rsqrt_seed(wides([constant("inf")])), 0) == constant(0)
