"""The training program: a step after the other, for the engines of core 0. What it computes: sim.workloads.train."""

from itertools import pairwise
from typing import Any

from models.access import AccessPattern
from models.addressing import SBUF_PARTITION_STRIDE, core_address, memory_address
from models.config import ChipConfig
from models.formats import DType, dtype_bytes
from models.functions import ActFunc
from models.isa import AluOp, Engine, Space
from models.program import Program
from sim.workloads.layout import Allocator
from sim.workloads.marks import Marks, need
from sim.workloads.mlp import CLASSES, HIDDEN
from sim.workloads.train_shape import BF16, BUFFERS, FP32, INPUTS, Options, Shape


class TrainProgram:
    """Writes the program: places in SBUF and PSUM, then a step at a time."""

    def __init__(self, config: ChipConfig, s: Shape, options: Options):
        self.s, self.options = s, options
        self.program = Program(config)
        self.sbuf = Allocator(config.sbuf.bytes_per_partition, "SBUF partition")
        self.psum = Allocator(config.psum.bytes_per_partition, "PSUM partition")
        self.t, self.v, self.a, self.d = (
            self.program.streams[e] for e in (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.SYNC)
        )
        self.mt, self.mv, self.ma, self.md, self.mo = (
            Marks(self.program.semaphore(n)) for n in ("tensor", "vector", "scalar", "loaded", "losses out")
        )
        batch, tiles, words = s.batch, s.tiles, s.words
        self.block = 2 * s.k * batch + 2 * tiles * INPUTS + 4 * tiles * CLASSES
        at = {
            "w": 4 * words,
            "v": 4 * words,
            "wb": 2 * words,
            "eye": 2 * s.p,
            "ones": 2 * s.p,
            "ht": 2 * tiles * HIDDEN,
            "mask": 2 * tiles * HIDDEN,
            "h": 2 * s.k * batch,
            "w2t": 2 * len(s.classes) * HIDDEN,
            "dlt": 2 * len(s.classes) * batch,
            "dpre": 2 * tiles * HIDDEN,
            "dlog": 2 * tiles * CLASSES,
            **{n: 4 * tiles * CLASSES for n in ("z", "e", "tree")},
            **{n: 4 * tiles for n in ("top", "sum", "inverse")},
            "label": 4 * tiles * BUFFERS,
            "loss": 4 * tiles * BUFFERS,
        }
        self.at = {name: self.sbuf.take(size) for name, size in at.items()}
        self.data = [self.sbuf.take(self.block) for _ in range(BUFFERS)]
        sums = {
            "g": words,
            "pre": tiles * HIDDEN,
            "ht": s.k * batch,
            "logits": tiles * CLASSES,
            "w2t": len(s.classes) * HIDDEN,
            "dlt": len(s.classes) * batch,
            "dh": tiles * HIDDEN,
        }
        self.sums = {name: self.psum.take(4 * size) for name, size in sums.items()}
        self.step_done: list[int] = []

    # --- patterns ------------------------------------------------------------------------------------------------
    def sb(self, name: str, dtype: DType, first: int, *dims: tuple[int, int]) -> AccessPattern:
        """Elements of a place in SBUF, from element `first`."""
        return AccessPattern(self.at[name] + first * dtype_bytes(dtype), dtype, dims)

    def ps(self, name: str, first: int, *dims: tuple[int, int]) -> AccessPattern:
        """FP32 words of a place in PSUM, from word `first`."""
        return AccessPattern(self.sums[name] + 4 * first, FP32, dims, Space.PSUM)

    def x(self, q: int, kt: int, tile: int) -> AccessPattern:
        """Inputs [features, P samples] of buffer `q`."""
        s = self.s
        return AccessPattern(self.data[q] + 2 * (kt * s.batch + tile * s.p), BF16, ((1, s.p),))

    def xt(self, q: int, kt: int, tile: int) -> AccessPattern:
        """Inputs [samples, P features]."""
        s = self.s
        base = self.data[q] + 2 * s.k * s.batch
        return AccessPattern(base + 2 * (tile * INPUTS + kt * s.p), BF16, ((1, s.p),))

    def onehot(self, q: int) -> AccessPattern:
        """Targets [samples, tiles x 10]."""
        s = self.s
        base = self.data[q] + 2 * s.k * s.batch + 2 * s.tiles * INPUTS
        return AccessPattern(base, FP32, ((1, s.tiles * CLASSES),))

    def weight(self, name: str, first: int, count: int) -> AccessPattern:
        """BF16 copy of part of a parameter."""
        return self.sb("wb", BF16, self.s.starts[name][0] + first, (1, count))

    def grad(self, name: str, first: int, count: int) -> AccessPattern:
        """Its gradient's place."""
        return self.ps("g", self.s.starts[name][0] + first, (1, count))

    # --- engines -------------------------------------------------------------------------------------------------
    def matmuls(
        self,
        dst: AccessPattern,
        pairs: list[tuple[AccessPattern, AccessPattern, int]],
        m: int,
        *,
        mark: bool = False,
    ) -> None:
        """dst [m, N] = the sum of stationary[k, m]^T moving[k, N] over `pairs` (stationary, moving, k)."""
        for i, (stationary, moving, k) in enumerate(pairs):
            self.t.load_stationary(stationary, k=k, m=m)
            last = mark and i == len(pairs) - 1
            update = self.mt.mark() if last else None
            self.t.matmul(dst, moving, k=k, m=m, accumulate=i > 0, update=update)

    def tree(self, op: AluOp, source: str, out: AccessPattern, *, mark: bool = False) -> None:
        """`out` [tiles] = op over the ten classes of `source` [tiles x 10]."""
        tiles, p, n = self.s.tiles, self.s.p, CLASSES
        step, place = n, source

        def part(first: int, count: int) -> AccessPattern:
            return self.sb(place, FP32, first, (step, tiles), (1, count))

        odd: AccessPattern | None = None
        while n > 1:
            half = n // 2
            rest = part(n - 1, 1) if n % 2 else None
            final = half == 1 and odd is None and rest is None
            dst = out if final else self.sb("tree", FP32, 0, (CLASSES, tiles), (1, half))
            self.v.tensor_tensor(dst, part(0, half), part(half, half), op, parts=p)
            odd = rest if rest is not None and odd is None else odd
            place, step, n = "tree", CLASSES, half
        update = self.mv.mark() if mark else None
        if odd is not None:
            self.v.tensor_tensor(
                out, self.sb("tree", FP32, 0, (CLASSES, tiles)), _flat(odd), op, parts=p, update=update
            )

    # --- a step --------------------------------------------------------------------------------------------------
    def step(self, n: int, memory: int, losses: int) -> None:
        """Step `n`, whose samples are at byte `memory`; its losses go to byte `losses`."""
        q = n % BUFFERS
        self.load(n, q, memory)
        self.forward(q)
        self.softmax(q)
        self.backward(q)
        self.loss(n, q, losses)

    def load(self, n: int, q: int, memory: int) -> None:
        """Samples into their buffer, when the step before last has no use for it any more."""
        if n >= BUFFERS:
            need(self.d, self.mv.semaphore.ge(self.step_done[n - BUFFERS]))
        self.d.dma(
            memory_address(memory),
            core_address(0, Space.SBUF, 0, self.data[q]),
            row_bytes=self.block,
            rows=self.s.p,
            src_stride=self.block,
            dst_stride=SBUF_PARTITION_STRIDE,
            update=self.md.mark(),
        )

    def forward(self, q: int) -> None:
        """Hidden layer and logits."""
        s, p = self.s, self.s.p
        updated = self.mv.here()
        need(self.t, self.md.here(), updated)
        eye, ones = self.sb("eye", BF16, 0, (1, p)), self.sb("ones", BF16, 0, (1, p))
        for first, (c, count) in zip(range(0, len(s.classes) * HIDDEN, HIDDEN), s.classes, strict=True):
            for kt in range(s.k):
                stationary = self.weight("w2", kt * CLASSES + c, count)
                self.matmuls(self.ps("w2t", first + kt * p, (1, p)), [(stationary, eye, p)], count)
        for tile in range(s.tiles):
            pairs = [(self.x(q, kt, tile), self.weight("w1", kt * HIDDEN, HIDDEN), p) for kt in range(s.k)]
            pairs.append((ones, self.weight("b1", 0, HIDDEN), 1))
            self.matmuls(self.ps("pre", tile * HIDDEN, (1, HIDDEN)), pairs, p, mark=True)
            need(self.v, self.mt.here())
            self.v.tensor_scalar(
                self.sb("ht", BF16, tile * HIDDEN, (1, HIDDEN)),
                self.ps("pre", tile * HIDDEN, (1, HIDDEN)),
                AluOp.MAX,
                0.0,
                parts=p,
                update=self.mv.mark(),
            )
        need(self.a, self.mv.here())
        every = (1, s.tiles * HIDDEN)
        self.a.activate(
            self.sb("mask", BF16, 0, every),
            self.sb("ht", BF16, 0, every),
            ActFunc.D_RELU,
            parts=p,
            update=self.ma.mark(),
        )
        hidden_done = self.mv.count
        for tile in range(s.tiles):
            need(self.t, self.mv.semaphore.ge(hidden_done - s.tiles + 1 + tile))
            for kt in range(s.k):
                stationary = self.sb("ht", BF16, tile * HIDDEN + kt * p, (1, p))
                last = tile == s.tiles - 1 and kt == s.k - 1
                dst = self.ps("ht", kt * s.batch + tile * p, (1, p))
                self.matmuls(dst, [(stationary, eye, p)], p, mark=last)
        need(self.v, self.mt.here())
        everything = (1, s.k * s.batch)
        self.v.tensor_copy(
            self.sb("h", BF16, 0, everything), self.ps("ht", 0, everything), parts=p, update=self.mv.mark()
        )
        need(self.t, self.mv.here())
        for tile in range(s.tiles):
            pairs = [
                (
                    self.sb("h", BF16, kt * s.batch + tile * p, (1, p)),
                    self.weight("w2", kt * CLASSES, CLASSES),
                    p,
                )
                for kt in range(s.k)
            ]
            pairs.append((ones, self.weight("b2", 0, CLASSES), 1))
            dst = self.ps("logits", tile * CLASSES, (1, CLASSES))
            self.matmuls(dst, pairs, p, mark=tile == s.tiles - 1)

    def softmax(self, q: int) -> None:
        """Probabilities, and their difference from the targets times rate / batch."""
        s, p = self.s, self.s.p
        all_classes, tiles = (1, s.tiles * CLASSES), (1, s.tiles)
        spread = (tiles, (0, CLASSES))
        for first, (_, count) in zip(range(0, len(s.classes) * HIDDEN, HIDDEN), s.classes, strict=True):
            self.v.tensor_copy(
                self.sb("w2t", BF16, first, (1, HIDDEN)), self.ps("w2t", first, (1, HIDDEN)), parts=count
            )
        need(self.v, self.mt.here())
        self.v.tensor_copy(self.sb("z", FP32, 0, all_classes), self.ps("logits", 0, all_classes), parts=p)
        self.tree(AluOp.MAX, "z", self.sb("top", FP32, 0, tiles))
        z = self.sb("z", FP32, 0, all_classes)
        grid = self.sb("z", FP32, 0, (CLASSES, s.tiles), (1, CLASSES))
        self.v.tensor_tensor(
            grid, grid, self.sb("top", FP32, 0, *spread), AluOp.SUB, parts=p, update=self.mv.mark()
        )
        need(self.a, self.mv.here())
        e = self.sb("e", FP32, 0, all_classes)
        self.a.activate(e, z, ActFunc.EXP, parts=p, update=self.ma.mark())
        need(self.v, self.ma.here())
        self.tree(AluOp.ADD, "e", self.sb("sum", FP32, 0, tiles), mark=True)
        need(self.a, self.mv.here())
        self.a.activate(
            self.sb("inverse", FP32, 0, tiles),
            self.sb("sum", FP32, 0, tiles),
            ActFunc.RECIPROCAL,
            parts=p,
            update=self.ma.mark(),
        )
        need(self.v, self.ma.here())
        grid = self.sb("e", FP32, 0, (CLASSES, s.tiles), (1, CLASSES))
        self.v.tensor_tensor(grid, grid, self.sb("inverse", FP32, 0, *spread), AluOp.MUL, parts=p)
        self.v.tensor_tensor(z, e, self.onehot(q), AluOp.SUB, parts=p)
        self.v.tensor_scalar(
            self.sb("dlog", BF16, 0, all_classes),
            z,
            AluOp.MUL,
            self.options.rate / s.batch,
            parts=p,
            update=self.mv.mark(),
        )

    def backward(self, q: int) -> None:
        """Gradients, and each group of parameters updated as soon as its gradients are there."""
        s, p = self.s, self.s.p
        eye, ones = self.sb("eye", BF16, 0, (1, p)), self.sb("ones", BF16, 0, (1, p))
        tiles = range(s.tiles)

        def dlog(tile: int, first: int = 0, count: int = CLASSES) -> AccessPattern:
            return self.sb("dlog", BF16, tile * CLASSES + first, (1, count))

        def dpre(tile: int) -> AccessPattern:
            return self.sb("dpre", BF16, tile * HIDDEN, (1, HIDDEN))

        need(self.t, self.mv.here())
        for first, (c, count) in zip(range(0, len(s.classes) * s.batch, s.batch), s.classes, strict=True):
            for tile in tiles:
                last = tile == s.tiles - 1 and c + count == CLASSES
                dst = self.ps("dlt", first + tile * p, (1, p))
                self.matmuls(dst, [(dlog(tile, c, count), eye, p)], count, mark=last)
        need(self.v, self.mt.here())
        for i, (first, (_, count)) in enumerate(
            zip(range(0, len(s.classes) * s.batch, s.batch), s.classes, strict=True)
        ):
            update = self.mv.mark() if i == len(s.classes) - 1 else None
            self.v.tensor_copy(
                self.sb("dlt", BF16, first, (1, s.batch)),
                self.ps("dlt", first, (1, s.batch)),
                parts=count,
                update=update,
            )
        for kt in range(s.k):
            pairs = [(self.sb("ht", BF16, t * HIDDEN + kt * p, (1, p)), dlog(t), p) for t in tiles]
            self.matmuls(self.grad("w2", kt * CLASSES, CLASSES), pairs, p)
        self.matmuls(self.grad("b2", 0, CLASSES), [(ones, dlog(t), p) for t in tiles], p, mark=True)
        second = self.mt.here()
        need(self.t, self.mv.here())
        for tile in tiles:
            pairs = [
                (
                    self.sb("dlt", BF16, i * s.batch + tile * p, (1, p)),
                    self.sb("w2t", BF16, i * HIDDEN, (1, HIDDEN)),
                    count,
                )
                for i, (_, count) in enumerate(s.classes)
            ]
            self.matmuls(self.ps("dh", tile * HIDDEN, (1, HIDDEN)), pairs, p, mark=tile == s.tiles - 1)
        back = self.mt.here()
        need(self.v, second)
        self.update("w2", "b2")
        need(self.v, back, self.ma.here())
        every = (1, s.tiles * HIDDEN)
        self.v.tensor_tensor(
            self.sb("dpre", BF16, 0, every),
            self.ps("dh", 0, every),
            self.sb("mask", BF16, 0, every),
            AluOp.MUL,
            parts=p,
            update=self.mv.mark(),
        )
        need(self.t, self.mv.here())
        for kt in range(s.k):
            pairs = [(self.xt(q, kt, t), dpre(t), p) for t in tiles]
            half = kt == (s.k - 1) // 2
            self.matmuls(self.grad("w1", kt * HIDDEN, HIDDEN), pairs, p, mark=half)
        middle = self.mt.here()
        self.matmuls(self.grad("b1", 0, HIDDEN), [(ones, dpre(t), p) for t in tiles], p, mark=True)
        cut = HIDDEN * ((s.k - 1) // 2 + 1)
        need(self.v, middle)
        self.change(0, cut)
        need(self.v, self.mt.here())
        self.change(cut, s.starts["w2"][0] - cut, mark=True)
        self.step_done.append(self.mv.count)

    def update(self, *names: str) -> None:
        """Update neighbouring parameters."""
        starts = [self.s.starts[n] for n in names]
        assert all(a + n == b for (a, n), (b, _) in pairwise(starts))
        self.change(starts[0][0], sum(n for _, n in starts))

    def change(self, first: int, count: int, *, mark: bool = False) -> None:
        """v = momentum v - g, w = w + v, and the BF16 copy, of `count` words."""
        p, dims = self.s.p, (1, count)
        v, w = self.sb("v", FP32, first, dims), self.sb("w", FP32, first, dims)
        self.v.scalar_tensor_tensor(
            v, v, AluOp.MUL, self.options.momentum, AluOp.SUB, self.ps("g", first, dims), parts=p
        )
        self.v.tensor_tensor(w, w, v, AluOp.ADD, parts=p)
        update = self.mv.mark() if mark else None
        self.v.tensor_copy(self.sb("wb", BF16, first, dims), w, parts=p, update=update)

    def loss(self, n: int, q: int, losses: int) -> None:
        """log of the label's probability, to memory; off the way of everything else."""
        s, p = self.s, self.s.p
        tiles = (1, s.tiles)
        label, loss = self.sb("label", FP32, q * s.tiles, tiles), self.sb("loss", FP32, q * s.tiles, tiles)
        z, e = (self.sb(name, FP32, 0, (1, s.tiles * CLASSES)) for name in ("z", "e"))
        self.v.tensor_tensor(z, e, self.onehot(q), AluOp.MUL, parts=p)
        self.tree(AluOp.ADD, "z", label, mark=True)
        self.step_done[n] = self.mv.count
        need(self.a, self.mv.here())
        if n >= BUFFERS:
            need(self.a, self.mo.semaphore.ge(self.mo.count - BUFFERS + 1))
        self.a.activate(loss, label, ActFunc.LOG, parts=p, update=self.ma.mark())
        need(self.d, self.ma.here())
        self.d.dma(
            core_address(0, Space.SBUF, 0, self.at["loss"] + 4 * q * s.tiles),
            memory_address(losses),
            row_bytes=4 * s.tiles,
            rows=p,
            src_stride=SBUF_PARTITION_STRIDE,
            dst_stride=4 * s.tiles,
            update=self.mo.mark(),
        )

    def copy(self, place: str, memory: int, size: int, *, out: bool = False, **sync: Any) -> None:
        """`size` bytes of each partition between a place and rows of memory."""
        inside, outside = core_address(0, Space.SBUF, 0, self.at[place]), memory_address(memory)
        src, dst = (inside, outside) if out else (outside, inside)
        strides = (SBUF_PARTITION_STRIDE, size) if out else (size, SBUF_PARTITION_STRIDE)
        self.d.dma(
            src, dst, row_bytes=size, rows=self.s.p, src_stride=strides[0], dst_stride=strides[1], **sync
        )


def _flat(ap: AccessPattern) -> AccessPattern:
    """A pattern without its innermost dimension of one element."""
    return AccessPattern(ap.addr, ap.dtype, ap.dims[:-1], ap.space, ap.part)
