"""Functional model: counts, means and variances, against float64, wherever the mean lies."""

import numpy as np
import pytest

from models.access import AccessPattern, row
from models.formats import DType
from models.isa import ErrorCode, Flag, Opcode
from models.moments import MOST, aggregate, stats
from models.program import Program, ProgramError
from tb.models.machines import NANO, get, put, random_f32, run, start

FP32 = DType.FP32
EPS = 2.0**-24


def exact(x):
    """Mean and variance * count of each row of `x`, in float64."""
    wide = x.astype(np.float64)
    mean = wide.mean(axis=1)
    return mean, ((wide - mean[:, None]) ** 2).sum(axis=1)


def sets(x):
    """[rows, 2, 3] of `stats`."""
    return stats(x).reshape(x.shape[0], 2, 3)


@pytest.mark.parametrize("offset", [0.0, 1.0, -100.0, 1e4, 1e6, -1e23])
@pytest.mark.parametrize("n", [2, 3, 64, 511, 512])
def test_accurate_wherever_the_mean_lies(offset, n):
    """Noise of a standard deviation that is small beside the offset; of 10^6 it is sixteen units in the last place."""
    scale = max(1.0, abs(offset) * 1e-6)
    x = (offset + scale * random_f32((50, n), n, 1)).astype(np.float32)
    got = sets(x)
    for parity in range(2):
        own = x[:, parity::2]
        mean, spread = exact(own)
        assert (got[:, parity, 0] == own.shape[1]).all()
        assert (np.abs(got[:, parity, 1] - mean) <= 2 * EPS * (np.abs(mean) + 8 * scale)).all()
        assert (np.abs(got[:, parity, 2] - spread) <= 24 * EPS * spread).all()


def test_a_variance_beyond_the_largest_number_is_infinite():
    x = (3e30 * (1 + 1e-6 * random_f32((50, 65), 3))).astype(np.float32)
    got = sets(x)
    assert (got[:, :, 2] == np.inf).all()
    assert (np.abs(got[:, :, 1] / 3e30 - 1) < 1e-6).all()


def test_neighbours():
    """Numbers one unit in the last place apart: their mean cannot be written, their variance is exact."""
    x = np.array([[1, 1, 1 + 2 * EPS, 1 + 2 * EPS] * 64], dtype=np.float32)
    got = sets(x)[0]
    assert (got[:, 0] == 128).all()
    assert np.isin(got[:, 1], x[0]).all()
    assert (got[:, 2] == 128 * EPS**2).all()


def test_equal_elements_have_no_variance():
    for value in (1e4, -0.1, 3e38, 1e-45, 0.0):
        got = sets(np.full((1, 37), value, dtype=np.float32))[0]
        assert got.tolist() == [[19, np.float32(value), 0], [18, np.float32(value), 0]]


def test_one_element_has_zeros_beside_it():
    got = stats(np.array([[7.5], [-0.0]], dtype=np.float32))
    assert (
        got.view(np.uint32).tolist()
        == np.array([[1, 7.5, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]], dtype=np.float32).view(np.uint32).tolist()
    )


def test_infinity_and_nan_stay_with_their_set():
    x = np.ones((2, 8), dtype=np.float32)
    x[0, 2], x[1, 3] = np.inf, np.nan
    got = sets(x)
    assert got[0, 0, 1] == np.inf
    assert np.isnan(got[0, 0, 2])
    assert got[0, 1].tolist() == got[1, 0].tolist() == [4, 1, 0]
    assert np.isnan(got[1, 1, 1:]).all()


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
def test_aggregate_of_uneven_sets(offset):
    """Sets of different sizes and means, against float64 of the same triples."""
    random = np.random.default_rng(5)
    counts = random.integers(0, 300, (40, 9)).astype(np.float32)
    counts[:20, 0] = 0
    means = (offset + random.standard_normal((40, 9))).astype(np.float32)
    own = (counts * random.random((40, 9))).astype(np.float32)
    got = aggregate(np.stack([counts, means, own], axis=2).reshape(40, 27))
    weight = counts.astype(np.float64)
    total = weight.sum(axis=1)
    mean = (weight * means).sum(axis=1) / total
    spread = (own + weight * (means - mean[:, None].astype(np.float64)) ** 2).sum(axis=1) / total
    assert (np.abs(got[:, 0] - mean) <= 2 * EPS * (np.abs(mean) + 4)).all()
    assert (np.abs(got[:, 1] - spread) <= 24 * EPS * spread).all()


