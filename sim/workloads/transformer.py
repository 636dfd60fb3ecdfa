"""A transformer block on the chip, forward and backward, in one program for core 0: RMSNorm, QKV projection, RoPE, causal softmax attention, output
projection, residual, RMSNorm, SwiGLU, residual; then the gradients of all weights and of the input from a given gradient of the output.

Matmuls are BF16 with FP32 sums, all else is FP32. The instructions' text is in an order that keeps the engines busy; sim.workloads.dataflow finds who
waits for whom. Attention works on the causal triangle's tiles only.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.config import ChipConfig
from models.formats import DType
from models.image import Image
from models.isa import INSTR_BYTES
from sim.workloads import transformer_backward as backward
from sim.workloads import transformer_forward as forward
from sim.workloads import transformer_reference as reference
from sim.workloads.layout import Allocator
from sim.workloads.transformer_program import BlockProgram
from sim.workloads.transformer_shape import MASKED, Options, Shape, rotation, shape

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

ROUNDINGS = {
    "attention": 3,
    "y": 6,
    "dw2": 6,
    "dwgu": 6,
    "dgain2": 7,
    "dwo": 7,
    "dx": 10,
    "dwqkv": 10,
    "dgain1": 11,
}
"""BF16 roundings one after the other on the longest way from the inputs to a result, weights' apart, which happen beside those of activations.

Forward: n1, then q and k (attention: they multiply, one more), p, o, n2, a. Backward, where gates are as deep as n2: dgu (6), dx2 (7), do (8), ds (9),
dqkv (10); gains' gradients round the product that they sum.
"""
UNIT = 2.0**-8
"""Largest relative error of one rounding to BF16."""
CLOSE = UNIT
"""Norm-wise difference allowed between chip and the FP64 reference that rounds to BF16 where the chip does. FP32's errors move a number now and then
over the middle between two BF16 numbers, by a step of up to 2 UNIT; most runs have no such number and differ by 1e-7, one of a few among the
results of a small block is seen at half of UNIT.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """The image, its sizes, what went in, and where results are."""

    image: Image
    shape: Shape
    weights: dict[str, F32]
    x: F32
    dy: F32
    instructions: dict[str, int]

    def results(self, outputs: Image) -> dict[str, F32]:
        """Result matrices by name (Shape.outputs) from the output regions of a run."""
        sizes = self.shape.outputs
        return {
            name: np.frombuffer(raw, dtype="<f4").reshape(size)
            for (name, size), (_, raw) in zip(sizes.items(), outputs.segments, strict=True)
        }

    def reference(self, *, rounded: bool = False) -> dict[str, F64]:
        """The same in FP64, with BF16 operands of matmuls if `rounded`."""
        weights = {name: value.astype(np.float64) for name, value in self.weights.items()}
        how = reference.bf16 if rounded else reference.exact
        return reference.block(
            self.shape, weights, self.x.astype(np.float64), self.dy.astype(np.float64), how
        )


@dataclass(frozen=True, slots=True)
class Check:
    """How far a result is from FP64. `error`: norm of the difference over the norm; `largest`: largest difference over the largest number;
    `rounded_error`: as `error`, from the reference that rounds to BF16. Limits come with them.
    """

    name: str
    size: tuple[int, int]
    magnitude: float
    largest: float
    error: float
    limit: float
    rounded_error: float
    rounded_limit: float

    @property
    def ok(self) -> bool:
        """All within their limits (a NaN is not)."""
        within = self.error <= self.limit and self.largest <= self.limit
        return within and self.rounded_error <= self.rounded_limit


def check(job: Job, results: dict[str, F32]) -> list[Check]:
    """Compare results with both references, a line each."""
    true, close = job.reference(), job.reference(rounded=True)
    out = []
    for name, got in results.items():
        want = true[name]
        difference = got - want
        norm, top = np.linalg.norm(want), np.abs(want).max()
        out.append(
            Check(
                name,
                job.shape.outputs[name],
                float(top),
                float(np.abs(difference).max() / top),
                float(np.linalg.norm(difference) / norm),
                ROUNDINGS[name] * UNIT,
                float(np.linalg.norm(got - close[name]) / np.linalg.norm(close[name])),
                CLOSE,
            )
        )
    return out


def inputs(s: Shape, seed: int) -> tuple[dict[str, F32], F32, F32]:
    """Weights (variance 1 / inputs; gains about 1), input and output gradient [S, D]."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, (rows, cols) in s.weights.items():
        value = rng.normal(1, 0.1, (rows, cols)) if rows == 1 else rng.normal(0, rows**-0.5, (rows, cols))
        weights[name] = value.astype(np.float32)
    x, dy = (rng.normal(0, 1, (s.sequence, s.width)).astype(np.float32) for _ in range(2))
    return weights, x, dy


def constants(s: Shape) -> dict[str, NDArray[np.generic]]:
    """Identity (BF16), RoPE's tables for both halves of a head, and what is added to scores: 0, or MASKED where position s of the last tile does not
    see position t.
    """
    cos, sin = rotation(s)
    eye = cast.encode(DType.BF16, np.eye(s.p, dtype=np.float32), saturate=False)
    late = np.arange(s.sequence)[None, :] > np.arange(s.sequence - s.p, s.sequence)[:, None]
    return {
        "eye": eye.astype("<u2"),
        "cos": np.concatenate([cos, cos], axis=1).astype("<f4"),
        "sin": np.concatenate([-sin, sin], axis=1).astype("<f4"),
        "mask": np.where(late, MASKED, 0.0).astype("<f4"),
    }


def build(config: ChipConfig, options: Options) -> Job:
    """The image. Raises WorkloadError when it does not fit the chip."""
    s = shape(config, options)
    w = BlockProgram(config, s)
    weights, x, dy = inputs(s, options.seed)
    memory = Allocator(config.memory.bytes, "memory")
    image = Image.empty(config)
    places = constants(s) | {"x": x, "dy": dy, **weights}
    order = ("x", "gain1", "eye", "wqkv", "cos", "sin", "mask", "wo", "wgu", "gain2", "w2", "dy")
    for name in order:
        raw = places[name].tobytes()
        at = memory.take(len(raw), INSTR_BYTES)
        image.add(at, raw)
        w.flow.load(w.at[name], at, repeat=name.startswith("gain"))
    out = {name: memory.take(4 * rows * cols, INSTR_BYTES) for name, (rows, cols) in s.outputs.items()}

    w.flow.memset(w.at["ones"].all(), 1.0)
    forward.attention(w)
    forward.mlp(w)
    w.flow.store(w.at["p"], out["attention"])
    backward.mlp(w, out)
    backward.attention(w, out)
    w.flow.store(w.at["dx"], out["dx"])
    program = w.flow.program
    program.finish()

    counts = {e.name.lower(): len(stream.instructions) for e, stream in program.streams.items()}
    image.add_program(0, program, memory.take(INSTR_BYTES * sum(counts.values()), INSTR_BYTES))
    for name, (rows, cols) in s.outputs.items():
        # a NaN that no engine makes, so that a result that was not written is seen
        image.add(out[name], b"\xff" * (4 * rows * cols))
        image.add_output(out[name], 4 * rows * cols)
    return Job(image, s, weights, x, dy, counts)
