"""Softmax attention in FP64, plain, and with what the chip rounds to BF16 rounded."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def attention(
    q: F64, k: F64, v: F64, *, causal: bool, rounded: Callable[[F64], F64] = lambda x: x
) -> tuple[F64, F64]:
    """softmax(q k^T / sqrt(head)) v of [heads, sequence, head] each, and the same weights' sum of |v|.

    `rounded` is applied to exp(score - the row's largest score), from which both the numerator and the denominator are made.
    """
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -np.inf)
    e = rounded(np.exp(scores - scores.max(axis=-1, keepdims=True)))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ v, weights @ np.abs(v)
