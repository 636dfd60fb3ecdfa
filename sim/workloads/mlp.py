"""A two-layer perceptron trained in NumPy: the network that the digits workload quantises and runs."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

F64 = NDArray[np.float64]
CACHE = Path(__file__).parent.parent.parent / "build" / "digits"
HIDDEN = 64
CLASSES = 10
SEED = 2026
TEST_SHARE = 5
"""Every fifth image (after a seeded shuffle) is held out from training."""


@dataclass(frozen=True, slots=True)
class Digits:
    """`x` [n, 64] in 0..1 (multiples of 1/16), `y` [n] labels, `held_out` [n] images not trained on."""

    x: F64
    y: NDArray[np.int64]
    held_out: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Mlp:
    """Weights: hidden = relu(x @ w1 + b1), logits = hidden @ w2 + b2; w1 [64, 64], w2 [64, 10]."""

    w1: F64
    b1: F64
    w2: F64
    b2: F64

    def hidden(self, x: F64) -> F64:
        """Hidden activations in FP64, [n, 64]."""
        return np.maximum(x @ self.w1 + self.b1, 0.0)

    def logits(self, x: F64) -> F64:
        """Logits in FP64, [n, 10]."""
        return self.hidden(x) @ self.w2 + self.b2


def digits() -> Digits:
    """The 1,797 digits that ship with scikit-learn."""
    data = load_digits()
    n = data.target.size
    held_out = np.zeros(n, dtype=bool)
    held_out[np.random.default_rng(SEED).permutation(n)[: n // TEST_SHARE]] = True
    return Digits(data.data / 16.0, data.target.astype(np.int64), held_out)


def _train(
    data: Digits,
    epochs: int = 60,
    batch: int = 32,
    rate: float = 0.1,
    momentum: float = 0.9,
    decay: float = 1e-4,
) -> Mlp:
    """SGD with momentum on softmax cross-entropy."""
    rng = np.random.default_rng(SEED)
    x, y = data.x[~data.held_out], data.y[~data.held_out]
    features = x.shape[1]
    params = [
        rng.normal(0, np.sqrt(2 / features), (features, HIDDEN)),
        np.zeros(HIDDEN),
        rng.normal(0, np.sqrt(2 / HIDDEN), (HIDDEN, CLASSES)),
        np.zeros(CLASSES),
    ]
    velocity = [np.zeros_like(p) for p in params]
    for epoch in range(epochs):
        step = rate * (0.5 * (1 + np.cos(np.pi * epoch / epochs)))
        order = rng.permutation(len(x))
        for start in range(0, len(x), batch):
            pick = order[start : start + batch]
            xb, yb = x[pick], y[pick]
            pre = xb @ params[0] + params[1]
            hidden = np.maximum(pre, 0.0)
            logits = hidden @ params[2] + params[3]
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(yb)), yb] -= 1.0
            p /= len(yb)
            dh = (p @ params[2].T) * (pre > 0)
            grads = [xb.T @ dh, dh.sum(axis=0), hidden.T @ p, p.sum(axis=0)]
            for i, g in enumerate(grads):
                velocity[i] = momentum * velocity[i] - step * (g + (decay * params[i] if i % 2 == 0 else 0.0))
                params[i] = params[i] + velocity[i]
    return Mlp(*params)


def trained(data: Digits) -> Mlp:
    """The trained network; kept under build/digits, keyed by this file's text."""
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    path = CACHE / f"mlp-{key}.npz"
    if path.exists():
        with np.load(path) as f:
            return Mlp(f["w1"], f["b1"], f["w2"], f["b2"])
    net = _train(data)
    CACHE.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.npz")
    np.savez(temporary, w1=net.w1, b1=net.b1, w2=net.w2, b2=net.b2)
    temporary.replace(path)
    return net
