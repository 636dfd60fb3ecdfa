"""Tiles along a partition whose elements lie side by side where they are packed into x4 words, and the words and scales they are packed into."""

from dataclasses import dataclass

from models.access import AccessPattern
from models.formats import DType, dtype_bytes
from models.isa import Space


@dataclass(frozen=True, slots=True)
class Tiled:
    """`tiles` tiles of `width` elements in every partition, from byte `addr` on. Element x of tile t is number (t // pack * width + x) * pack + t % pack.

    pack: 1, or 4 for what MX_CAST packs: element j of an x4 word comes from tile j of four.
    """

    addr: int
    dtype: DType
    tiles: int
    width: int
    pack: int = 1
    space: Space = Space.SBUF

    @property
    def size(self) -> int:
        """Elements, with those of tiles that only fill up the last word."""
        return -(-self.tiles // self.pack) * self.pack * self.width

    def at(self, first: int, *dims: tuple[int, int]) -> AccessPattern:
        """(stride, count) dimensions from element number `first` on."""
        return AccessPattern(self.addr + first * dtype_bytes(self.dtype), self.dtype, dims, self.space)

    def all(self) -> AccessPattern:
        """Every element in the order in which they lie."""
        return self.at(0, (1, self.size))

    def tile(self, t: int, first: int = 0, count: int | None = None) -> AccessPattern:
        """Elements `first` on, `count` of them (default: all that are left), of a tile."""
        n = self.width - first if count is None else count
        return self.at((t // self.pack * self.width + first) * self.pack + t % self.pack, (self.pack, n))

    def dims(self, tiles: int) -> tuple[tuple[int, int], ...]:
        """Dimensions that walk over so many tiles: whole packs, or less than one."""
        if self.pack == 1:
            return ((self.width, tiles),)
        if tiles <= self.pack:
            return ((1, tiles),)
        if tiles % self.pack:
            raise ValueError(f"tiles must be at most {self.pack} or a multiple of it, not {tiles}")
        return (self.width * self.pack, tiles // self.pack), (1, self.pack)

    def some(self, t: int, tiles: int, first: int = 0, count: int | None = None) -> AccessPattern:
        """Elements `first` on of each of `tiles` tiles from `t` on (the first of a pack), tile by tile."""
        n = self.width - first if count is None else count
        start = (t // self.pack * self.width + first) * self.pack + t % self.pack
        return self.at(start, *self.dims(tiles), (self.pack, n))

    def span(self, t: int, tiles: int) -> AccessPattern:
        """All elements of whole packs of tiles in the order in which they lie."""
        return self.at(t * self.width, (1, tiles * self.width))


@dataclass(frozen=True, slots=True)
class Packed:
    """x4 words [packs, width] of a Tiled in every partition, and their scales in the first ones."""

    words: Tiled
    scales: Tiled

    @classmethod
    def of(cls, words: int, scales: int, dtype: DType, packs: int, width: int) -> "Packed":
        """At bytes `words` and `scales` of the partitions."""
        return cls(Tiled(words, dtype, packs, width), Tiled(scales, DType.E8M0, packs, width))
