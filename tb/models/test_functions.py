"""The scalar engine's functions: reports from the field, limits, accuracy on a sample. (All of BF16 and 10^6 numbers each: `tesela accuracy`.)"""

import mpmath
import numpy as np
import pytest

from models.functions import SLOPED, ActFunc, activate, evaluate
from sim.accuracy import BF16_WRONG, MAX_ULP, REFERENCES, bf16_errors, fp32_errors
from tb.lib.simulate import rng

INF, NAN, BIG = np.inf, np.nan, 3e38


def _bits(f, *x):
    return [hex(b) for b in evaluate(f, np.array(x, dtype=np.float32)).view(np.uint32)]


def test_exp_a10():
    """Case A10: 2**i built by writing i + 127 unguarded gave exp(-100) = -4.3e33 and exp(89.5) = -0."""
    got = evaluate(ActFunc.EXP, np.array([-100, -88.5, 89.5, 100, INF, -INF, -0.0], dtype=np.float32))
    assert [hex(b) for b in got.view(np.uint32)] == [
        "0x1b", "0x27fce2", "0x7f800000", "0x7f800000", "0x7f800000", "0x0", "0x3f800000",
    ]  # fmt: skip


def test_gelu_a12():
    """Case A12: NaN for x < -13 or > 11, gelu(-100) = 2.2."""
    x = np.array([11, -11, 13.25, -13.25, 100, -100, BIG, -BIG], dtype=np.float32)
    for f in (ActFunc.GELU, ActFunc.GELU_TANH):
        got = evaluate(f, x)
        assert not np.isnan(got).any()
        assert np.array_equal(got[[0, 2, 4, 6]], x[[0, 2, 4, 6]])
        assert (got[1::2] <= 0).all()
        assert got[5] == 0
        assert got[7] == 0


def test_rsqrt_a13():
    """Case A13: rsqrt(0) and rsqrt(inf) were NaN."""
    assert _bits(ActFunc.RSQRT, 0.0, -0.0, INF, -1.0) == ["0x7f800000", "0xff800000", "0x0", "0x7fc00000"]


@pytest.mark.parametrize(
    ("f", "x", "want"),
    [
        (ActFunc.RECIPROCAL, 0.0, INF),
        (ActFunc.RECIPROCAL, -0.0, -INF),
        (ActFunc.RECIPROCAL, -INF, -0.0),
        (ActFunc.RECIPROCAL, 1e-45, INF),
        (ActFunc.SQRT, -0.0, -0.0),
        (ActFunc.SQRT, -1.0, NAN),
        (ActFunc.SQRT, INF, INF),
        (ActFunc.LOG, 0.0, -INF),
        (ActFunc.LOG, -0.0, -INF),
        (ActFunc.LOG, -1.0, NAN),
        (ActFunc.LOG, 1.0, 0.0),
        (ActFunc.LOG, INF, INF),
        (ActFunc.SIGN, -0.0, -0.0),
        (ActFunc.SIGN, -INF, -1.0),
        (ActFunc.RELU, -0.0, 0.0),
        (ActFunc.RELU, -INF, 0.0),
        (ActFunc.TANH, -0.0, -0.0),
        (ActFunc.TANH, -INF, -1.0),
        (ActFunc.TANH, BIG, 1.0),
        (ActFunc.ERF, -BIG, -1.0),
        (ActFunc.ERF, -0.0, -0.0),
        (ActFunc.SIGMOID, -INF, 0.0),
        (ActFunc.SIGMOID, INF, 1.0),
        (ActFunc.SILU, -INF, -0.0),
        (ActFunc.MISH, -INF, -0.0),
        (ActFunc.SOFTPLUS, -INF, 0.0),
        (ActFunc.SOFTPLUS, BIG, BIG),
        (ActFunc.D_TANH, INF, 0.0),
        (ActFunc.D_SILU, INF, 1.0),
        (ActFunc.D_GELU, -INF, -0.0),
        (ActFunc.D_RELU, 0.0, 0.0),
        (ActFunc.D_RELU, 1e-45, 1.0),
        (ActFunc.SIN, -0.0, -0.0),
        (ActFunc.SIN, 0.0, 0.0),
        (ActFunc.SIN, 1e-45, 1e-45),
        (ActFunc.SIN, INF, NAN),
        (ActFunc.SIN, -INF, NAN),
        (ActFunc.COS, -0.0, 1.0),
        (ActFunc.COS, -INF, NAN),
        (ActFunc.COS, 1e-45, 1.0),
        (ActFunc.ARCTAN, -0.0, -0.0),
        (ActFunc.ARCTAN, INF, np.pi / 2),
        (ActFunc.ARCTAN, -BIG, -np.pi / 2),
        (ActFunc.ARCTAN, 1.0, np.pi / 4),
        (ActFunc.ARCTAN, -1e-45, -1e-45),
        (ActFunc.D_ERF, INF, 0.0),
        (ActFunc.D_ERF, -0.0, 2 / np.sqrt(np.pi)),
        (ActFunc.D_GELU_TANH, -INF, -0.0),
        (ActFunc.D_GELU_TANH, BIG, 1.0),
        (ActFunc.D_GELU_TANH, 0.0, 0.5),
        (ActFunc.D_MISH, -INF, -0.0),
        (ActFunc.D_MISH, INF, 1.0),
        (ActFunc.D_MISH, 0.0, 0.6),
    ],
)
def test_limits(f, x, want):
    (got,) = evaluate(f, np.array([x], dtype=np.float32))
    want = np.float32(want)
    assert np.isnan(got) if np.isnan(want) else (got == want and np.signbit(got) == np.signbit(want))


