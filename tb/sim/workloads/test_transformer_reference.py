"""The FP64 transformer block: its backward pass is the derivative of its forward pass, which is what it says it is."""

import numpy as np
import pytest

from sim.workloads import transformer_reference as reference
from sim.workloads.transformer import inputs
from sim.workloads.transformer_shape import Shape

SHAPE = Shape(p=4, sequence=8, width=16, heads=2, hidden=12)


def _inputs(seed):
    weights, x, dy = inputs(SHAPE, seed)
    return {n: w.astype(np.float64) for n, w in weights.items()}, x.astype(np.float64), dy.astype(np.float64)


@pytest.mark.parametrize("name", ["x", *SHAPE.weights])
def test_gradients_are_finite_differences(name):
    weights, x, dy = _inputs(3)
    grads = reference.block(SHAPE, weights, x, dy)
    rng = np.random.default_rng(4)

    def loss(step):
        moved = {**weights, "x": x}
        moved[name] = moved[name] + step
        return (reference.block(SHAPE, moved, moved["x"], dy)["y"] * dy).sum()

    for _ in range(5):
        direction = rng.normal(0, 1, grads[f"d{name}"].shape)
        h = 1e-5
        slope = (loss(h * direction) - loss(-h * direction)) / (2 * h)
        assert slope == pytest.approx((grads[f"d{name}"] * direction).sum(), rel=1e-7, abs=1e-7)


def test_nothing_depends_on_later_positions():
    weights, x, dy = _inputs(5)
    before = reference.block(SHAPE, weights, x, dy)["y"]
    x[5:] += 1.0
    after = reference.block(SHAPE, weights, x, dy)["y"]
    assert np.array_equal(before[:5], after[:5])
    assert (np.abs(before[5:] - after[5:]).max(axis=1) > 1e-3).all()


def test_attention_is_a_distribution_over_earlier_positions():
    weights, x, dy = _inputs(6)
    a = reference.block(SHAPE, weights, x, dy)["attention"].reshape(2, 8, 8)
    assert np.allclose(a.sum(axis=-1), 1)
    assert (a[:, ~np.tri(8, dtype=bool)] == 0).all()
    assert (a[:, np.tri(8, dtype=bool)] > 0).all()


def test_scores_depend_on_distance_alone():
    """RoPE: with equal tokens, what attends how much depends on how far away it is."""
    weights, x, dy = _inputs(7)
    x[:] = x[0]
    a = reference.block(SHAPE, weights, x, dy)["attention"].reshape(2, 8, 8)
    for s in range(2, 8):
        assert np.allclose(a[:, s, s - 1] / a[:, s, s], a[:, 1, 0] / a[:, 1, 1])
    assert not np.allclose(a[:, 1, 0], a[:, 1, 1])


def test_rounding_is_to_bf16():
    x = np.array([1.0, 1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, -3.14159265, 1e-40])
    got = reference.bf16(x)
    assert got[:4].tolist() == [1.0, 1.0, 1.0, 1 + 2**-6]
    assert (np.float32(got).view(np.uint32) & 0xFFFF == 0).all()
    assert np.abs(got - x)[4] <= 2**-8 * 3.15
