"""The convolution network in FP64 NumPy, written without the chip's models, and how far the chip may be from it.

Every bound follows from how the chip rounds, with no factor to taste: FP32 operations are within 2**-24, functions of the scalar
engine within 1.2 ulp (docs/accuracy.md), a cast to BF16 within 2**-8, all relative. Operands are the BF16 numbers that the chip holds, so that products
are exact, and the one rounding to BF16 on the way is that of GELU's results. Errors of a tensor go on through the steps behind it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sim.workloads.conv import F64, Data
from sim.workloads.conv_shape import Options

FP32_ROUNDING = 2.0**-24
BF16_ROUNDING = 2.0**-8
FUNCTION = 1.2 * 2 * FP32_ROUNDING
"""Relative error of a function of the scalar engine."""
GELU_SLOPE = 1.13
"""GELU's largest slope is 1.12904."""
SECOND_ORDER = 1.001
"""Errors of errors: every bound here is of some thousand roundings at most, of 2**-24 each."""
TINY = 2.0**-126
"""What is lost where numbers become subnormal is far below this."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A tensor as FP64 says, and the largest error that the chip may have in each place."""

    value: F64
    bound: F64


def _up(bound: F64) -> F64:
    return bound * SECOND_ORDER + TINY


def exact(x: F64) -> Bounded:
    """Numbers that the chip has as they are."""
    return Bounded(x, np.zeros_like(x))


def convolution(o: Options, d: Data) -> Bounded:
    """[images, filters, rows, columns]: a rounding for each channel and kernel place at most, and one for the bias."""
    p, k = o.padding, o.kernel
    padded = np.pad(d.x, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, :: o.stride, :: o.stride]
    bias = d.bias[None, :, None, None]
    value = np.einsum("ncyxij,fcij->nfyx", windows, d.w, optimize=True) + bias
    size = np.einsum("ncyxij,fcij->nfyx", np.abs(windows), np.abs(d.w), optimize=True) + np.abs(bias)
    return Bounded(value, _up((o.channels + o.taps + 1) * FP32_ROUNDING * size))


def normalised(o: Options, d: Data, y: Bounded) -> Bounded:
    """Layer normalisation over an image's features, with gain and shift."""
    axes = (1, 2, 3)
    unit = FP32_ROUNDING
    # partials of four, their two sums, an addition for each filter and piece, 1 / features and the product with it
    steps = -(-o.pixels // 4) + 2 + o.filters + 3 + 2
    mean = y.value.mean(axis=axes, keepdims=True)
    mean_bound = y.bound.mean(axis=axes, keepdims=True) + steps * unit * (np.abs(y.value) + y.bound).mean(
        axis=axes, keepdims=True
    )
    difference = y.value - mean
    difference_bound = y.bound + mean_bound + unit * (np.abs(difference) + y.bound + mean_bound)
    # the root of mean square and epsilon is a norm: it moves by no more than the same norm of what moves it
    deviation = np.sqrt((difference**2).mean(axis=axes, keepdims=True) + o.epsilon)
    moved = np.sqrt((difference_bound**2).mean(axis=axes, keepdims=True))
    with np.errstate(divide="ignore"):
        relative = np.where(moved < deviation, moved / np.maximum(deviation - moved, TINY), np.inf)
    # half of what the sum of squares has, a rounding of each square, that of epsilon, the function and the product
    relative = relative + (steps + 2) / 2 * unit + FUNCTION + unit
    unscaled = difference / deviation
    unscaled_bound = difference_bound / deviation * (1 + relative) + np.abs(unscaled) * relative
    value = unscaled * d.gain + d.shift
    bound = unscaled_bound * np.abs(d.gain) + 2 * unit * (
        (np.abs(unscaled) + unscaled_bound) * np.abs(d.gain) + np.abs(d.shift)
    )
    return Bounded(value, _up(bound))


def gelu(z: Bounded) -> Bounded:
    """x times the normal distribution, rounded to BF16."""
    half = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2, otypes=[float])(z.value)
    value = z.value * half
    before = GELU_SLOPE * z.bound
    before = before + FUNCTION * (np.abs(value) + before)
    return Bounded(value, _up(before + BF16_ROUNDING * (np.abs(value) + before)))


def logits(o: Options, d: Data, h: Bounded) -> Bounded:
    """[images, classes]: a rounding for each filter and pixel at most, and one for the bias."""
    value = np.einsum("nfyx,kfyx->nk", h.value, d.wc, optimize=True) + d.bc
    through = np.einsum("nfyx,kfyx->nk", h.bound, np.abs(d.wc), optimize=True)
    size = np.einsum("nfyx,kfyx->nk", np.abs(h.value) + h.bound, np.abs(d.wc), optimize=True) + np.abs(d.bc)
    return Bounded(value, _up(through + (o.filters + o.pixels + 1) * FP32_ROUNDING * size))


def _exponentials(classes: int) -> float:
    """Relative error of the sum of exponentials: the function, then additions."""
    return FUNCTION + (-(-classes // 4) + 2) * FP32_ROUNDING


def loss(d: Data, z: Bounded) -> Bounded:
    """[images]: -log softmax at the label."""
    top = z.value.max(axis=1)
    shifted = z.value - top[:, None]
    total = np.log(np.exp(shifted).sum(axis=1))
    rows = np.arange(len(d.labels))
    picked = shifted[rows, d.labels]
    value = total - picked
    # log of the sum moves by the largest error of a logit, its own label's by its own; roundings: the function, l - top, the difference
    bound = z.bound.max(axis=1) + z.bound[rows, d.labels]
    bound = bound + _exponentials(z.value.shape[1]) + FUNCTION * (np.abs(total) + bound)
    bound = bound + FP32_ROUNDING * (np.abs(picked) + np.abs(value) + 2 * bound)
    return Bounded(value, _up(bound))


def gradient(o: Options, d: Data, z: Bounded) -> Bounded:
    """[images, classes]: of the mean loss with respect to the logits."""
    e = np.exp(z.value - z.value.max(axis=1, keepdims=True))
    share = e / e.sum(axis=1, keepdims=True)
    one = np.eye(o.classes)[d.labels]
    value = (share - one) / o.images
    # a share's logarithm moves by twice the largest error of a logit; roundings: sum and own exponential, reciprocal, two products, 1 / images
    relative = np.expm1(2 * z.bound.max(axis=1, keepdims=True)) + _exponentials(o.classes)
    relative = relative + 2 * FUNCTION + 3 * FP32_ROUNDING
    bound = share / o.images * relative + FP32_ROUNDING * (one / o.images + np.abs(value) + share * relative)
    return Bounded(value, _up(bound))


def reference(o: Options, d: Data) -> dict[str, Bounded]:
    """Every output of the network, from inputs to gradient in FP64."""
    y = convolution(o, d)
    n = normalised(o, d, y)
    h = gelu(n)
    z = logits(o, d, h)
    return {
        "conv": y,
        "norm": n,
        "gelu": h,
        "logits": z,
        "loss": loss(d, z),
        "gradient": gradient(o, d, z),
    }


def steps(o: Options, d: Data, got: dict[str, F64]) -> dict[str, Bounded]:
    """Every output but the first, from the chip's own result of the step before: nothing but that step's own roundings is allowed."""
    z = exact(got["logits"])
    return {
        "norm": normalised(o, d, exact(got["conv"])),
        "gelu": gelu(exact(got["norm"])),
        "logits": logits(o, d, exact(got["gelu"])),
        "loss": loss(d, z),
        "gradient": gradient(o, d, z),
    }
