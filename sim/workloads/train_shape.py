"""What is trained how long, and how the network is cut for a chip."""

from dataclasses import dataclass

from models.config import ChipConfig
from models.formats import DType
from sim.workloads.layout import WorkloadError
from sim.workloads.mlp import CLASSES, HIDDEN

INPUTS = 64
BUFFERS = 2
BF16, FP32 = DType.BF16, DType.FP32


@dataclass(frozen=True, slots=True)
class Options:
    """`steps` of `tiles` * P samples each, with a learning rate and a momentum; `seed` of the initial weights and the order of samples."""

    steps: int = 90
    tiles: int = 4
    rate: float = 0.2
    momentum: float = 0.9
    seed: int = 2026

    def __post_init__(self) -> None:
        for key in ("steps", "tiles"):
            if getattr(self, key) < 1:
                raise WorkloadError(f"{key} must be at least 1, not {getattr(self, key)!r}")
        if not 0 < self.rate < 100:
            raise WorkloadError(f"rate must be above 0 and below 100, not {self.rate!r}")
        if not 0 <= self.momentum < 1:
            raise WorkloadError(f"momentum must be from 0 to below 1, not {self.momentum!r}")


@dataclass(frozen=True, slots=True)
class Shape:
    """How the network is cut: `p` partitions, `k` tiles of inputs or hidden units, class tiles (first, count), `batch` = `tiles` * p."""

    p: int
    k: int
    tiles: int
    classes: tuple[tuple[int, int], ...]

    @property
    def batch(self) -> int:
        """Samples of a step."""
        return self.tiles * self.p

    @property
    def starts(self) -> dict[str, tuple[int, int]]:
        """(first word, words) of each parameter in a partition's row."""
        sizes = {"w1": self.k * HIDDEN, "b1": HIDDEN, "w2": self.k * CLASSES, "b2": CLASSES}
        out, at = {}, 0
        for name, size in sizes.items():
            out[name] = (at, size)
            at += size
        return out

    @property
    def words(self) -> int:
        """Parameters of a partition."""
        return sum(size for _, size in self.starts.values())


def shape(config: ChipConfig, options: Options) -> Shape:
    """The cut for a chip. Raises WorkloadError where the tensor engine has no BF16."""
    if BF16 not in config.tensor.formats:
        raise WorkloadError(f"training needs bf16 in tensor.formats, which {config.name} has not")
    p = min(config.partitions, INPUTS)
    classes = tuple((c, min(p, CLASSES - c)) for c in range(0, CLASSES, p))
    return Shape(p, INPUTS // p, options.tiles, classes)
