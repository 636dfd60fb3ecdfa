"""The training program: a step after the other, for the engines of core 0. What it computes: sim.workloads.train.

The text's order is each engine's order. A batch is worked through in two parts, so that one part's softmax runs beside the other's matmuls, and the
first layer's gradients come a tile of inputs at a time, so that a tile's update runs beside the next one's matmuls.
"""

from models.access import AccessPattern
from models.addressing import SBUF_PARTITION_STRIDE, core_address, memory_address
from models.config import ChipConfig
from models.functions import ActFunc
from models.isa import AluOp, Engine, Space
from sim.workloads.dataflow import Dataflow
from sim.workloads.mlp import CLASSES
from sim.workloads.tiled import Packed, Tiled
from sim.workloads.train_places import BUFFERS, Places
from sim.workloads.train_shape import BF16, FP32, Options, Shape

Part = tuple[int, int]
"""(first tile, tiles) of a batch."""


class TrainProgram:
    """Writes the program, a step at a time."""

    def __init__(self, config: ChipConfig, s: Shape, options: Options):
        self.s, self.options = s, options
        self.at = Places(config, s)
        self.flow = Dataflow(config, s.p)

    def begin(self) -> None:
        """Constants, places whose unused elements are read, and what follows from the initial weights. Momentum starts at +0."""
        at, flow = self.at, self.flow
        flow.memset(at.ones.all(), 1.0)
        for place in (at.h, at.w2, at.dlog):
            flow.memset(place.all(), 0.0)
        words = self.s.words
        v, w = (Tiled(at.params[name], FP32, 1, words) for name in ("v", "w"))
        flow.memset(v.all(), 0.0)
        flow.copy(Tiled(at.params["wb"], BF16, 1, words).all(), w.all())
        self.first_ready()
        self.second_ready()

    # --- a step --------------------------------------------------------------------------------------------------
    def step(self, n: int, losses: int) -> None:
        """Step `n`, whose samples have been asked for; its losses go to byte `losses`."""
        q, parts, k = n % BUFFERS, self.s.parts, self.s.packs
        cut = -(-k // 2)
        self.hidden(q, parts[0], 0, k)
        self.turn(parts[0])
        for part, before in zip(parts[1:], parts, strict=False):
            self.hidden(q, part, 0, cut)
            self.output(before)
            self.softmax(q, before)
            self.hidden(q, part, cut, k)
            self.turn(part)
        for i, part in enumerate(parts):
            if part == parts[-1]:
                self.output(part)
                if i:
                    self.first_gradients(q, parts[i - 1])
                self.softmax(q, part)
            self.back(part)
            self.second_gradients(part)
        self.first_gradients(q, parts[-1])
        self.loss(q, losses)

    def load(self, n: int, memory: int) -> None:
        """Ask for step `n`'s samples at byte `memory`."""
        q, block = n % BUFFERS, self.at.block.size
        self._dma(self.at.whole(q).addr, memory, block)

    def hidden(self, q: int, part: Part, first: int, end: int) -> None:
        """First layer: pre[samples, hidden] = b1 + x w1, the words `first` to `end` - 1 of K; with the last, hT = relu(pre)."""
        at, flow = self.at, self.flow
        if first == 0:
            flow.weights(at.ones.tile(0), k=1)
            for t in _tiles(part):
                flow.stream(at.pre.tile(t), at.param("wb", "b1").tile(0), k=1)
        x, x_scale = at.x(q)
        w1, w1_scale = self._moving(at.param("wb", "w1"), "w1x")
        for i in range(first, end):
            for t in _tiles(part):
                where = (t * self.s.p, self.s.p)
                flow.weights(x.tile(i, *where), _tile(x_scale, i, *where))
                flow.stream(at.pre.tile(t), w1.tile(i), _tile(w1_scale, i), accumulate=True)
                if i == self.s.packs - 1:
                    flow.activate(at.ht.tile(t), at.pre.tile(t), ActFunc.RELU)

    def turn(self, part: Part) -> None:
        """h [hidden, samples] from hT, and what is multiplied with."""
        s, at, flow = self.s, self.at, self.flow
        t, tiles = part
        turned = at.h.at(t * s.p * s.pack, (s.p * s.pack, tiles), *at.h.dims(s.k), (s.pack, s.p))
        flow.lane_transpose(turned, at.ht.some(t, tiles))
        if s.pack > 1:
            for i in range(s.packs):
                first, count = t * s.p, tiles * s.p
                flow.quantize(
                    at.hx.words.tile(i, first, count),
                    at.hx.scales.tile(i, first, count),
                    at.h.at((i * s.batch + first) * s.pack, (1, count * s.pack)),
                )
            self._quantize(at.htx, at.ht, part)

    def output(self, part: Part) -> None:
        """Second layer: logits [samples, classes] without their bias."""
        s, at, flow = self.s, self.at, self.flow
        h, h_scale = self._moving(at.h, "hx")
        w2, w2_scale = self._moving(at.w2, "w2x")
        for t in _tiles(part):
            for i in range(s.packs):
                where = (t * s.p, s.p)
                flow.weights(h.tile(i, *where), _tile(h_scale, i, *where))
                columns = (0, CLASSES)
                moving = w2.tile(i, *columns), _tile(w2_scale, i, *columns)
                flow.stream(at.logits.tile(t), *moving, accumulate=i > 0)

    def softmax(self, q: int, part: Part) -> None:
        """Probabilities e, and dlog = (e - target) * rate / batch with its transpose."""
        s, at, flow = self.s, self.at, self.flow
        t, tiles = part
        z, e, top, total, inverse = (
            place.some(t, tiles) for place in (at.z, at.e, at.top, at.sum, at.inverse)
        )
        bias = at.param("w", "b2").at(0, (0, tiles), (1, CLASSES))
        flow.tensor_tensor(z, at.logits.some(t, tiles), bias, AluOp.ADD)
        flow.reduce(top, z, AluOp.MAX)
        flow.tensor_tensor(z, z, _spread(at.top, part), AluOp.SUB)
        flow.exponential(e, z)
        flow.reduce(total, e, AluOp.ADD)
        flow.reciprocal(inverse, total)
        flow.tensor_tensor(e, e, _spread(at.inverse, part), AluOp.MUL)
        rate = self.options.rate / s.batch
        dlog, target = at.dlog.some(t, tiles, 0, CLASSES), at.onehot(q).some(t, tiles)
        flow.scalar_tensor_tensor(dlog, e, AluOp.MUL, rate, AluOp.SUB, target)
        turned = at.dlt.at(t * s.p, (s.p, tiles), (s.batch, len(s.classes)), (1, s.p))
        flow.lane_transpose(turned, at.dlog.some(t, tiles))
        if s.pack > 1:
            self._quantize(at.dlogx, at.dlog, part)

    def back(self, part: Part) -> None:
        """dpre [samples, hidden] = (dlog w2^T), where the hidden unit was on."""
        s, at, flow = self.s, self.at, self.flow
        w2t = at.param("wb", "w2t")
        for t in _tiles(part):
            for c, (_, count) in enumerate(s.classes):
                flow.weights(at.dlt.tile(c, t * s.p, s.p), k=count)
                flow.stream(at.dh.tile(t), w2t.tile(c), k=count, accumulate=c > 0)
            ht = at.ht.tile(t)
            flow.scalar_tensor_tensor(at.dpre.tile(t), ht, AluOp.IS_GT, 0.0, AluOp.MUL, at.dh.tile(t))
        if s.pack > 1:
            self._quantize(at.dprex, at.dpre, part)

    def second_gradients(self, part: Part) -> None:
        """Gradients of w2 (transposed) and b2; with the last part, their update."""
        s, at, flow = self.s, self.at, self.flow
        first = part == s.parts[0]
        dlog, dlog_scale = self._moving(at.dlog, "dlogx")
        ht, ht_scale = self._moving(at.ht, "htx")
        for c, (at_class, count) in enumerate(s.classes):
            columns = (at_class, count)
            for i, t in enumerate(_packs(part, s.pack)):
                flow.weights(dlog.tile(t, *columns), _tile(dlog_scale, t, *columns), m=count)
                moving = ht.tile(t), _tile(ht_scale, t)
                flow.stream(at.g["w2t"].tile(c), *moving, m=count, accumulate=i > 0 or not first)
        flow.weights(at.ones.tile(0))
        for i, t in enumerate(_tiles(part)):
            moving_classes = at.dlog.tile(t, 0, CLASSES)
            flow.stream(at.g["b2"].tile(0), moving_classes, accumulate=i > 0 or not first)
        if part == s.parts[-1]:
            for c, (_, count) in enumerate(s.classes):
                self.change("w2t", c, parts=count)
            self.change("b2", 0)
            self.second_ready()

    def first_gradients(self, q: int, part: Part) -> None:
        """Gradients of b1 and w1; with the last part, and their update, each as soon as it is there."""
        s, at, flow = self.s, self.at, self.flow
        first, last = part == s.parts[0], part == s.parts[-1]
        flow.weights(at.ones.tile(0))
        for i, t in enumerate(_tiles(part)):
            flow.stream(at.g["b1"].tile(0), at.dpre.tile(t), accumulate=i > 0 or not first)
        if last:
            self.change("b1", 0)
        xt, xt_scale = at.xt(q)
        dpre, dpre_scale = self._moving(at.dpre, "dprex")
        for c in range(s.k):
            for i, t in enumerate(_packs(part, s.pack)):
                columns = (c * s.p, s.p)
                flow.weights(xt.tile(t, *columns), _tile(xt_scale, t, *columns))
                moving = dpre.tile(t), _tile(dpre_scale, t)
                flow.stream(at.g["w1"].tile(c), *moving, accumulate=i > 0 or not first)
            if last:
                self.change("w1", c)
        if last:
            self.first_ready()

    def change(self, name: str, tile: int, *, parts: int | None = None) -> None:
        """v = momentum v - g, w = w + v, and the BF16 copy, of a parameter's tile."""
        at, flow = self.at, self.flow
        v, w, copy = (at.param(place, name).tile(tile) for place in ("v", "w", "wb"))
        momentum = self.options.momentum
        flow.scalar_tensor_tensor(v, v, AluOp.MUL, momentum, AluOp.SUB, at.g[name].tile(tile), parts=parts)
        flow.tensor_tensor(w, w, v, AluOp.ADD, parts=parts)
        if name in ("b1", "w2t") or self.s.pack == 1:
            flow.activate(copy, w, ActFunc.COPY, parts=parts)

    def first_ready(self) -> None:
        """w1 as it is multiplied with: in MX words of the master weights."""
        at = self.at
        if self.s.pack > 1:
            self.flow.quantize(at.w1x.words.all(), at.w1x.scales.all(), at.param("w", "w1").all())

    def second_ready(self) -> None:
        """w2 [hidden, classes] from its transpose."""
        s, at, flow = self.s, self.at, self.flow
        w2t = at.param("wb", "w2t")
        for c in range(len(s.classes)):
            for hidden in range(s.k):
                flow.lane_transpose(at.w2.tile(hidden, c * s.p, s.p), w2t.tile(c, hidden * s.p, s.p))
        if s.pack > 1:
            flow.quantize(at.w2x.words.all(), at.w2x.scales.all(), at.w2.all())

    def loss(self, q: int, losses: int) -> None:
        """log of the label's probability, to memory; off the way of everything else."""
        s, at, flow = self.s, self.at, self.flow
        z, first = at.z.all(), q * s.tiles
        label, loss = at.label.some(first, s.tiles), at.loss.some(first, s.tiles)
        flow.tensor_tensor(z, at.e.all(), at.onehot(q).all(), AluOp.MUL)
        flow.reduce(label, at.z.some(0, s.tiles), AluOp.ADD)
        flow.activate(loss, label, ActFunc.LOG, scale=s.batch / self.options.rate)
        self._dma(loss.addr, losses, 4 * s.tiles, out=True)

    # --- small change --------------------------------------------------------------------------------------------
    def _moving(self, plain: Tiled, packed: str) -> tuple[Tiled, Tiled | None]:
        """A place as operands: itself, or the x4 words and scales made of it."""
        if self.s.pack == 1:
            return plain, None
        found: Packed = getattr(self.at, packed)
        return found.words, found.scales

    def _quantize(self, dst: Packed, src: Tiled, part: Part) -> None:
        """Whole tiles of a part."""
        t, tiles, pack = *part, self.s.pack
        words, scales = (
            x.at(t // pack * x.width, (1, tiles // pack * x.width)) for x in (dst.words, dst.scales)
        )
        self.flow.quantize(words, scales, src.span(t, tiles))

    def params(self, memory: int, *, out: bool = False) -> None:
        """Master weights from rows of memory, or to them."""
        self._dma(self.at.params["w"], memory, 4 * self.s.words, out=out)

    def _dma(self, place: int, memory: int, size: int, *, out: bool = False) -> None:
        """`size` bytes of each partition between SBUF and rows of memory."""
        words = Tiled(place, FP32, 1, size // 4).all()
        reads, writes = ((words,), ()) if out else ((), (words,))
        inside, outside = core_address(0, Space.SBUF, 0, place), memory_address(memory)
        src, dst = (inside, outside) if out else (outside, inside)
        strides = (SBUF_PARTITION_STRIDE, size) if out else (size, SBUF_PARTITION_STRIDE)
        sync = self.flow.order(Engine.SYNC, reads, writes)
        self.flow.program.sync.dma(
            src,
            dst,
            row_bytes=size,
            rows=self.s.p,
            src_stride=strides[0],
            dst_stride=strides[1],
            **sync,
        )


def _tiles(part: Part) -> range:
    return range(part[0], sum(part))


def _tile(scales: Tiled | None, t: int, first: int = 0, count: int | None = None) -> AccessPattern | None:
    """A tile of scales, where there are any."""
    return None if scales is None else scales.tile(t, first, count)


def _packs(part: Part, pack: int) -> range:
    return range(part[0] // pack, sum(part) // pack)


def _spread(place: Tiled, part: Part) -> AccessPattern:
    """A number a sample, read for each of its classes."""
    return place.at(part[0], (1, part[1]), (0, CLASSES))
