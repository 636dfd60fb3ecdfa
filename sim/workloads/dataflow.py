"""Instructions in the order of a program's text, on engines that wait for each other only where they touch the same words.

Every instruction adds 1 to its engine's semaphore. For each word of a partition this remembers the last instruction of each engine that wrote and that
read it: a reader waits for writers, a writer for both. What an engine has waited for already, itself or through another engine, it does not wait for
again. An engine other than sync follows its own order without waiting; DMAs of the sync stream overlap, and wait for one another like strangers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.access import AccessPattern
from models.addressing import PSUM_PARTITION_STRIDE, SBUF_PARTITION_STRIDE, core_address, memory_address
from models.config import ChipConfig
from models.formats import dtype_bytes
from models.functions import ActFunc
from models.isa import AluOp, Engine, Space
from models.program import Program, Wait
from sim.workloads.marks import Marks
from sim.workloads.tiles import Matrix

Clock = NDArray[np.int64]
"""Instructions known to be done, of each engine."""


class Dataflow:
    """Writes a program for core 0. Instructions use `partitions` (default: all P) unless `parts` says otherwise; they raise ProgramError as
    models.program does."""

    def __init__(self, config: ChipConfig, partitions: int | None = None):
        self.program = Program(config)
        self.p = config.partitions if partitions is None else partitions
        self.marks = {e: Marks(self.program.semaphore(e.name.lower())) for e in Engine}
        sizes = {
            Space.SBUF: config.sbuf.bytes_per_partition,
            Space.PSUM: config.psum.bytes_per_partition,
        }
        self._written = {s: np.zeros((len(Engine), n // 4), dtype=np.int64) for s, n in sizes.items()}
        self._read = {s: np.zeros((len(Engine), n // 4), dtype=np.int64) for s, n in sizes.items()}
        self._known: dict[Engine, Clock] = {e: np.zeros(len(Engine), dtype=np.int64) for e in Engine}
        self._at_end: dict[Engine, list[Clock]] = {e: [] for e in Engine}

    def order(
        self, engine: Engine, reads: tuple[AccessPattern, ...], writes: tuple[AccessPattern, ...]
    ) -> dict[str, Any]:
        """`wait` and `update` of the engine's next instruction, which reads and writes these patterns; NOPs where it needs more waits than one."""
        touched = [(self._written[ap.space], ap) for ap in (*reads, *writes)]
        touched += [(self._read[ap.space], ap) for ap in writes]
        need = np.zeros(len(Engine), dtype=np.int64)
        for table, ap in touched:
            if ap.size:
                need = np.maximum(need, table[:, ap.addresses() // 4].max(axis=1))
        if engine != Engine.SYNC:
            need[engine] = 0
        known = self._known[engine]
        pending = [e for e in Engine if need[e] > known[e]]
        clocks = {e: self._at_end[e][int(need[e]) - 1] for e in pending}
        waits = [
            Wait(self.marks[e].semaphore.index, int(need[e]))
            for e in pending
            if not any(clocks[other][e] >= need[e] for other in pending if other != e)
        ]
        for clock in clocks.values():
            known = np.maximum(known, clock)
        for wait in waits[:-1]:
            self.program.streams[engine].nop(wait=wait)
        update = self.marks[engine].mark()
        at_end = known.copy()
        at_end[engine] = self.marks[engine].count
        self._at_end[engine].append(at_end)
        self._known[engine] = known
        for tables, patterns in ((self._read, reads), (self._written, writes)):
            for ap in patterns:
                tables[ap.space][engine, ap.addresses() // 4] = self.marks[engine].count
        return {"wait": waits[-1] if waits else None, "update": update}

    # --- tensor --------------------------------------------------------------------------------------------------
    def matmuls(
        self, dst: AccessPattern, pairs: list[tuple[AccessPattern, AccessPattern]], m: int | None = None
    ) -> None:
        """dst [m, N] = the sum of stationary[P, m]^T moving[P, N] over `pairs`; m is P unless given."""
        cols = self.p if m is None else m
        for i, (stationary, moving) in enumerate(pairs):
            self.weights(stationary, m=cols)
            self.stream(dst, moving, m=cols, accumulate=i > 0)

    def weights(
        self,
        stationary: AccessPattern,
        scale: AccessPattern | None = None,
        *,
        k: int | None = None,
        m: int | None = None,
    ) -> None:
        """Stationary [k, m], with its scales where it is x4."""
        reads = (stationary,) if scale is None else (stationary, scale)
        sync = self.order(Engine.TENSOR, reads, ())
        self.program.tensor.load_stationary(stationary, k=k or self.p, m=m or self.p, scale=scale, **sync)

    def stream(
        self,
        dst: AccessPattern,
        moving: AccessPattern,
        scale: AccessPattern | None = None,
        *,
        k: int | None = None,
        m: int | None = None,
        accumulate: bool = False,
    ) -> None:
        """dst [m, N] (+)= stationary[k, m]^T moving[k, N] for the weights before it."""
        reads = (moving,) if scale is None else (moving, scale)
        sync = self.order(Engine.TENSOR, (*reads, dst) if accumulate else reads, (dst,))
        self.program.tensor.matmul(
            dst, moving, k=k or self.p, m=m or self.p, scale=scale, accumulate=accumulate, **sync
        )

    # --- vector --------------------------------------------------------------------------------------------------
    def tensor_tensor(
        self, dst: AccessPattern, a: AccessPattern, b: AccessPattern, op: AluOp, *, parts: int | None = None
    ) -> None:
        """dst = a op b."""
        sync = self.order(Engine.VECTOR, (a, b), (dst,))
        self.program.vector.tensor_tensor(dst, a, b, op, parts=parts or self.p, **sync)

    def tensor_scalar(
        self, dst: AccessPattern, a: AccessPattern, op0: AluOp, x: float, op1: AluOp, y: float
    ) -> None:
        """dst = (a op0 x) op1 y."""
        sync = self.order(Engine.VECTOR, (a,), (dst,))
        self.program.vector.tensor_scalar(dst, a, op0, x, op1, y, parts=self.p, **sync)

    def scalar_tensor_tensor(
        self,
        dst: AccessPattern,
        a: AccessPattern,
        op0: AluOp,
        x: float,
        op1: AluOp,
        b: AccessPattern,
        *,
        parts: int | None = None,
    ) -> None:
        """dst = (a op0 x) op1 b."""
        sync = self.order(Engine.VECTOR, (a, b), (dst,))
        self.program.vector.scalar_tensor_tensor(dst, a, op0, x, op1, b, parts=parts or self.p, **sync)

    def reduce(self, dst: AccessPattern, src: AccessPattern, op: AluOp, *, negate: bool = False) -> None:
        """dst = op over src's innermost dimension, with the other sign if `negate`."""
        sync = self.order(Engine.VECTOR, (src,), (dst,))
        self.program.vector.tensor_reduce(dst, src, op, parts=self.p, negate=negate, **sync)

    def copy(self, dst: AccessPattern, src: AccessPattern) -> None:
        """dst = cast(src), on the vector engine."""
        sync = self.order(Engine.VECTOR, (src,), (dst,))
        self.program.vector.tensor_copy(dst, src, parts=self.p, **sync)

    def exponential(self, dst: AccessPattern, src: AccessPattern) -> None:
        """dst = exp(src), on the vector engine."""
        sync = self.order(Engine.VECTOR, (src,), (dst,))
        self.program.vector.exponential(dst, src, parts=self.p, **sync)

    def reciprocal(self, dst: AccessPattern, src: AccessPattern) -> None:
        """dst = 1 / src, correctly rounded, on the vector engine."""
        sync = self.order(Engine.VECTOR, (src,), (dst,))
        self.program.vector.reciprocal(dst, src, parts=self.p, **sync)

    def lane_transpose(self, dst: AccessPattern, src: AccessPattern) -> None:
        """dst[p, f] = src[f, p] in each block of as many elements as partitions."""
        sync = self.order(Engine.VECTOR, (src,), (dst,))
        self.program.vector.lane_transpose(dst, src, parts=self.p, **sync)

    def quantize(self, dst: AccessPattern, scale: AccessPattern, src: AccessPattern) -> None:
        """src to x4 words and their scales."""
        sync = self.order(Engine.VECTOR, (src,), (scale,))
        self.program.vector.mx_scale(scale, src, dst.dtype, parts=self.p, **sync)
        sync = self.order(Engine.VECTOR, (src, scale), (dst,))
        self.program.vector.mx_cast(dst, src, scale, parts=self.p, **sync)

    def memset(self, dst: AccessPattern, value: float) -> None:
        """dst = value."""
        sync = self.order(Engine.VECTOR, (), (dst,))
        self.program.vector.memset(dst, value, parts=self.p, **sync)

    # --- scalar --------------------------------------------------------------------------------------------------
    def activate(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        function: ActFunc,
        *,
        scale: float = 1.0,
        bias: float | AccessPattern = -0.0,
        parts: int | None = None,
    ) -> None:
        """dst = function(src * scale + bias); bias may be one FP32 word a partition."""
        reads = (src, bias) if isinstance(bias, AccessPattern) else (src,)
        sync = self.order(Engine.SCALAR, reads, (dst,))
        self.program.scalar.activate(
            dst, src, function, parts=parts or self.p, scale=scale, bias=bias, **sync
        )

    # --- gpsimd --------------------------------------------------------------------------------------------------
    def partition_reduce(self, dst: AccessPattern, src: AccessPattern, op: AluOp) -> None:
        """dst, of one partition, = op over all partitions of src, element by element."""
        sync = self.order(Engine.GPSIMD, (src,), (dst,))
        self.program.gpsimd.partition_reduce(dst, src, op, parts=self.p, **sync)

    # --- DMA -----------------------------------------------------------------------------------------------------
    def load(self, dst: Matrix, memory: int, *, repeat: bool = False) -> None:
        """A row-major matrix at byte `memory` into its tiles; `repeat`: one row for every partition of dst's only tile."""
        size = dst.cols * dtype_bytes(dst.dtype)
        for tile in range(dst.tiles):
            sync = self.order(Engine.SYNC, (), (dst.tile(tile),))
            self.program.sync.dma(
                memory_address(memory + tile * self.p * size),
                core_address(0, dst.space, 0, dst.addr + tile * size),
                row_bytes=size,
                rows=self.p,
                src_stride=0 if repeat else size,
                dst_stride=_stride(dst.space),
                **sync,
            )

    def store(self, src: Matrix, memory: int, *, rows: int | None = None) -> None:
        """A matrix in SBUF or PSUM to row-major words at byte `memory`; `rows`: only so many of each tile."""
        size = src.cols * dtype_bytes(src.dtype)
        for tile in range(src.tiles):
            sync = self.order(Engine.SYNC, (src.tile(tile),), ())
            self.program.sync.dma(
                core_address(0, src.space, 0, src.addr + tile * size),
                memory_address(memory + tile * self.p * size),
                row_bytes=size,
                rows=self.p if rows is None else rows,
                src_stride=_stride(src.space),
                dst_stride=size,
                **sync,
            )

    def rows(self, dst: AccessPattern, memory: int, stride: int) -> None:
        """P rows from byte `memory` on, `stride` bytes apart, to P partitions: dst's elements, which lie one after the other in SBUF."""
        sync = self.order(Engine.SYNC, (), (dst,))
        self.program.sync.dma(
            memory_address(memory),
            core_address(0, dst.space, 0, dst.addr),
            row_bytes=dst.size * dtype_bytes(dst.dtype),
            rows=self.p,
            src_stride=stride,
            dst_stride=_stride(dst.space),
            **sync,
        )

    def spread(self, dst: AccessPattern, src: AccessPattern) -> None:
        """Every partition of dst = partition 0 of src; elements of both lie one after the other in SBUF."""
        sync = self.order(Engine.SYNC, (src,), (dst,))
        self.program.sync.dma(
            core_address(0, src.space, 0, src.addr),
            core_address(0, dst.space, 0, dst.addr),
            row_bytes=src.size * dtype_bytes(src.dtype),
            rows=self.p,
            dst_stride=_stride(dst.space),
            **sync,
        )


def _stride(space: Space) -> int:
    return SBUF_PARTITION_STRIDE if space == Space.SBUF else PSUM_PARTITION_STRIDE
