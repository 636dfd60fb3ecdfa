"""Which convolution network is computed, and how it is cut for a chip."""

import math
from dataclasses import dataclass

from models.config import ChipConfig
from models.formats import DType
from sim.workloads.layout import WorkloadError

BF16, FP32 = DType.BF16, DType.FP32
KERNELS, STRIDES, PADDINGS = (1, 3), (1, 2), (0, 1)
GROUP_COLUMNS = 128
"""Columns of a group of whole images: long enough for matmuls to stream, short enough for the engines behind to start early."""
BUFFERS = 2
"""PSUM buffers of the convolution: one fills while the vector engine empties the other."""


@dataclass(frozen=True, slots=True)
class Options:
    """`images` of `channels` x `height` x `width` through `filters` kernels of `kernel` x `kernel` with `stride` and `padding` zeros on
    each side, layer normalisation with `epsilon`, GELU and a linear layer to `classes`. Raises WorkloadError for what is no such network.
    """

    images: int
    channels: int
    filters: int
    height: int = 8
    width: int = 8
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    classes: int = 10
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        for key in ("images", "channels", "filters", "classes"):
            if getattr(self, key) < 1:
                raise WorkloadError(f"{key} must be at least 1, not {getattr(self, key)!r}")
        for key, allowed in (("kernel", KERNELS), ("stride", STRIDES), ("padding", PADDINGS)):
            if getattr(self, key) not in allowed:
                names = " or ".join(map(str, allowed))
                raise WorkloadError(f"{key} must be {names}, not {getattr(self, key)!r}")
        least = max(1, self.kernel - 2 * self.padding)
        for key in ("height", "width"):
            if getattr(self, key) < least:
                raise WorkloadError(
                    f"{key} must be at least {least} for kernel {self.kernel} and padding {self.padding}, "
                    f"not {getattr(self, key)!r}"
                )
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise WorkloadError(f"epsilon must be above 0 and finite, not {self.epsilon!r}")

    @property
    def taps(self) -> int:
        """Places of the kernel."""
        return self.kernel * self.kernel

    @property
    def out_height(self) -> int:
        """Rows of an output image."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of an output image."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def pixels(self) -> int:
        """Output pixels of an image."""
        return self.out_height * self.out_width

    @property
    def features(self) -> int:
        """Numbers of an image that are normalised together."""
        return self.filters * self.pixels


@dataclass(frozen=True, slots=True)
class Chunk:
    """Output of one PSUM buffer: `rows` output rows from `row` on, of `images` images from `image` on."""

    image: int
    images: int
    row: int
    rows: int


@dataclass(frozen=True, slots=True)
class Shape:
    """How it is cut: images of each core (first, count), and the `words` of one PSUM buffer."""

    options: Options
    cores: tuple[tuple[int, int], ...]
    words: int

    @property
    def most(self) -> int:
        """Images of the core that has most."""
        return max(count for _, count in self.cores)

    def groups(self, images: int) -> list[list[Chunk]]:
        """`images` of a core in groups that are normalised together, each as the chunks that it is computed in.

        A group is one image or more of up to GROUP_COLUMNS pixels together, or one image in chunks of whole rows.
        """
        o = self.options
        together = max(1, min(self.words, GROUP_COLUMNS) // o.pixels)
        if self.words >= o.pixels:
            return [
                [Chunk(first, min(together, images - first), 0, o.out_height)]
                for first in range(0, images, together)
            ]
        rows = self.words // o.out_width
        cut = [(r, min(rows, o.out_height - r)) for r in range(0, o.out_height, rows)]
        return [[Chunk(image, 1, *part) for part in cut] for image in range(images)]


def default(config: ChipConfig, images: int | None = None) -> Options:
    """The network of `make sim`: as many channels and filters as the array has rows and columns (at most 16), a tile of images a core."""
    p = min(config.partitions, 16)
    return Options(images if images is not None else config.cores * p, channels=p, filters=p)


def shape(config: ChipConfig, options: Options) -> Shape:
    """The cut for a chip. Raises WorkloadError where the network is too large for it, or the tensor engine has no BF16."""
    if BF16 not in config.tensor.formats:
        raise WorkloadError(f"convolution needs bf16 in tensor.formats, which {config.name} has not")
    p = config.partitions
    for key, most in (("channels", p), ("filters", p), ("images", config.cores * p)):
        if getattr(options, key) > most:
            raise WorkloadError(
                f"{key} must be from 1 to {most} on {config.name}, not {getattr(options, key)!r}"
            )
    each = -(-options.images // config.cores)
    cores = tuple((first, min(each, options.images - first)) for first in range(0, options.images, each))
    bank = config.psum.bank_bytes // 4
    if options.classes > bank:
        raise WorkloadError(
            f"classes must be from 1 to {bank} on {config.name}, a PSUM bank, not {options.classes!r}"
        )
    # what is not buffers: two sums an image and the logits, each from a multiple of 16 bytes on
    rest = config.psum.bytes_per_partition // 4 - 2 * _up(each) - _up(options.classes)
    words = min(bank, rest // BUFFERS // 4 * 4)
    if words < options.out_width:
        raise WorkloadError(
            f"width must give at most {max(words, 0)} columns of output on {config.name}, a PSUM buffer, "
            f"not {options.out_width} (width {options.width!r})"
        )
    return Shape(options, cores, words)


def _up(words: int) -> int:
    return -(-words // 4) * 4