@pytest.mark.parametrize("f", list(ActFunc), ids=lambda f: f.name.lower())
def test_accuracy_on_a_sample(f):
    assert np.isnan(evaluate(f, np.array([NAN], dtype=np.float32))[0]) or f in (
        ActFunc.D_RELU,
        ActFunc.D_PRELU,
    )
    worst = fp32_errors(f, 20000, rng().getrandbits(32))
    assert worst.max_ulp <= MAX_ULP, worst
    assert worst.wrong_specials == 0
    wrong, off = bf16_errors(f, step=7)
    assert wrong <= BF16_WRONG
    assert off <= 1


def _hardest():
    """FP32 numbers m * 2**e that are nearest to multiples of pi / 2, from the continued fractions of 2**e * 2 / pi."""
    found = []
    with mpmath.workprec(400):
        for e in range(-22, 105):
            x = mpmath.mpf(2) ** e * 2 / mpmath.pi
            before, q = 0, 1
            for _ in range(60):
                x -= mpmath.floor(x)
                if x == 0:
                    break
                x = 1 / x
                before, q = q, int(mpmath.floor(x)) * q + before
                if q >= 1 << 24:
                    break
                if q < 1 << 24 and q >= 1 << 16:
                    found += [q * n * 2.0**e for n in (1, 3, 5) if q * n < 1 << 24]
    return np.array([*found, 16367173 * 2.0**72], dtype=np.float32)


@pytest.mark.parametrize("f", [ActFunc.SIN, ActFunc.COS], ids=lambda f: f.name.lower())
def test_sine_and_cosine_where_the_reduction_is_hardest(f):
    x = _hardest()
    assert x.size > 100
    x = np.concatenate([x, -x])
    got = evaluate(f, x)
    with mpmath.workprec(400):
        exact = mpmath.sin if f == ActFunc.SIN else mpmath.cos
        for a, b in zip(x.tolist(), got.tolist(), strict=True):
            want = exact(mpmath.mpf(a))
            ulp = float(np.spacing(np.float32(abs(float(want)))))
            assert abs(mpmath.mpf(b) - want) < 0.6 * ulp, f"{f.name}({a!r}): {b!r}, not {want}"


def test_prelu_and_its_derivative():
    x = np.array([-2, -0.0, 0.0, 3, -INF, INF, NAN], dtype=np.float32)
    got = evaluate(ActFunc.PRELU, x, 0.25).view(np.uint32)
    want = np.array([-0.5, -0.0, 0.0, 3, -INF, INF, NAN], dtype=np.float32).view(np.uint32)
    assert np.array_equal(got, want)
    assert evaluate(ActFunc.D_PRELU, x, 0.25).tolist() == [0.25, 0.25, 0.25, 1, 0.25, 1, 0.25]
    assert evaluate(ActFunc.PRELU, x[:1], -3.0)[0] == 6
    assert set(SLOPED) == {ActFunc.PRELU, ActFunc.D_PRELU}


def test_every_function_has_a_reference():
    assert set(REFERENCES) == set(ActFunc)


def test_scale_and_bias_are_rounded_to_wide_floats_only():
    x = np.array([1 + 2**-23], dtype=np.float32)
    got = activate(ActFunc.COPY, x, np.float32(1 + 2**-23), np.float32(-1))
    assert got[0] == np.float32(2**-22 + 2**-46 * 0), "32 bits of the product, not 24"
    assert activate(ActFunc.COPY, x, np.float32(3), np.float32(0.5))[0] == np.float32(3.5 + 3 * 2**-23)
