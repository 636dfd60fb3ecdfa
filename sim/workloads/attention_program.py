"""The program of softmax attention: blocks of queries, one block's scores computed while the softmax of another is made.

Scores are transposed, keys on partitions and queries along them, so that their exponentials are at once the stationary operands of P V and nothing is
transposed. A query's largest score is then one over partitions: the vector engine finds the largest of each partition, the gpsimd engine that of the
partitions, and a DMA brings it to all of them. A column of ones beside V makes the sum of the exponentials.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from models.access import AccessPattern
from models.config import ChipConfig
from models.formats import DType, dtype_bytes
from models.functions import ActFunc
from models.isa import AluOp, Space
from sim.workloads.attention_shape import RESULTS, Block, Shape, sbuf_sizes
from sim.workloads.dataflow import Dataflow
from sim.workloads.layout import Allocator
from sim.workloads.tiles import ALIGN, Matrix

BF16, FP32 = DType.BF16, DType.FP32
PIECE = 512
"""Elements of an instruction of the vector engine: what waits for its first elements waits for all of them."""


@dataclass(frozen=True, slots=True)
class Places:
    """Bytes in memory: `q` and `k` [heads, head, sequence] and `v` [heads, sequence, head] in BF16, `mask` [P, queries / P * queries] and `out`
    [heads, sequence, head] in FP32."""

    q: int
    k: int
    v: int
    mask: int
    out: int


class AttentionProgram:
    """Emits the whole program. Raises WorkloadError when SBUF is too small."""

    def __init__(self, config: ChipConfig, s: Shape, memory: Places):
        self.s, self.flow, self.memory = s, Dataflow(config), memory
        size = config.sbuf.bytes_per_partition
        room = sum(-(-count // ALIGN) * ALIGN for count in sbuf_sizes(s, 2).values())
        self.buffers = 2 if s.heads > 1 and room <= size else 1
        sbuf = Allocator(size, "SBUF partition")
        self.at = {name: sbuf.take(count, ALIGN) for name, count in sbuf_sizes(s, self.buffers).items()}
        psum = Allocator(config.psum.bytes_per_partition, "PSUM partition")
        self.results = [psum.take(4 * (s.queries // s.p) * (s.head + 1), ALIGN) for _ in range(RESULTS)]
        self.scores_first = self.scores_next = psum.take(0, ALIGN)
        self.scores_end = psum.size

    # --- places --------------------------------------------------------------------------------------------------
    def sbuf(self, name: str, dtype: DType, first: int, *dims: tuple[int, int]) -> AccessPattern:
        """A pattern from element `first` of a matrix in SBUF on."""
        return AccessPattern(self.at[name] + first * dtype_bytes(dtype), dtype, dims)

    def scores_place(self, block: Block) -> Matrix:
        """PSUM for a block's scores [keys, queries], round robin: short blocks have more than one."""
        size = 4 * (block.keys // self.s.p) * block.queries
        first = self.scores_next if self.scores_next + size <= self.scores_end else self.scores_first
        self.scores_next = first + -(-size // ALIGN) * ALIGN
        return Matrix(first, FP32, block.keys, block.queries, self.s.p, Space.PSUM)

    # --- memory to SBUF ------------------------------------------------------------------------------------------
    def load_queries(self, number: int, block: Block) -> None:
        """Q^T of a block."""
        s = self.s
        for i in range(s.steps):
            row = (block.head * s.steps + i) * s.p * s.sequence + block.first
            to = self.sbuf(f"q{number % 2}", BF16, i * s.queries, (1, block.queries))
            self.flow.rows(to, self.memory.q + 2 * row, 2 * s.sequence)

    def load_keys(self, head: int) -> list[Callable[[], None]]:
        """What loads K^T of a head, DMA by DMA."""

        def tile(i: int) -> None:
            row = (head * s.steps + i) * s.p * s.sequence
            to = self.sbuf(f"k{head % self.buffers}", BF16, i * s.sequence, (1, s.sequence))
            self.flow.rows(to, self.memory.k + 2 * row, 2 * s.sequence)

        s = self.s
        return [partial(tile, i) for i in range(s.steps)]

    def load_values(self, head: int) -> list[Callable[[], None]]:
        """What loads V of a head, DMA by DMA."""

        def tile(t: int) -> None:
            row = (head * s.sequence + t * s.p) * s.head
            to = self.sbuf(f"v{head % self.buffers}", BF16, t * s.rows, (1, s.head))
            self.flow.rows(to, self.memory.v + 2 * row, 2 * s.head)

        s = self.s
        return [partial(tile, t) for t in range(s.tiles)]

    # --- a block -------------------------------------------------------------------------------------------------
    def scores(self, number: int, block: Block) -> Matrix:
        """K Q^T of a block, in PSUM."""
        s, out = self.s, self.scores_place(block)
        for t in range(out.tiles):
            pairs = []
            for i in range(s.steps):
                keys = self.sbuf(f"k{block.head % self.buffers}", BF16, i * s.sequence + t * s.p, (1, s.p))
                pairs.append((keys, self.sbuf(f"q{number % 2}", BF16, i * s.queries, (1, block.queries))))
            self.flow.matmuls(out.tile(t), pairs)
        return out

    def largest(self, number: int, block: Block, scores: Matrix) -> None:
        """The largest score of every query times 1 / sqrt(head), in all partitions; causal: of what it sees."""
        s, flow, n = self.s, self.flow, block.queries
        top, most, everywhere = (
            self.sbuf(f"{name}{number % 2}", FP32, 0, (1, n)) for name in ("top", "most", "all")
        )
        if s.causal:
            own = scores.at((block.keys - n) // s.p * n, (1, n // s.p * n))
            flow.tensor_tensor(own, own, self.sbuf("mask", FP32, 0, (s.queries, n // s.p), (1, n)), AluOp.ADD)
        flow.reduce(top, scores.at(0, (1, n), (n, scores.tiles)), AluOp.MAX)
        # rounding is monotonic: the largest product is the product of the largest
        flow.tensor_scalar(top, top, AluOp.MUL, s.scale, AluOp.BYPASS, 0.0)
        flow.partition_reduce(most, top, AluOp.MAX)
        flow.spread(everywhere, most)

    def exponentials(self, number: int, block: Block, scores: Matrix) -> None:
        """exp(score / sqrt(head) - the query's largest) in BF16; the scores' place in PSUM is free before the first exponential."""
        n, flow = block.queries, self.flow
        step = max(1, PIECE // n)
        pieces = [(t, min(step, scores.tiles - t)) for t in range(0, scores.tiles, step)]
        for t, count in pieces:
            z, some = self.sbuf("z", FP32, t * n, (n, count), (1, n)), scores.at(t * n, (n, count), (1, n))
            top = self.sbuf(f"all{number % 2}", FP32, 0, (0, count), (1, n))
            flow.scalar_tensor_tensor(z, some, AluOp.MUL, self.s.scale, AluOp.SUB, top)
        for t, count in pieces:
            run = (1, count * n)
            flow.exponential(self.sbuf(f"p{number % 2}", BF16, t * n, run), self.sbuf("z", FP32, t * n, run))

    def products(self, number: int, block: Block) -> None:
        """P V and the sums of P, in PSUM: [queries, head + 1]."""
        s = self.s
        for q in range(block.queries // s.p):
            keys = block.first + (q + 1) * s.p if s.causal else s.sequence
            pairs = []
            for t in range(keys // s.p):
                weights = self.sbuf(f"p{number % 2}", BF16, t * block.queries + q * s.p, (1, s.p))
                values = self.sbuf(f"v{block.head % self.buffers}", BF16, t * s.rows, (1, s.head + 1))
                pairs.append((weights, values))
            self.flow.matmuls(self.result(number, q * (s.head + 1), (1, s.head + 1)), pairs)

    def result(self, number: int, first: int, *dims: tuple[int, int]) -> AccessPattern:
        """Elements of P V in PSUM."""
        return AccessPattern(self.results[number % RESULTS] + 4 * first, FP32, dims, Space.PSUM)

    def finish(self, number: int, block: Block) -> None:
        """P V by the sums of P, to memory."""
        s, flow, count = self.s, self.flow, block.queries // self.s.p
        part = f"part{number % 2}"
        sums = self.result(number, s.head, (s.head + 1, count))
        flow.activate(self.sbuf(part, FP32, 0, (1, count)), sums, ActFunc.RECIPROCAL)
        out = self.sbuf(f"o{number % 2}", FP32, 0, (s.head, count), (1, s.head))
        values = self.result(number, 0, (s.head + 1, count), (1, s.head))
        flow.tensor_tensor(out, values, self.sbuf(part, FP32, 0, (1, count), (0, s.head)), AluOp.MUL)
        rows = Matrix(self.at[f"o{number % 2}"], FP32, block.queries, s.head, s.p)
        flow.store(rows, self.memory.out + 4 * (block.head * s.sequence + block.first) * s.head)

    # --- all -----------------------------------------------------------------------------------------------------
    def emit(self) -> None:
        """The blocks; of each the scores and the softmax before the products of the one before it."""
        s, blocks = self.s, self.s.blocks()
        per_head = len(blocks) // s.heads
        for i in range(self.buffers):
            ones = self.sbuf(f"v{i}", BF16, s.head, (s.rows, s.tiles), (1, 1))
            self.flow.memset(ones, 1.0)
        self.load_queries(0, blocks[0])
        later: list[Callable[[], None]] = []
        for number, block in enumerate(blocks):
            first = number % per_head == 0
            if first and (number == 0 or self.buffers == 1):
                run(self.load_keys(block.head))
            if number == 0 and s.causal:
                mask = self.sbuf("mask", FP32, 0, (1, s.queries // s.p * s.queries))
                self.flow.rows(mask, self.memory.mask, mask.size * dtype_bytes(FP32))
            scores = self.scores(number, block)
            if number + 1 < len(blocks):
                self.load_queries(number + 1, blocks[number + 1])
            self.largest(number, block, scores)
            self.exponentials(number, block, scores)
            if number:
                self.products(number - 1, blocks[number - 1])
                self.finish(number - 1, blocks[number - 1])
            if first and (number == 0 or self.buffers == 1):
                run(self.load_values(block.head))
            if self.buffers == 2 and block.head + 1 < s.heads:
                # the head before this one has been read; a share each time, since the DMAs of the softmax wait behind these
                if first:
                    later = self.load_keys(block.head + 1) + self.load_values(block.head + 1)
                share = -(-len(later) // (per_head - number % per_head))
                run(later[:share])
                later = later[share:]
        self.products(len(blocks) - 1, blocks[-1])
        self.finish(len(blocks) - 1, blocks[-1])
        self.flow.program.finish()


def run(steps: list[Callable[[], None]]) -> None:
    """All of them, in order."""
    for step in steps:
        step()
