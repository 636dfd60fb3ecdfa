"""models.exponential against FP64: error, order, limits."""

import numpy as np
import pytest

from models import cast
from models.exponential import exponential
from models.formats import DType

SEED = 20261203


def _errors(x):
    """Errors in units of the last place of FP32 results, against FP64's exp."""
    want = np.exp(x.astype(np.float64))
    with np.errstate(over="ignore"):
        near = want.astype(np.float32)
    got = exponential(x)
    assert np.array_equal(np.isinf(got), np.isinf(near))
    finite = np.isfinite(near)
    place = np.maximum(np.spacing(near[finite]).astype(np.float64), 2.0**-149)
    return np.abs(got[finite].astype(np.float64) - want[finite]) / place


@pytest.mark.parametrize(("low", "high"), [(-104, 89), (-1e-3, 1e-3), (-104, -87)])
def test_within_0_6_ulp(low, high):
    x = np.random.default_rng(SEED).uniform(low, high, 200_000).astype(np.float32)
    assert _errors(x).max() < 0.6


@pytest.mark.regress
def test_within_0_6_ulp_many():
    x = np.random.default_rng(SEED).uniform(-104, 89, 10_000_000).astype(np.float32)
    assert _errors(x).max() < 0.6


@pytest.mark.parametrize("start", [-103.9, -87.4, -1.0, -1e-6, 1e-9, 0.6931, 64.0, 88.7])
def test_never_falls(start):
    first = np.float32(start).view(np.uint32).astype(np.int64)
    step = -1 if start < 0 else 1
    x = (first + step * np.arange(100_000)).astype(np.uint32).view(np.float32)
    y = exponential(x)
    assert (y[1:] >= y[:-1]).all()


def test_limits():
    tiny = np.float32(1e-45)
    x = np.array(
        [0.0, -0.0, tiny, -tiny, np.inf, -np.inf, np.nan, -np.nan, 128, -128, 3e38, -3e38], np.float32
    )
    want = np.array(
        [0x3F800000] * 4 + [0x7F800000, 0, 0x7FC00000, 0x7FC00000] + [0x7F800000, 0] * 2, np.uint32
    )
    assert np.array_equal(exponential(x).view(np.uint32), want)
    # the largest arguments that give a number and not 0, in FP32
    assert exponential(np.float32([88.72283])) == np.exp(np.float64(np.float32(88.72283))).astype(np.float32)
    assert np.isinf(exponential(np.float32([88.72284])))
    assert exponential(np.float32([-103.97])) == np.float32(2.0**-149)
    assert exponential(np.float32([-103.98])) == 0


def test_bf16_results_are_correctly_rounded():
    codes = np.arange(1 << 16, dtype=np.uint32)
    x = cast.decode(DType.BF16, codes)
    got = cast.encode(DType.BF16, exponential(x), saturate=False)
    with np.errstate(all="ignore"):
        want = cast.encode(DType.BF16, np.exp(x.astype(np.float64)).astype(np.float32), saturate=False)
    assert (got != want).mean() <= 0.001
    assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= 1
