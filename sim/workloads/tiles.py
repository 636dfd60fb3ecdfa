"""Matrices cut for a core: rows on partitions, a tile of P rows after the other along each partition; and PSUM places that are given back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from models.access import AccessPattern
from models.config import ChipConfig
from models.formats import DType, dtype_bytes
from models.isa import Space
from sim.workloads.layout import WorkloadError

ALIGN = 16
"""Bytes: a DMA's chunk, so that a matrix starts with one."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix [rows, cols], rows a multiple of `p`: element (r, c) is in partition r % p, element (r // p) * cols + c from byte `addr` on."""

    addr: int
    dtype: DType
    rows: int
    cols: int
    p: int
    space: Space = Space.SBUF

    @property
    def tiles(self) -> int:
        """Tiles of p rows."""
        return self.rows // self.p

    def at(self, first: int, *dims: tuple[int, int]) -> AccessPattern:
        """(stride, count) dimensions from a partition's element `first` on."""
        return AccessPattern(self.addr + first * dtype_bytes(self.dtype), self.dtype, dims, self.space)

    def all(self) -> AccessPattern:
        """Every element, in the order of the partition."""
        return self.at(0, (1, self.tiles * self.cols))

    def tile(self, tile: int, first: int = 0, count: int | None = None) -> AccessPattern:
        """Columns `first` on, `count` of them (default: all that are left), of a tile."""
        return self.at(tile * self.cols + first, (1, self.cols - first if count is None else count))

    def columns(self, first: int, count: int) -> AccessPattern:
        """Columns of every tile, as two dimensions (tile, column)."""
        return self.at(first, (self.cols, self.tiles), (1, count))

    def per_row(self, count: int) -> AccessPattern:
        """A one-column matrix read as if it had `count` equal columns."""
        return self.at(0, (1, self.tiles), (0, count))

    def per_column(self, tiles: int) -> AccessPattern:
        """The first tile read as if there were `tiles` equal ones."""
        return self.at(0, (0, tiles), (1, self.cols))


class Sums:
    """PSUM places for results, given round robin so that a new one seldom waits for the readers of an old one."""

    def __init__(self, config: ChipConfig):
        self.p, self.size = config.partitions, config.psum.bytes_per_partition
        self.next = 0
        self.live: list[tuple[int, int]] = []

    @contextmanager
    def take(self, rows: int, cols: int) -> Iterator[Matrix]:
        """An FP32 matrix in PSUM; its bytes are no one else's within the `with`. Raises WorkloadError when there is no room."""
        count = 4 * (rows // self.p) * cols
        tries = [self.next, *sorted(end for _, end in self.live if end >= self.next), 0]
        tries += sorted(end for _, end in self.live)
        for start in tries:
            end = start + -(-count // ALIGN) * ALIGN
            if end <= self.size and all(end <= a or start >= b for a, b in self.live):
                break
        else:
            taken = sum(b - a for a, b in self.live)
            raise WorkloadError(
                f"PSUM partition of {self.size} bytes is too small: {count} needed where {taken} are taken"
            )
        self.live.append((start, end))
        self.next = end
        try:
            yield Matrix(start, DType.FP32, rows, cols, self.p, Space.PSUM)
        finally:
            self.live.remove((start, end))
