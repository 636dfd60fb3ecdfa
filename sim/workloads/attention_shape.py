"""Sizes of softmax attention, and how it is cut for a chip."""

from dataclasses import dataclass

from models.config import ChipConfig
from models.formats import DType, dtype_bytes
from sim.workloads.layout import WorkloadError
from sim.workloads.tiles import ALIGN

QUERIES = 64
"""Queries of a block at most: as many columns have a matmul's five further cycles at 8 %, and more do not get far below."""
ONES = 8
"""Columns beside a head's features in the tiles of V: ones, of which the first is used; eight, so that DMAs stay aligned."""
RESULTS = 2
"""Blocks whose results have room in PSUM."""


@dataclass(frozen=True, slots=True)
class Options:
    """Sizes; None: a sequence of 16 P positions and heads of 4 P features. `causal`: a query sees the keys up to its own position. `seed` of Q, K and V."""

    heads: int = 2
    sequence: int | None = None
    head: int | None = None
    causal: bool = False
    seed: int = 2026


@dataclass(frozen=True, slots=True)
class Block:
    """Queries `first` to `first + queries - 1` of head `head`, which see keys 0 to `keys - 1` (causal: up to their own)."""

    head: int
    first: int
    queries: int
    keys: int


@dataclass(frozen=True, slots=True)
class Shape:
    """`p` partitions; `heads` heads of `sequence` positions and `head` features; `queries` of a block at most."""

    p: int
    heads: int
    sequence: int
    head: int
    causal: bool
    queries: int

    @property
    def steps(self) -> int:
        """Tiles of P features of a head."""
        return self.head // self.p

    @property
    def tiles(self) -> int:
        """Tiles of P keys."""
        return self.sequence // self.p

    @property
    def rows(self) -> int:
        """Elements of a tile of V along a partition: a head's features and ones."""
        return self.head + ONES

    @property
    def scale(self) -> float:
        """What scores are multiplied with."""
        return self.head**-0.5

    @property
    def positions(self) -> tuple[int, int]:
        """Shape of Q, K (each transposed), V and the result with all heads' positions stacked."""
        return self.heads * self.sequence, self.head

    @property
    def macs(self) -> int:
        """Multiplications that attention needs: those of Q K^T and of P V with what is seen."""
        n = self.sequence
        seen = n * (n + 1) // 2 if self.causal else n * n
        return 2 * self.heads * self.head * seen

    def blocks(self) -> list[Block]:
        """In the order of work: head by head; where blocks differ in their keys a long one and a short one in turns, so that the tensor engine has a
        long one to do while the softmax of a short one is made.
        """
        out = []
        for head in range(self.heads):
            some = []
            for first in range(0, self.sequence, self.queries):
                count = min(self.queries, self.sequence - first)
                some.append(Block(head, first, count, first + count if self.causal else self.sequence))
            if self.causal:
                half = len(some) // 2
                long, short = some[half:][::-1], some[:half]
                some = [b for pair in zip(long, [*short, None], strict=False) for b in pair if b is not None]
            out += some
        return out


def shape(config: ChipConfig, options: Options) -> Shape:
    """Attention for a chip. Raises WorkloadError for sizes that do not go with it, or where the tensor engine has no BF16."""
    if DType.BF16 not in config.tensor.formats:
        raise WorkloadError(f"attention needs bf16 in tensor.formats, which {config.name} has not")
    p = config.partitions
    sequence = options.sequence if options.sequence is not None else 16 * p
    head = options.head if options.head is not None else 4 * p
    if options.heads < 1:
        raise WorkloadError(f"heads must be at least 1, not {options.heads!r}")
    for key, value in (("sequence", sequence), ("head", head)):
        if value < 1 or value % p:
            raise WorkloadError(f"{key} must be a multiple of {p} (the partitions), not {value!r}")
    most = config.psum.bank_bytes // 4 - 1
    if head > most:
        raise WorkloadError(
            f"head must be at most {most // p * p} (a PSUM bank's columns, one of them the sum), not {head!r}"
        )
    return Shape(p, options.heads, sequence, head, options.causal, _queries(config, sequence, head))


def _queries(config: ChipConfig, sequence: int, head: int) -> int:
    """The most queries of a block for which scores of all keys have room in PSUM beside RESULTS blocks' results."""
    p, size = config.partitions, config.psum.bytes_per_partition
    for queries in range(min(QUERIES, sequence, config.psum.bank_bytes // 4) // p * p, 0, -p):
        if psum_bytes(p, sequence, head, queries) <= size:
            return queries
    need = psum_bytes(p, sequence, head, p)
    raise WorkloadError(
        f"PSUM partition of {size} bytes is too small: {need} needed for {p} queries with a sequence of {sequence} and heads of {head}"
    )


def psum_bytes(p: int, sequence: int, head: int, queries: int) -> int:
    """Bytes of a partition for one block's scores and RESULTS blocks' results."""
    scores = 4 * (sequence // p) * queries
    result = 4 * (queries // p) * (head + 1)
    return -(-scores // ALIGN) * ALIGN + RESULTS * -(-result // ALIGN) * ALIGN


def sbuf_sizes(s: Shape, buffers: int) -> dict[str, int]:
    """Bytes of a partition for each matrix in SBUF, with keys and values of `buffers` heads."""
    half, full = dtype_bytes(DType.BF16), dtype_bytes(DType.FP32)
    scores = s.tiles * s.queries
    sub = s.queries // s.p
    sizes = {f"k{i}": half * s.steps * s.sequence for i in range(buffers)}
    sizes |= {f"v{i}": half * s.tiles * s.rows for i in range(buffers)}
    for i in range(2):
        sizes |= {f"q{i}": half * s.steps * s.queries, f"p{i}": half * scores}
        sizes |= {f"top{i}": full * s.queries, f"most{i}": full * s.queries, f"all{i}": full * s.queries}
        sizes |= {f"part{i}": full * sub, f"o{i}": full * sub * s.head}
    sizes["z"] = full * scores
    if s.causal:
        sizes["mask"] = full * sub * s.queries
    return sizes
