"""A transformer block in FP64: forward, and the backward pass written by hand.

`rounded` is applied to what the chip rounds to BF16, the operands of its matmuls. With the identity this is the mathematics, which finite
differences confirm; with rounding to BF16 it is what the chip computes but for FP32's rounding, and so shows mistakes that BF16's would cover.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.formats import DType
from sim.workloads.transformer_shape import EPSILON, Shape, rotation

F64 = NDArray[np.float64]


def exact(x: F64) -> F64:
    """No rounding."""
    return x


def bf16(x: F64) -> F64:
    """The nearest BF16 numbers (of the FP32 numbers that the chip has)."""
    codes = cast.encode(DType.BF16, x.astype(np.float32), saturate=False).astype(np.uint32)
    return (codes << np.uint32(16)).view(np.float32).astype(np.float64)


def _heads(x: F64, s: Shape) -> F64:
    """[S, D] as [heads, S, head]."""
    return x.reshape(s.sequence, s.heads, s.head).transpose(1, 0, 2)


def _joined(x: F64, s: Shape) -> F64:
    """[heads, S, head] as [S, D]."""
    return x.transpose(1, 0, 2).reshape(s.sequence, s.width)


def _turned(x: F64, s: Shape, direction: float) -> F64:
    """RoPE of [heads, S, head], or with direction -1 its transpose."""
    cos, sin = rotation(s)
    a, b = np.split(x, 2, axis=-1)
    sin = direction * sin
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _norm(x: F64) -> tuple[F64, F64]:
    """x over its root mean square, and 1 over that."""
    inverse = 1 / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON)
    return x * inverse, inverse


def _norm_back(d: F64, unit: F64, inverse: F64, gain: F64) -> F64:
    """Gradient of RMSNorm's input, from that of its output."""
    g = d * gain
    return inverse * (g - unit * (g * unit).mean(axis=1, keepdims=True))


def block(
    s: Shape, weights: dict[str, F64], x: F64, dy: F64, rounded: Callable[[F64], F64] = exact
) -> dict[str, F64]:
    """The results named in Shape.outputs, for input x [S, D] and the gradient dy [S, D] of the output."""
    w = {n: rounded(weights[n]) for n in ("wqkv", "wo", "wgu", "w2")}
    scale = 1 / np.sqrt(s.head)

    unit1, inverse1 = _norm(x)
    n1 = rounded(unit1 * weights["gain1"])
    q, k, v = (_heads(part, s) for part in np.split(n1 @ w["wqkv"], 3, axis=1))
    q, k, v = rounded(_turned(q, s, 1)), rounded(_turned(k, s, 1)), rounded(v)
    scores = np.where(np.tri(s.sequence, dtype=bool), scale * (q @ k.transpose(0, 2, 1)), -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    attention = e / e.sum(axis=-1, keepdims=True)
    p = rounded(attention)
    o = rounded(_joined(p @ v, s))
    x2 = x + o @ w["wo"]

    unit2, inverse2 = _norm(x2)
    n2 = rounded(unit2 * weights["gain2"])
    gate, up = np.split(n2 @ w["wgu"], 2, axis=1)
    sigmoid = 1 / (1 + np.exp(-gate))
    silu = gate * sigmoid
    a = rounded(silu * up)
    y = x2 + a @ w["w2"]

    d = rounded(dy)
    da = d @ w["w2"].T
    dgu = rounded(np.concatenate([da * up * (sigmoid + silu * (1 - sigmoid)), da * silu], axis=1))
    dn2 = dgu @ w["wgu"].T
    dx2 = dy + _norm_back(dn2, unit2, inverse2, weights["gain2"])
    d2 = rounded(dx2)
    do = rounded(_heads(d2 @ w["wo"].T, s))
    dp = do @ v.transpose(0, 2, 1)
    ds = rounded(scale * attention * (dp - (dp * attention).sum(axis=-1, keepdims=True)))
    dq, dk = _turned(ds @ k, s, -1), _turned(ds.transpose(0, 2, 1) @ q, s, -1)
    dv = p.transpose(0, 2, 1) @ do
    dqkv = rounded(np.concatenate([_joined(part, s) for part in (dq, dk, dv)], axis=1))
    dn1 = dqkv @ w["wqkv"].T
    return {
        "y": y,
        "attention": attention.reshape(s.heads * s.sequence, s.sequence),
        "dx": dx2 + _norm_back(dn1, unit1, inverse1, weights["gain1"]),
        "dgain1": rounded(dn1 * unit1).sum(axis=0, keepdims=True),
        "dwqkv": n1.T @ dqkv,
        "dwo": o.T @ d2,
        "dgain2": rounded(dn2 * unit2).sum(axis=0, keepdims=True),
        "dwgu": n2.T @ dgu,
        "dw2": a.T @ d,
    }
