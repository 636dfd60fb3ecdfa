"""The scalar engine's functions: reports from the field, limits, accuracy on a sample. (All of BF16 and 10^6 numbers each: `tesela accuracy`.)"""

import numpy as np
import pytest

from models.functions import ActFunc, activate, evaluate
from sim.accuracy import BF16_WRONG, REFERENCES, ULP_LIMITS, bf16_errors, fp32_errors
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
    ],
)
def test_limits(f, x, want):
    (got,) = evaluate(f, np.array([x], dtype=np.float32))
    want = np.float32(want)
    assert np.isnan(got) if np.isnan(want) else (got == want and np.signbit(got) == np.signbit(want))


@pytest.mark.parametrize("f", list(ActFunc), ids=lambda f: f.name.lower())
def test_accuracy_on_a_sample(f):
    assert np.isnan(evaluate(f, np.array([NAN], dtype=np.float32))[0]) or f == ActFunc.D_RELU
    worst = fp32_errors(f, 20000, rng().getrandbits(32))
    assert worst.max_ulp <= ULP_LIMITS.get(f, 2.0), worst
    assert worst.wrong_specials == 0
    wrong, off = bf16_errors(f, step=7)
    assert wrong <= BF16_WRONG
    assert off <= 1


def test_every_function_has_a_reference():
    assert set(REFERENCES) == set(ActFunc)


def test_scale_and_bias_are_rounded_to_wide_floats_only():
    x = np.array([1 + 2**-23], dtype=np.float32)
    got = activate(ActFunc.COPY, x, np.float32(1 + 2**-23), np.float32(-1))
    assert got[0] == np.float32(2**-22 + 2**-46 * 0), "32 bits of the product, not 24"
    assert activate(ActFunc.COPY, x, np.float32(3), np.float32(0.5))[0] == np.float32(3.5 + 3 * 2**-23)
