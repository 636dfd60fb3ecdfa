"""The convolution program of one core. What it computes, and why that way: sim.workloads.conv."""

from collections.abc import Sequence

from models.access import AccessPattern
from models.addressing import SBUF_PARTITION_STRIDE, core_address, memory_address
from models.config import ChipConfig
from models.formats import DType, dtype_bytes
from models.functions import ActFunc
from models.isa import AluOp, Engine, Space
from models.program import Program, Wait
from sim.workloads.conv_shape import BF16, BUFFERS, FP32, Chunk, Shape
from sim.workloads.layout import Allocator
from sim.workloads.marks import Marks, need

PIECES = 3
"""BF16 numbers of 8 bits that an FP32 number of 24 is cut into without an error."""


class ConvProgram:
    """Writes the program: places in SBUF and PSUM, loads, a group of images after the other, then classifier and loss.

    `images` are this core's; `inputs` and `outputs` give the byte address in memory of each tensor (names: sim.workloads.conv).
    """

    def __init__(
        self,
        config: ChipConfig,
        s: Shape,
        core: int,
        images: int,
        inputs: dict[str, int],
        outputs: dict[str, int],
    ):
        self.s, self.o, self.core, self.images = s, s.options, core, images
        self.inputs, self.outputs = inputs, outputs
        o = s.options
        self.program = Program(config)
        self.t, self.v, self.a, self.d = (
            self.program.streams[e] for e in (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.SYNC)
        )
        self.mt, self.mv, self.ma, self.md = (
            Marks(self.program.semaphore(n)) for n in ("tensor", "vector", "scalar", "loaded")
        )
        self.padded = (o.height + 2 * o.padding, o.width + 2 * o.padding)
        columns = images * o.pixels
        group = max(sum(c.images * c.rows * o.out_width for c in g) for g in s.groups(images))
        sbuf = Allocator(config.sbuf.bytes_per_partition, "SBUF partition")
        sizes = {
            "x": 2 * images * self.padded[0] * self.padded[1],
            "w": 2 * o.taps * o.filters,
            "ones": 2 * o.filters,
            "bias": 4,
            "gain": 4 * o.pixels,
            "shift": 4 * o.pixels,
            "wc": 2 * o.pixels * o.classes,
            "bc": 4 * o.classes,
            "target": 4 * o.classes,
            "conv": 4 * columns,
            "norm": 4 * columns,
            "gelu": 2 * columns,
            "square": 4 * group,
            "rest": 4 * images,
            "sum": 4 * images,
            "pieces": 2 * PIECES * images,
            "inverse_deviation": 4 * images,
            **{n: 4 * o.classes for n in ("logits", "exp", "label", "gradient")},
            **{n: 4 for n in ("minus_top", "total", "inverse", "log", "picked", "loss")},
        }
        self.at = {name: sbuf.take(size) for name, size in sizes.items()}
        psum = Allocator(config.psum.bytes_per_partition, "PSUM partition")
        words = {"mean": images, "variance": images, "logits": o.classes}
        words |= {f"conv{i}": s.words for i in range(BUFFERS)}
        self.sums = {name: psum.take(4 * size) for name, size in words.items()}
        self.emptied: list[int] = []
        """Counts of the vector engine's mark at which each chunk so far had left PSUM."""

    # --- patterns ------------------------------------------------------------------------------------------------
    def sb(self, name: str, dtype: DType, first: int, *dims: tuple[int, int]) -> AccessPattern:
        """Elements of a place in SBUF, from element `first`."""
        return AccessPattern(self.at[name] + first * dtype_bytes(dtype), dtype, dims)

    def ps(self, name: str, first: int, *dims: tuple[int, int]) -> AccessPattern:
        """FP32 words of a place in PSUM, from word `first`."""
        return AccessPattern(self.sums[name] + 4 * first, FP32, dims, Space.PSUM)

    def tap(self, c: Chunk, i: int, j: int) -> AccessPattern:
        """The padded images as row `i`, column `j` of the kernel sees them, one element for each output pixel of the chunk."""
        o, (height, width) = self.o, self.padded
        first = (c.image * height + c.row * o.stride + i) * width + j
        dims = ((height * width, c.images), (o.stride * width, c.rows), (o.stride, o.out_width))
        return self.sb("x", BF16, first, *dims)

    # --- moving data ---------------------------------------------------------------------------------------------
    def load(self, name: str, rows: int, width: int, *, same: bool = False) -> None:
        """Rows of `width` bytes from memory to partitions 0, 1, ...; `same`: one row to all of them."""
        self.d.dma(
            memory_address(self.inputs[name]),
            core_address(self.core, Space.SBUF, 0, self.at[name]),
            row_bytes=width,
            rows=rows,
            src_stride=0 if same else width,
            dst_stride=SBUF_PARTITION_STRIDE,
            update=self.md.mark(),
        )

    def store(self, name: str, rows: int, width: int, first: int, size: int) -> None:
        """`size` bytes from byte `first` on of each partition's row of `width` bytes, to the same bytes in memory."""
        self.d.dma(
            core_address(self.core, Space.SBUF, 0, self.at[name] + first),
            memory_address(self.outputs[name] + first),
            row_bytes=size,
            rows=rows,
            src_stride=SBUF_PARTITION_STRIDE,
            dst_stride=width,
        )

    def load_images(self, first: int, count: int) -> None:
        """Images into the middle of their padded places: a DMA for each channel of each, a row for each of its rows."""
        o, (height, width) = self.o, self.padded
        for image in range(first, first + count):
            for channel in range(o.channels):
                inside = (image * height + o.padding) * width + o.padding
                self.d.dma(
                    memory_address(
                        self.inputs["x"] + 2 * (channel * self.images + image) * o.height * o.width
                    ),
                    core_address(self.core, Space.SBUF, channel, self.at["x"] + 2 * inside),
                    row_bytes=2 * o.width,
                    rows=o.height,
                    src_stride=2 * o.width,
                    dst_stride=2 * width,
                    update=self.md.mark(),
                )

    # --- the whole -----------------------------------------------------------------------------------------------
    def write(self) -> Program:
        """Emit everything; returns the finished program."""
        groups = self.s.groups(self.images)
        bounds = [(g[0].image, g[-1].image + g[-1].images - g[0].image) for g in groups]
        self.frame()
        images_there, affine_there, rest_there = self.loads(bounds)
        scaled: list[Wait] = []
        for n, (chunks, (first, count)) in enumerate(zip(groups, bounds, strict=True)):
            need(self.t, images_there[n])
            self.convolve(chunks)
            self.moments(first, count)
            # GELU is by far the longest: the last image of the group before waits until this group's deviations are under way, so
            # that the scalar engine has work while the vector engine scales this group
            before, last = bounds[n - 1], sum(bounds[n - 1]) - 1
            if n:
                self.gelu(before[0], before[1] - 1, scaled[-1])
            deviations_there = self.deviations(first, count)
            if n:
                self.gelu(last, 1, scaled[-1])
                self.keep("gelu", BF16, *before, self.ma)
            need(self.v, affine_there, deviations_there)
            scaled.append(self.scale(first, count))
        self.gelu(*bounds[-1], scaled[-1])
        self.keep("gelu", BF16, *bounds[-1], self.ma)
        need(self.t, rest_there)
        self.classify()
        need(self.v, rest_there)
        self.loss()
        self.program.finish()
        return self.program

    def loads(self, bounds: list[tuple[int, int]]) -> tuple[list[Wait], Wait, Wait]:
        """All loads, in the order of their need; when each group's images are there, gain and shift, and the rest."""
        o = self.o
        self.load("w", o.channels, 2 * o.taps * o.filters)
        self.load("bias", o.filters, 4)
        images_there = []
        for n, (first, count) in enumerate(bounds):
            self.load_images(first, count)
            images_there.append(self.md.here())
            if n == 0:
                self.load("gain", o.filters, 4 * o.pixels)
                self.load("shift", o.filters, 4 * o.pixels)
                affine_there = self.md.here()
        self.load("wc", o.filters, 2 * o.pixels * o.classes)
        self.load("bc", self.images, 4 * o.classes, same=True)
        self.load("target", self.images, 4 * o.classes)
        return images_there, affine_there, self.md.here()

    def frame(self) -> None:
        """Zeros around each image."""
        o, p, (height, width) = self.o, self.o.padding, self.padded
        if p == 0:
            return
        each = (height * width, self.images)
        above_below = self.sb("x", BF16, 0, each, ((height - p) * width, 2), (1, p * width))
        sides = self.sb("x", BF16, 0, each, (width, height), (width - p, 2), (1, p))
        self.v.memset(above_below, 0.0, parts=o.channels)
        self.v.memset(sides, 0.0, parts=o.channels, update=self.mv.mark())
        # neighbours of a frame share words of SBUF with it
        need(self.d, self.mv.here())

    def keep(self, name: str, dtype: DType, first: int, count: int, marks: Marks) -> None:
        """Store a group's part of a tensor [filters, images, pixels], when all that `marks` counts so far is done."""
        need(self.d, marks.here())
        size = dtype_bytes(dtype) * self.o.pixels
        self.store(name, self.o.filters, size * self.images, size * first, size * count)

    # --- a group of images -----------------------------------------------------------------------------------------
    def convolve(self, chunks: Sequence[Chunk]) -> None:
        """Convolution and bias of a group: in PSUM a matmul for each tap, in SBUF FP32."""
        o = self.o
        for c in chunks:
            buffer = len(self.emptied) % BUFFERS
            if len(self.emptied) >= BUFFERS:
                need(self.t, self.mv.semaphore.ge(self.emptied[-BUFFERS]))
            size = c.images * c.rows * o.out_width
            out = self.ps(f"conv{buffer}", 0, (1, size))
            for n in range(o.taps):
                weights = self.sb("w", BF16, n * o.filters, (1, o.filters))
                self.t.load_stationary(weights, k=o.channels, m=o.filters)
                self.t.matmul(
                    out,
                    self.tap(c, *divmod(n, o.kernel)),
                    k=o.channels,
                    m=o.filters,
                    accumulate=n > 0,
                    update=self.mt.mark() if n == o.taps - 1 else None,
                )
            need(self.v, self.mt.here())
            self.v.tensor_scalar(
                self.sb("conv", FP32, c.image * o.pixels + c.row * o.out_width, (1, size)),
                out,
                AluOp.ADD,
                self.sb("bias", FP32, 0, (1, 1)),
                parts=o.filters,
                update=self.mv.mark(),
            )
            self.emptied.append(self.mv.count)
        self.keep(
            "conv", FP32, chunks[0].image, chunks[-1].image + chunks[-1].images - chunks[0].image, self.mv
        )

    def total(self, name: str, source: AccessPattern, first: int, count: int) -> None:
        """PSUM place `name`, on every partition: each image's sum over pixels (TENSOR_REDUCE) and filters (ones)."""
        f, whole = self.o.filters, (1, count)
        sums, rest = self.sb("sum", FP32, 0, whole), self.sb("rest", FP32, 0, whole)
        pieces = [self.sb("pieces", BF16, n * count, whole) for n in range(PIECES)]
        self.v.tensor_reduce(sums, source, AluOp.ADD, parts=f)
        self.v.tensor_copy(pieces[0], sums, parts=f)
        self.v.tensor_tensor(rest, sums, pieces[0], AluOp.SUB, parts=f)
        self.v.tensor_copy(pieces[1], rest, parts=f)
        self.v.tensor_tensor(pieces[2], rest, pieces[1], AluOp.SUB, parts=f, update=self.mv.mark())
        need(self.t, self.mv.here())
        self.t.load_stationary(self.sb("ones", BF16, 0, (1, f)), k=f, m=f)
        for n, piece in enumerate(pieces):
            update = self.mt.mark() if n == PIECES - 1 else None
            self.t.matmul(self.ps(name, first, whole), piece, k=f, m=f, accumulate=n > 0, update=update)

    def moments(self, first: int, count: int) -> None:
        """Differences from the mean, and the sum of their squares."""
        o = self.o
        grid = ((o.pixels, count), (1, o.pixels))
        value = self.sb("conv", FP32, first * o.pixels, *grid)
        difference = self.sb("norm", FP32, first * o.pixels, *grid)
        square = self.sb("square", FP32, 0, *grid)
        if first == 0:
            self.v.memset(self.sb("ones", BF16, 0, (1, o.filters)), 1.0, parts=o.filters)
        self.total("mean", value, first, count)
        need(self.v, self.mt.here())
        self.v.scalar_tensor_tensor(
            difference,
            self.ps("mean", first, (1, count), (0, o.pixels)),
            AluOp.MUL,
            1 / o.features,
            AluOp.SUB,
            value,
            parts=o.filters,
            reverse1=True,
        )
        self.v.tensor_tensor(square, difference, difference, AluOp.MUL, parts=o.filters)
        self.total("variance", square, first, count)

    def deviations(self, first: int, count: int) -> Wait:
        """One over the root of variance and epsilon; returns when they are there."""
        need(self.a, self.mt.here())
        self.a.activate(
            self.sb("inverse_deviation", FP32, first, (1, count)),
            self.ps("variance", first, (1, count)),
            ActFunc.RSQRT,
            parts=self.o.filters,
            scale=1 / self.o.features,
            bias=self.o.epsilon,
            update=self.ma.mark(),
        )
        return self.ma.here()

    def scale(self, first: int, count: int) -> Wait:
        """Differences to the normalised tensor, with a gain and a shift for each feature; returns when it is there."""
        o = self.o
        grid, every_image = ((o.pixels, count), (1, o.pixels)), ((0, count), (1, o.pixels))
        norm = self.sb("norm", FP32, first * o.pixels, *grid)
        spread = self.sb("inverse_deviation", FP32, first, (1, count), (0, o.pixels))
        self.v.tensor_tensor(norm, norm, spread, AluOp.MUL, parts=o.filters)
        self.v.tensor_tensor(norm, norm, self.sb("gain", FP32, 0, *every_image), AluOp.MUL, parts=o.filters)
        self.v.tensor_tensor(
            norm,
            norm,
            self.sb("shift", FP32, 0, *every_image),
            AluOp.ADD,
            parts=o.filters,
            update=self.mv.mark(),
        )
        self.keep("norm", FP32, first, count, self.mv)
        return self.mv.here()

    def gelu(self, first: int, count: int, scaled: Wait) -> None:
        """GELU of images that are normalised at `scaled`, to BF16."""
        if count == 0:
            return
        whole = (1, count * self.o.pixels)
        need(self.a, scaled)
        self.a.activate(
            self.sb("gelu", BF16, first * self.o.pixels, whole),
            self.sb("norm", FP32, first * self.o.pixels, whole),
            ActFunc.GELU,
            parts=self.o.filters,
            update=self.ma.mark(),
        )

    # --- the end -------------------------------------------------------------------------------------------------
    def classify(self) -> None:
        """Logits [images, classes] in PSUM: a matmul for each pixel, whose stationary operand is that pixel of all images."""
        o = self.o
        need(self.t, self.ma.here())
        for pixel in range(o.pixels):
            stationary = self.sb("gelu", BF16, pixel, (o.pixels, self.images))
            self.t.load_stationary(stationary, k=o.filters, m=self.images)
            self.t.matmul(
                self.ps("logits", 0, (1, o.classes)),
                self.sb("wc", BF16, pixel * o.classes, (1, o.classes)),
                k=o.filters,
                m=self.images,
                accumulate=pixel > 0,
                update=self.mt.mark() if pixel == o.pixels - 1 else None,
            )
        need(self.v, self.mt.here())

    def loss(self) -> None:
        """Softmax, cross-entropy of each image, and the gradient of their mean with respect to the logits; an image a partition."""
        n, one, row = self.images, (1, 1), (1, self.o.classes)
        logits, exp, label, gradient, target = (
            self.sb(name, FP32, 0, row) for name in ("logits", "exp", "label", "gradient", "target")
        )
        minus_top, total, inverse, log, picked, loss = (
            self.sb(name, FP32, 0, one) for name in ("minus_top", "total", "inverse", "log", "picked", "loss")
        )
        self.v.tensor_tensor(
            logits, self.ps("logits", 0, row), self.sb("bc", FP32, 0, row), AluOp.ADD, parts=n
        )
        self.v.tensor_reduce(minus_top, logits, AluOp.MAX, parts=n, negate=True, update=self.mv.mark())
        need(self.a, self.mv.here())
        self.a.activate(exp, logits, ActFunc.EXP, bias=minus_top, parts=n, update=self.ma.mark())
        # picked, not multiplied by zeros: a class whose logit is infinite must not make a NaN of another one's loss
        self.v.memset(label, 0.0, parts=n)
        self.v.tensor_copy_predicated(label, logits, target, parts=n)
        self.v.tensor_reduce(picked, label, AluOp.ADD, parts=n)
        self.v.tensor_scalar(picked, picked, AluOp.ADD, minus_top, parts=n)
        need(self.v, self.ma.here())
        self.v.tensor_reduce(total, exp, AluOp.ADD, parts=n, update=self.mv.mark())
        need(self.a, self.mv.here())
        self.a.activate(inverse, total, ActFunc.RECIPROCAL, parts=n)
        self.a.activate(log, total, ActFunc.LOG, parts=n, update=self.ma.mark())
        need(self.v, self.ma.here())
        self.v.tensor_tensor(loss, log, picked, AluOp.SUB, parts=n)
        self.v.tensor_scalar(gradient, exp, AluOp.MUL, inverse, AluOp.MUL, 1 / self.o.images, parts=n)
        self.v.tensor_tensor(gradient, gradient, target, AluOp.SUB, parts=n, update=self.mv.mark())
        need(self.d, self.mv.here())
        width = 4 * self.o.classes
        self.store("logits", n, width, 0, width)
        self.store("gradient", n, width, 0, width)
        self.store("loss", n, 4, 0, 4)
