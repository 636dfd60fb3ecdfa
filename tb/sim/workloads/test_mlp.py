"""The network that digits runs: trained the same way every time, good enough to show that the chip is."""

import numpy as np

from sim.workloads import mlp


def test_split_is_fixed():
    a, b = mlp.digits(), mlp.digits()
    assert len(a.y) == 1797
    assert a.held_out.sum() == 1797 // mlp.TEST_SHARE
    assert np.array_equal(a.held_out, b.held_out)
    assert np.array_equal(a.x * 16, np.round(a.x * 16)), "pixels are multiples of 1/16"


def test_training_is_deterministic_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(mlp, "CACHE", tmp_path)
    data = mlp.digits()
    first = mlp.trained(data)
    assert len(list(tmp_path.glob("mlp-*.npz"))) == 1
    monkeypatch.setattr(mlp, "_train", None)
    again = mlp.trained(data)
    monkeypatch.undo()
    for name in ("w1", "b1", "w2", "b2"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    right = first.logits(data.x).argmax(axis=1) == data.y
    assert right[data.held_out].mean() > 0.95
    assert right.mean() > 0.97


def test_seeded_training_twice():
    data = mlp.digits()
    a, b = (mlp._train(data, epochs=2) for _ in range(2))
    assert np.array_equal(a.w1, b.w1)
    assert np.array_equal(a.b2, b.b2)
