"""A convolution network forward and its loss: convolution, layer normalisation, GELU, linear classifier, softmax cross-entropy and gradient.

Matmuls are BF16 with FP32 sums, everything between them is FP32. Images are dealt to the cores.

Convolution: channels lie on partitions, each image with its padding of zeros around it. A matmul for each place of the kernel adds up
in PSUM; its moving operand is a pattern (image, row, column) over the padded images with the convolution's stride, so that nothing is copied
to make a matrix of them.

Layer normalisation is over all features (filters x pixels) of an image. TENSOR_REDUCE adds up a filter's pixels, on the free axis, and one
matmul with ones adds up filters, on the partition axis, and gives the sum to all partitions. Normalising over filters alone would need
a matmul with ones over every pixel and, in the scalar engine, 15 cycles of RSQRT for every pixel instead of every image. The sums go to that matmul as
three BF16 pieces each, which is exact for all but the smallest and largest FP32 numbers (2**-110, 2**127.99). Variance is the mean square of the differences from the mean, never a difference of squares.

The classifier contracts over filters on partitions and over pixels in PSUM. Its stationary operand is a pixel of all images, so that images lie
on partitions and classes on the free axis, where softmax needs its largest value and its sum. Loss: log(sum exp(l - top)) - (l of the label - top);
gradient: (softmax - one of the label) / images.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.config import ChipConfig
from models.formats import DType
from models.image import Image
from models.isa import INSTR_BYTES
from models.program import Program
from sim.workloads.conv_program import ConvProgram
from sim.workloads.conv_shape import BF16, FP32, Options, Shape, shape
from sim.workloads.layout import Allocator, WorkloadError

F64 = NDArray[np.float64]
OUTPUTS: dict[str, DType] = {
    "conv": FP32,
    "norm": FP32,
    "gelu": BF16,
    "logits": FP32,
    "loss": FP32,
    "gradient": FP32,
}
"""Tensors that come back, in the order that they are computed."""


@dataclass(frozen=True, slots=True)
class Data:
    """Inputs and parameters: `x` [images, channels, height, width], `w` [filters, channels, kernel, kernel], `bias` [filters], `gain` and
    `shift` [filters, rows, columns] of the output, `wc` [classes, filters, rows, columns], `bc` [classes], `labels` [images].
    """

    x: F64
    w: F64
    bias: F64
    gain: F64
    shift: F64
    wc: F64
    bc: F64
    labels: NDArray[np.int64]


def shapes(o: Options) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of Data."""
    out = (o.out_height, o.out_width)
    return {
        "x": (o.images, o.channels, o.height, o.width),
        "w": (o.filters, o.channels, o.kernel, o.kernel),
        "bias": (o.filters,),
        "gain": (o.filters, *out),
        "shift": (o.filters, *out),
        "wc": (o.classes, o.filters, *out),
        "bc": (o.classes,),
        "labels": (o.images,),
    }


def draw(o: Options, seed: int) -> Data:
    """Random data of ordinary size: He weights, gains about 1, logits of about 1."""
    rng = np.random.default_rng(seed)
    s = shapes(o)
    return Data(
        x=rng.normal(0, 1, s["x"]),
        w=rng.normal(0, np.sqrt(2 / (o.channels * o.taps)), s["w"]),
        bias=rng.normal(0, 0.1, s["bias"]),
        gain=rng.normal(1, 0.1, s["gain"]),
        shift=rng.normal(0, 0.1, s["shift"]),
        wc=rng.normal(0, np.sqrt(2 / o.features), s["wc"]),
        bc=rng.normal(0, 0.1, s["bc"]),
        labels=rng.integers(0, o.classes, s["labels"]),
    )


