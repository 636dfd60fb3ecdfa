"""Where training keeps its data: parameters, activations and gradients in SBUF, sums in PSUM, and the block of samples that a step loads."""

from dataclasses import dataclass

from models.access import AccessPattern
from models.config import ChipConfig
from models.formats import DType, dtype_bytes
from models.isa import Space
from sim.workloads.layout import Allocator
from sim.workloads.mlp import CLASSES, HIDDEN
from sim.workloads.tiled import Packed, Tiled
from sim.workloads.train_shape import BF16, FP32, INPUTS, X4, Shape

BUFFERS = 2
"""Blocks of samples, and losses on their way to memory, at a time."""
MASTERS = ("w", "v", "wb")
"""Parameters' places: master weights, momentum, and the copy that is multiplied with."""


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of a step's samples in a partition: [x | xT | scales of x | scales of xT | onehot], scales only with x4 words."""

    x: int
    xt: int
    x_scale: int
    xt_scale: int
    onehot: int
    size: int

    @classmethod
    def of(cls, s: Shape) -> "Block":
        """For a cut."""
        groups = s.tiles // s.pack
        word, scale = (2, 0) if s.pack == 1 else (4, 1)
        sizes = (
            word * s.packs * s.batch,
            word * groups * INPUTS,
            scale * s.packs * s.batch,
            scale * groups * INPUTS,
            4 * s.tiles * CLASSES,
        )
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + -(-size // 4) * 4)
        x, xt, x_scale, xt_scale, onehot, size = starts
        return cls(x, xt, x_scale, xt_scale, onehot, size)


class Places:
    """Every place of the program. Raises WorkloadError for what does not fit."""

    def __init__(self, config: ChipConfig, s: Shape):
        self.s, self.block = s, Block.of(s)
        self.sbuf = Allocator(config.sbuf.bytes_per_partition, "SBUF partition")
        self.psum = Allocator(config.psum.bytes_per_partition, "PSUM partition")
        self.params = {
            name: self.sbuf.take(dtype_bytes(dtype) * s.words)
            for name, dtype in zip(MASTERS, (FP32, FP32, BF16), strict=True)
        }
        tiles, k, pack = s.tiles, s.k, s.pack
        self.ones = self._tiled(BF16, 1, s.p)
        self.ht = self._tiled(BF16, tiles, HIDDEN, pack)
        self.h = self._tiled(BF16, k, s.batch, pack)
        self.w2 = self._tiled(BF16, k, s.pitch, pack)
        self.dlog = self._tiled(BF16, tiles, s.pitch, pack)
        self.dlt = self._tiled(BF16, len(s.classes), s.batch)
        self.dpre = self._tiled(BF16, tiles, HIDDEN, pack)
        self.z, self.e = (self._tiled(FP32, tiles, CLASSES) for _ in range(2))
        self.top, self.sum, self.inverse = (self._tiled(FP32, tiles, 1) for _ in range(3))
        self.label, self.loss = (self._tiled(FP32, tiles * BUFFERS, 1) for _ in range(2))
        self.data = [self.sbuf.take(self.block.size) for _ in range(BUFFERS)]
        if pack > 1:
            groups = tiles // pack
            self.w1x, self.w2x = self._packed(s.packs, HIDDEN), self._packed(s.packs, s.pitch)
            self.hx, self.htx = self._packed(s.packs, s.batch), self._packed(groups, HIDDEN)
            self.dlogx, self.dprex = self._packed(groups, s.pitch), self._packed(groups, HIDDEN)
        self.pre, self.dh = (self._sums(tiles, HIDDEN) for _ in range(2))
        self.g = {
            "w1": self._sums(s.packs * pack, HIDDEN, pack),
            "b1": self._sums(1, HIDDEN),
            "w2t": self._sums(len(s.classes), HIDDEN),
            "b2": self._sums(1, CLASSES),
        }
        self.logits = self._sums(tiles, CLASSES)

    def _tiled(self, dtype: DType, tiles: int, width: int, pack: int = 1) -> Tiled:
        out = Tiled(0, dtype, tiles, width, pack)
        return Tiled(self.sbuf.take(dtype_bytes(dtype) * out.size), dtype, tiles, width, pack)

    def _packed(self, packs: int, width: int) -> Packed:
        return Packed.of(self.sbuf.take(4 * packs * width), self.sbuf.take(packs * width), X4, packs, width)

    def _sums(self, tiles: int, width: int, pack: int = 1) -> Tiled:
        return Tiled(self.psum.take(4 * tiles * width), FP32, tiles, width, pack, Space.PSUM)

    def param(self, place: str, name: str) -> Tiled:
        """A parameter in one of MASTERS: w1 as `k` tiles of inputs, w2t as tiles of classes, a bias as one tile."""
        s, dtype = self.s, BF16 if place == "wb" else FP32
        first, size = s.starts[name]
        width = CLASSES if name == "b2" else HIDDEN
        pack = s.pack if name == "w1" else 1
        return Tiled(self.params[place] + first * dtype_bytes(dtype), dtype, size // width, width, pack)

    def x(self, q: int) -> tuple[Tiled, Tiled | None]:
        """Inputs [features, samples] of buffer `q`, and scales."""
        return self._samples(q, self.block.x, self.block.x_scale, self.s.packs, self.s.batch)

    def xt(self, q: int) -> tuple[Tiled, Tiled | None]:
        """Inputs [samples, features] of buffer `q`, and scales."""
        return self._samples(q, self.block.xt, self.block.xt_scale, self.s.tiles // self.s.pack, INPUTS)

    def _samples(self, q: int, words: int, scales: int, tiles: int, width: int) -> tuple[Tiled, Tiled | None]:
        dtype = BF16 if self.s.pack == 1 else X4
        found = Tiled(self.data[q] + words, dtype, tiles, width)
        return found, None if self.s.pack == 1 else Tiled(self.data[q] + scales, DType.E8M0, tiles, width)

    def onehot(self, q: int) -> Tiled:
        """Targets times rate / batch [samples, classes] of buffer `q`."""
        return Tiled(self.data[q] + self.block.onehot, FP32, self.s.tiles, CLASSES)

    def whole(self, q: int) -> AccessPattern:
        """A buffer as words."""
        return Tiled(self.data[q], FP32, 1, self.block.size // 4).all()