def test_sets_without_elements():
    """They are nothing to the others, and alone they give zeros."""
    x = np.array([[0, 0, 0, 0, 0, 0], [0, 9, 0, 4, 2, 8], [0, 1e38, 0, 0, -1e38, 0]], dtype=np.float32)
    assert (
        aggregate(x).view(np.uint32).tolist()
        == np.array([[0, 0], [2, 2], [0, 0]], dtype=np.float32).view(np.uint32).tolist()
    )


def test_layer_normalisation_statistics_of_a_long_row():
    """Rows of 1100 elements in pieces, their triples side by side, aggregated."""
    x = (1e4 + random_f32((8, 1100), 9)).astype(np.float32)
    p = Program(NANO)
    for n, (first, count) in enumerate([(0, 512), (512, 512), (1024, 76)]):
        p.vector.bn_stats(row(8192 + 24 * n, FP32, 6), row(4 * first, FP32, count), parts=8)
    p.vector.bn_aggr(row(9000, FP32, 2), row(8192, FP32, 18), parts=8)
    core = run(p, lambda core: put(core, 0, x))
    got = get(core, 9000, "f4", (8, 2))
    mean, spread = exact(x)
    assert (np.abs(got[:, 0] - mean) <= 1e-3).all()
    assert (np.abs(got[:, 1] - spread / 1100) <= 2e-4).all()


def test_other_types_and_lanes():
    x = np.arange(24, dtype=np.int8).reshape(1, 24).repeat(8, axis=0)
    p = Program(NANO)
    p.vector.bn_stats(row(512, DType.INT16, 6), row(0, DType.INT8, 24), parts=5)
    got = get(run(p, lambda core: put(core, 0, x)), 512, "i2", (8, 6))
    assert got[:5].tolist() == [[12, 11, 572, 12, 12, 572]] * 5
    assert not got[5:].any()


@pytest.mark.parametrize(
    ("opcode", "dst", "src", "flags"),
    [
        (Opcode.BN_STATS, row(512, FP32, 6), row(0, FP32, 0), 0),
        (Opcode.BN_STATS, row(512, FP32, 6), AccessPattern(0, FP32, ((0, 513),)), 0),
        (Opcode.BN_STATS, row(512, FP32, 5), row(0, FP32, 8), 0),
        (Opcode.BN_STATS, row(512, DType.E8M0, 6), row(0, FP32, 8), 0),
        (Opcode.BN_STATS, row(512, FP32, 6), row(0, DType.E4M3X4, 8), 0),
        (Opcode.BN_STATS, row(512, FP32, 6), row(0, FP32, 8), int(Flag.NEGATE)),
        (Opcode.BN_AGGR, row(512, FP32, 2), row(0, FP32, 0), 0),
        (Opcode.BN_AGGR, row(512, FP32, 2), row(0, FP32, 8), 0),
        (Opcode.BN_AGGR, row(512, FP32, 3), row(0, FP32, 6), 0),
        (Opcode.BN_AGGR, row(512, FP32, 2), AccessPattern(0, FP32, ((0, MOST[Opcode.BN_AGGR] + 3),)), 0),
    ],
)
def test_illegal_fields(opcode, dst, src, flags):
    p = Program(NANO)
    fields = {"parts": 1} | ({"flags": flags} if flags else {})
    p.vector.emit(opcode, fields, {"dst": dst, "src0": src})
    core = start(p)
    assert core.error is not None
    assert (core.error.code, core.error.index) == (ErrorCode.ILLEGAL_FIELD, 0)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda v: v.bn_stats(row(512, FP32, 6), row(4096, FP32, 513), parts=1),
            "src0 must have from 1 to 512 elements, not 513",
        ),
        (
            lambda v: v.bn_stats(row(512, FP32, 3), row(0, FP32, 9), parts=1),
            "dst must be 6 elements a partition, not 3",
        ),
        (
            lambda v: v.bn_aggr(row(512, FP32, 2), row(0, FP32, 8), parts=1),
            "src0 must have a multiple of 3 from 3 to 1536 elements, not 8",
        ),
    ],
)
def test_builder_refuses(build, text):
    with pytest.raises(ProgramError, match=text):
        build(Program(NANO).vector)
