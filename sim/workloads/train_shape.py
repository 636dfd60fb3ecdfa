"""What is trained how long, and how the network is cut for a chip."""

from dataclasses import dataclass
from itertools import accumulate

from models.config import ChipConfig
from models.formats import MX_PACK, MX_ROWS, DType
from sim.workloads.layout import WorkloadError
from sim.workloads.mlp import CLASSES, HIDDEN

INPUTS = 64
MOST = 32
"""Most partitions: what LANE_TRANSPOSE turns as one block."""
BF16, FP32, X4 = DType.BF16, DType.FP32, DType.E4M3X4
FORMATS = {"bf16": BF16, "mxfp8": X4}


@dataclass(frozen=True, slots=True)
class Options:
    """`steps` of `tiles` * p samples each, matmuls in `format`, with a learning rate and a momentum; `seed` of the initial weights and the order of samples."""

    steps: int = 60
    tiles: int = 8
    format: str = "bf16"
    rate: float = 0.2
    momentum: float = 0.9
    seed: int = 2026

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise WorkloadError(f"FORMAT must be one of {', '.join(FORMATS)}, not {self.format!r}")
        for key in ("steps", "tiles"):
            if getattr(self, key) < 1:
                raise WorkloadError(f"{key} must be at least 1, not {getattr(self, key)!r}")
        if self.mx and self.tiles % MX_PACK:
            raise WorkloadError(f"tiles must be a multiple of {MX_PACK} with mxfp8, not {self.tiles!r}")
        if not 0 < self.rate < 100:
            raise WorkloadError(f"rate must be above 0 and below 100, not {self.rate!r}")
        if not 0 <= self.momentum < 1:
            raise WorkloadError(f"momentum must be from 0 to below 1, not {self.momentum!r}")

    @property
    def mx(self) -> bool:
        """Whether matmuls over features, hidden units and samples are MX."""
        return FORMATS[self.format] == X4


@dataclass(frozen=True, slots=True)
class Shape:
    """How the network is cut: `p` partitions; `k` tiles of p inputs or hidden units; class tiles (first, count); a batch of `tiles` * p samples.

    `pack`: tiles whose elements lie side by side, 4 where they are packed into x4 words.
    """

    p: int
    k: int
    tiles: int
    classes: tuple[tuple[int, int], ...]
    pack: int

    @property
    def batch(self) -> int:
        """Samples of a step."""
        return self.tiles * self.p

    @property
    def pitch(self) -> int:
        """Places for the classes of a sample: whole tiles of p."""
        return self.p * len(self.classes)

    @property
    def packs(self) -> int:
        """Words along K of a contraction over features or hidden units."""
        return -(-self.k // self.pack)

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """(first tile, tiles) of the pieces of a batch that take turns on the engines: two where it can be halved."""
        half = self.tiles // 2
        if half and self.tiles % 2 == 0 and half % self.pack == 0:
            return (0, half), (half, half)
        return ((0, self.tiles),)

    @property
    def starts(self) -> dict[str, tuple[int, int]]:
        """(first word, words) of each parameter in a partition's row."""
        sizes = {
            "w1": self.packs * self.pack * HIDDEN,
            "b1": HIDDEN,
            "w2t": len(self.classes) * HIDDEN,
            "b2": CLASSES,
        }
        first = accumulate(sizes.values(), initial=0)
        return dict(zip(sizes, zip(first, sizes.values(), strict=False), strict=True))

    @property
    def words(self) -> int:
        """Parameters of a partition."""
        return sum(size for _, size in self.starts.values())


def shape(config: ChipConfig, options: Options) -> Shape:
    """The cut for a chip. Raises WorkloadError where the tensor engine has not the formats."""
    for need in (BF16, FORMATS[options.format]):
        if need not in config.tensor.formats:
            raise WorkloadError(
                f"training in {options.format} needs {need.name.lower()} in tensor.formats, which {config.name} has not"
            )
    p = min(config.partitions, MOST)
    assert p % MX_ROWS == 0
    classes = tuple((c, min(p, CLASSES - c)) for c in range(0, CLASSES, p))
    return Shape(p, INPUTS // p, options.tiles, classes, MX_PACK if options.mx else 1)
