"""Sizes of a transformer block, what of it lies in memory, and how it is cut for a chip."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.config import ChipConfig
from models.formats import DType
from sim.workloads.layout import WorkloadError

EPSILON = 1e-5
"""Added to the mean square in RMSNorm."""
ROPE_BASE = 10_000.0
MASKED = -1e30
"""Added to the scores of later positions: far below every score, and finite, so that no NaN can come of it."""


@dataclass(frozen=True, slots=True)
class Options:
    """Sizes of the block; None: 2 P positions of width 2 P, hidden 4 P. `seed` of weights, input and gradient."""

    sequence: int | None = None
    width: int | None = None
    heads: int = 2
    hidden: int | None = None
    seed: int = 2026


@dataclass(frozen=True, slots=True)
class Shape:
    """`p` partitions; `sequence` positions, `width` features in `heads` heads, `hidden` features of the MLP."""

    p: int
    sequence: int
    width: int
    heads: int
    hidden: int

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise WorkloadError(f"heads must be at least 1, not {self.heads!r}")
        for key in ("sequence", "hidden"):
            value = getattr(self, key)
            if value < 1 or value % self.p:
                raise WorkloadError(f"{key} must be a multiple of {self.p} (the partitions), not {value!r}")
        if self.width < 1 or self.width % (self.p * self.heads):
            raise WorkloadError(
                f"width must be a multiple of {self.p * self.heads} (partitions x heads), not {self.width!r}"
            )

    @property
    def head(self) -> int:
        """Features of a head."""
        return self.width // self.heads

    @property
    def tiles(self) -> int:
        """Tiles of P positions."""
        return self.sequence // self.p

    @property
    def weights(self) -> dict[str, tuple[int, int]]:
        """Shape of each weight: projections [in, out], gains one row. `wqkv` is [Wq | Wk | Wv], `wgu` [gate | up]."""
        d, f = self.width, self.hidden
        return {
            "gain1": (1, d),
            "wqkv": (d, 3 * d),
            "wo": (d, d),
            "gain2": (1, d),
            "wgu": (d, 2 * f),
            "w2": (f, d),
        }

    @property
    def outputs(self) -> dict[str, tuple[int, int]]:
        """Shape of each result: output, attention of all heads, gradients of the input and of each weight."""
        rows = (self.sequence, self.width)
        grads = {f"d{name}": size for name, size in self.weights.items()}
        return {"y": rows, "attention": (self.heads * self.sequence, self.sequence), "dx": rows, **grads}


def shape(config: ChipConfig, options: Options) -> Shape:
    """The block for a chip. Raises WorkloadError for sizes that do not go with it, or where the tensor engine has no BF16."""
    if DType.BF16 not in config.tensor.formats:
        raise WorkloadError(f"the transformer needs bf16 in tensor.formats, which {config.name} has not")
    p = config.partitions
    sizes = (options.sequence, options.width, options.hidden)
    s, d, f = (
        value if value is not None else times * p for value, times in zip(sizes, (2, 2, 4), strict=True)
    )
    return Shape(p, s, d, options.heads, f)


def rotation(s: Shape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """RoPE's cos and sin, [sequence, head / 2]: feature i of a head turns with feature i + head / 2."""
    half = s.head // 2
    angle = np.arange(s.sequence)[:, None] * ROPE_BASE ** (-np.arange(half) / half)
    return np.cos(angle), np.sin(angle)
