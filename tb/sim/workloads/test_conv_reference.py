"""The FP64 reference of the convolution network: right by definitions in plain Python, its bounds tight enough to see small mistakes."""

import dataclasses
import math

import numpy as np
import pytest

from sim.workloads import conv
from sim.workloads import conv_reference as reference
from sim.workloads.conv_reference import BF16_ROUNDING, FP32_ROUNDING, exact
from sim.workloads.conv_shape import Options
from tb.sim.workloads.test_conv import direct, on_model

NET = Options(3, channels=3, filters=4, height=5, width=6, stride=2, classes=5)
DATA = conv.held(conv.draw(NET, 11))


def test_definitions_in_plain_python():
    want = reference.reference(NET, DATA)
    y = np.array(direct(NET, DATA)).reshape(3, 4, 3, 3)
    assert np.allclose(want["conv"].value, y, rtol=1e-12)
    for n in range(NET.images):
        values = y[n].ravel().tolist()
        mean = math.fsum(values) / len(values)
        root = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values) + NET.epsilon)
        norm = [
            (v - mean) / root * g + s
            for v, g, s in zip(values, DATA.gain.ravel().tolist(), DATA.shift.ravel().tolist(), strict=True)
        ]
        assert np.allclose(want["norm"].value[n].ravel(), norm, rtol=1e-12)
        h = [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in norm]
        assert np.allclose(want["gelu"].value[n].ravel(), h, rtol=1e-12)
        z = [
            math.fsum(a * b for a, b in zip(h, row.ravel().tolist(), strict=True)) + bias
            for row, bias in zip(DATA.wc, DATA.bc.tolist(), strict=True)
        ]
        assert np.allclose(want["logits"].value[n], z, rtol=1e-12)
        total = math.fsum(math.exp(v) for v in z)
        assert want["loss"].value[n] == pytest.approx(math.log(total) - z[DATA.labels[n]], rel=1e-12)
        share = [(math.exp(v) / total - (k == DATA.labels[n])) / NET.images for k, v in enumerate(z)]
        assert np.allclose(want["gradient"].value[n], share, rtol=1e-12, atol=1e-17)


def test_gradient_is_the_losses_slope():
    z = np.random.default_rng(3).normal(0, 2, (NET.images, NET.classes))
    got = reference.gradient(NET, DATA, exact(z)).value
    for n in range(NET.images):
        for k in range(NET.classes):
            step = np.zeros_like(z)
            step[n, k] = 1e-5
            up, down = (reference.loss(DATA, exact(z + sign * step)).value.mean() for sign in (1, -1))
            assert got[n, k] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-9)


def test_gelus_slope():
    x = np.linspace(-6, 6, 200001)
    slope = np.diff(reference.gelu(exact(x)).value) / np.diff(x)
    assert 1.1289 < slope.max() < reference.GELU_SLOPE
    assert slope.min() > -reference.GELU_SLOPE


def test_bounds_hold_operands_at_the_edge_of_rounding():
    """What the bounds are made of: a cast loses 2**-8 at most, and nearly that; so does an operation 2**-24."""
    x = np.float32(1 + 2.0**-8 - 2.0**-23)
    rounded = conv.held(dataclasses.replace(DATA, x=np.full_like(DATA.x, x))).x[0, 0, 0, 0]
    assert 0.99 * BF16_ROUNDING < abs(rounded - x) / x < BF16_ROUNDING
    assert abs(float(np.float32(1) + np.float32(2.0**-24 * 1.01)) - 1 - 2.0**-24 * 1.01) < FP32_ROUNDING


def _shares(data):
    """Worst share of the bound for each tensor where the chip computes DATA and the reference `data`, over the whole and over a step."""
    job, out = on_model(NET, DATA)
    got = {n: job.tensor(out, n) for n in conv.OUTPUTS}

    def worst(want):
        return {n: float((np.abs(got[n] - b.value) / b.bound).max()) for n, b in want.items()}

    return worst(reference.reference(NET, data)), worst(reference.steps(NET, data, got))


def test_bounds_hold():
    whole, step = _shares(DATA)
    assert max(*whole.values(), *step.values()) < 1
    assert whole["gelu"] > 0.5, "the rounding to BF16 is seen"


def _changed(name, place, factor):
    values = getattr(DATA, name).copy()
    values[place] *= factor
    return dataclasses.replace(DATA, **{name: values})


@pytest.mark.parametrize(
    ("name", "place", "tensor"),
    [
        ("x", (0, 1, 2, 2), "conv"),
        ("w", (1, 2, 0, 1), "conv"),
        ("bias", (2,), "conv"),
        ("gain", (0, 1, 1), "norm"),
        ("shift", (3, 2, 2), "norm"),
        ("wc", (1, 2, 0, 0), "logits"),
        ("bc", (4,), "logits"),
    ],
)
def test_a_change_by_a_thousandth_is_seen_in_its_step(name, place, tensor):
    """Each operand matters, to a precision far beyond BF16: whatever comes in wrong is out of its step's bound."""
    whole, step = _shares(_changed(name, place, 1.001))
    assert (whole if tensor == "conv" else step)[tensor] > 1


def test_another_label_is_seen():
    labels = DATA.labels.copy()
    labels[0] = (labels[0] + 1) % NET.classes
    whole, step = _shares(dataclasses.replace(DATA, labels=labels))
    for shares in (whole, step):
        assert shares["loss"] > 1
        assert shares["gradient"] > 1