def held(data: Data) -> Data:
    """What the chip holds of it: matmul operands rounded to BF16, the rest to FP32."""

    def rounded(x: F64, dtype: DType) -> F64:
        return cast.decode(dtype, _codes(x, dtype)).astype(np.float64)

    return Data(
        x=rounded(data.x, BF16),
        w=rounded(data.w, BF16),
        bias=rounded(data.bias, FP32),
        gain=rounded(data.gain, FP32),
        shift=rounded(data.shift, FP32),
        wc=rounded(data.wc, BF16),
        bc=rounded(data.bc, FP32),
        labels=data.labels,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """An image to run, what it computes with what numbers, and where each core's part of each tensor comes to lie in memory."""

    image: Image
    shape: Shape
    data: Data
    programs: list[Program]
    places: list[dict[str, int]]

    def part(self, core: int, name: str) -> tuple[int, ...]:
        """Shape of a core's part of an output: [filters, images, rows, columns], [images, classes] or [images]."""
        o, count = self.shape.options, self.shape.cores[core][1]
        if name == "loss":
            return (count,)
        if name in ("logits", "gradient"):
            return (count, o.classes)
        return (o.filters, count, o.out_height, o.out_width)

    def codes(self, out: Image, name: str) -> NDArray[np.uint32]:
        """A tensor's bits from a resulting image: [images, filters, rows, columns], [images, classes] or [images]."""
        parts = []
        kind = np.dtype("<u2") if OUTPUTS[name] == BF16 else np.dtype("<u4")
        for core, places in enumerate(self.places):
            dims = self.part(core, name)
            size = int(np.prod(dims)) * kind.itemsize
            raw = np.frombuffer(out.read(places[name], size), dtype=kind).reshape(dims)
            parts.append((raw.swapaxes(0, 1) if len(dims) == 4 else raw).astype(np.uint32))
        return np.concatenate(parts)

    def tensor(self, out: Image, name: str) -> F64:
        """A tensor's values, shaped as `codes`."""
        return cast.decode(OUTPUTS[name], self.codes(out, name)).astype(np.float64)


def build(config: ChipConfig, options: Options, data: Data) -> Job:
    """The image that computes `options` from `data`.

    Raises WorkloadError for tensors of other shapes, labels that are no classes, and what does not fit the chip.
    """
    s = shape(config, options)
    for name, dims in shapes(options).items():
        if getattr(data, name).shape != dims:
            raise WorkloadError(f"{name} must be {dims}, not {getattr(data, name).shape}")
    if not ((data.labels >= 0) & (data.labels < options.classes)).all():
        raise WorkloadError(f"labels must be from 0 to {options.classes - 1}, not {data.labels.tolist()}")
    image, memory = Image.empty(config), Allocator(config.memory.bytes, "memory")
    job = Job(image, s, held(data), [], [])

    def put(raw: bytes) -> int:
        at = memory.take(len(raw), INSTR_BYTES)
        image.add(at, raw)
        return at

    shared = {name: put(raw) for name, raw in _parameters(options, data).items()}
    for core, (first, count) in enumerate(s.cores):
        inputs = shared | {name: put(raw) for name, raw in _samples(options, data, first, count).items()}
        places = {}
        for name, dtype in OUTPUTS.items():
            size = int(np.prod(job.part(core, name))) * (2 if dtype == BF16 else 4)
            # outputs are compared in words of four bytes
            places[name] = memory.take(-(-size // 4) * 4, INSTR_BYTES)
            image.add_output(places[name], -(-size // 4) * 4)
        program = ConvProgram(config, s, core, count, inputs, places).write()
        job.places.append(places)
        job.programs.append(program)
        length = INSTR_BYTES * sum(len(stream.instructions) for stream in program.streams.values())
        image.add_program(core, program, memory.take(length, INSTR_BYTES))
    return job


def _parameters(o: Options, data: Data) -> dict[str, bytes]:
    """What all cores load: `w` [channels, kernel places, filters], `wc` [filters, pixels, classes], the others in their own order."""
    w = data.w.transpose(1, 2, 3, 0)
    wc = data.wc.transpose(1, 2, 3, 0)
    return {
        "w": _codes(w, BF16).astype("<u2").tobytes(),
        "wc": _codes(wc, BF16).astype("<u2").tobytes(),
        **{
            n: _codes(getattr(data, n), FP32).astype("<u4").tobytes() for n in ("bias", "gain", "shift", "bc")
        },
    }


def _samples(o: Options, data: Data, first: int, count: int) -> dict[str, bytes]:
    """What one core loads: `x` [channels, images, height, width], `target` [images, classes]: one of the label, divided by all images."""
    pick = slice(first, first + count)
    x = data.x[pick].transpose(1, 0, 2, 3)
    target = np.eye(o.classes)[data.labels[pick]] / o.images
    return {
        "x": _codes(x, BF16).astype("<u2").tobytes(),
        "target": _codes(target, FP32).astype("<u4").tobytes(),
    }


def _codes(x: F64, dtype: DType) -> NDArray[np.uint32]:
    """Codes of FP64 numbers, by way of FP32."""
    with np.errstate(over="ignore"):
        return cast.encode(dtype, np.ascontiguousarray(x, dtype=np.float32), saturate=False)
