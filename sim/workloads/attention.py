"""Softmax attention alone on core 0, forward: softmax(Q K^T / sqrt(head)) V of some heads, causal or not, with the true row maximum subtracted.

Q, K and V come in BF16, Q and K with features outermost, as a projection leaves them that has its weights stationary; the result is FP32.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.config import ChipConfig
from models.formats import DType, dtype_bytes
from models.image import Image
from models.isa import INSTR_BYTES
from sim.workloads import attention_reference as reference
from sim.workloads.attention_program import AttentionProgram, Places
from sim.workloads.attention_shape import Options, Shape, shape
from sim.workloads.layout import Allocator, WorkloadError
from sim.workloads.transformer_reference import bf16
from sim.workloads.transformer_shape import MASKED

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

UNIT = 2.0**-9
"""Largest relative error of one rounding to BF16, of which exponentials have one each."""
SLACK = 2.0**-12
"""FP32's part: roundings of scores and sums, the exponential's and the reciprocal's, relative to the sum of weights times |V|."""
BOUND = 2 * UNIT + SLACK
"""Largest difference from FP64 over the sum of weights times |V|: a rounding in the numerator and one in the denominator."""
CLOSE = 2.0**-10
"""The same from the FP64 reference that rounds exponentials to BF16, norm over norm: FP32's errors move few of them over the middle between two BF16 numbers."""


@dataclass(frozen=True, slots=True)
class Job:
    """The image, its sizes, what went in ([heads, sequence, head], BF16 numbers), and instructions of each engine."""

    image: Image
    shape: Shape
    q: F64
    k: F64
    v: F64
    instructions: dict[str, int]

    def result(self, outputs: Image) -> F32:
        """[heads, sequence, head] from the output region of a run."""
        s = self.shape
        ((_, raw),) = outputs.segments
        return np.frombuffer(raw, dtype="<f4").reshape(s.heads, s.sequence, s.head)


@dataclass(frozen=True, slots=True)
class Check:
    """How far a head's result is from FP64. `error`: norm of the difference over the norm; `largest`: the largest difference over the sum of weights times
    |V| of its element; `rounded_error`: as `error`, from the reference that rounds exponentials.
    """

    head: int
    magnitude: float
    largest: float
    error: float
    rounded_error: float

    @property
    def ok(self) -> bool:
        """Within the limits BOUND (both) and CLOSE (a NaN is not)."""
        return self.largest <= BOUND and self.error <= BOUND and self.rounded_error <= CLOSE


def check(job: Job, got: F32) -> list[Check]:
    """Compare each head's result with both references."""
    causal = job.shape.causal
    want, size = reference.attention(job.q, job.k, job.v, causal=causal)
    close, _ = reference.attention(job.q, job.k, job.v, causal=causal, rounded=bf16)
    out = []
    for h in range(job.shape.heads):
        difference = got[h] - want[h]
        out.append(
            Check(
                h,
                float(np.abs(want[h]).max()),
                float(np.max(np.abs(difference) / size[h])),
                float(np.linalg.norm(difference) / np.linalg.norm(want[h])),
                float(np.linalg.norm(got[h] - close[h]) / np.linalg.norm(close[h])),
            )
        )
    return out


def inputs(s: Shape, seed: int) -> tuple[F64, F64, F64]:
    """Q, K and V, BF16 numbers [heads, sequence, head]: normal, Q and K with twice the deviation, so that some weights are near 1 and exponentials
    of scores without their maximum subtracted would reach from e^-20 to e^20.
    """
    rng = np.random.default_rng(seed)
    size = (s.heads, s.sequence, s.head)
    q, k, v = (bf16(deviation * rng.standard_normal(size)) for deviation in (2, 2, 1))
    return q, k, v


def mask(s: Shape) -> F32:
    """[P, queries / P * queries]: what is added to the scores of a block's own keys: MASKED where key > query, else 0."""
    key = np.arange(s.queries).reshape(-1, s.p).T[:, :, None]
    late = key > np.arange(s.queries)[None, None, :]
    return np.where(late, MASKED, 0.0).astype("<f4").reshape(s.p, -1)


def build(config: ChipConfig, options: Options) -> Job:
    """The image. Raises WorkloadError when it does not fit the chip."""
    s = shape(config, options)
    one = (3 * dtype_bytes(DType.BF16) + dtype_bytes(DType.FP32)) * s.sequence * s.head
    if s.heads * one > config.memory.bytes:
        raise WorkloadError(
            f"heads must be from 1 to {config.memory.bytes // one} in a memory of {config.memory.bytes} bytes, not {s.heads!r}"
        )
    q, k, v = inputs(s, options.seed)
    memory = Allocator(config.memory.bytes, "memory")
    image = Image.empty(config)

    def put(raw: bytes) -> int:
        at = memory.take(len(raw), INSTR_BYTES)
        image.add(at, raw)
        return at

    def codes(x: F64) -> bytes:
        raw = cast.encode(DType.BF16, np.ascontiguousarray(x).astype(np.float32), saturate=False)
        return raw.astype("<u2").tobytes()

    turned = (0, 2, 1)
    size = 4 * s.heads * s.sequence * s.head
    places = Places(
        put(codes(q.transpose(turned))),
        put(codes(k.transpose(turned))),
        put(codes(v)),
        put(mask(s).tobytes()),
        # a NaN that no engine makes, so that a result that was not written is seen
        put(b"\xff" * size),
    )
    work = AttentionProgram(config, s, places)
    work.emit()
    program = work.flow.program
    counts = {e.name.lower(): len(stream.instructions) for e, stream in program.streams.items()}
    image.add_program(0, program, memory.take(INSTR_BYTES * sum(counts.values()), INSTR_BYTES))
    image.add_output(places.out, size)
    return Job(image, s, q, k, v, counts)
