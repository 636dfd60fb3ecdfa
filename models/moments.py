"""Vector engine: count, mean and variance of a row, and of many rows' together, without cancellation whatever the mean."""

import numpy as np
from numpy.typing import NDArray

from models import fp
from models.access import AccessPattern
from models.fault import legal
from models.formats import FLOATS, INTS, DType
from models.isa import AluOp, Flag, Opcode
from models.operands import Action, Memories

F32 = NDArray[np.float32]

STATS, AGGREGATE = Opcode.BN_STATS, Opcode.BN_AGGR
MOMENTS = {STATS: 6, AGGREGATE: 2}
"""Opcodes of this kind, and how many elements each one writes."""
TRIPLE = 3
"""Elements that stand for a set of numbers: count, mean, variance * count."""
MOST = {STATS: 512, AGGREGATE: 512 * TRIPLE}
"""Elements of a partition that they go through."""


def stats(x: F32) -> F32:
    """[rows, n] to [rows, 6], n >= 1: (count, mean, variance * count) of the elements of even number, then of odd number.

    Two walks, each with sums as of fp.reduce, but of partials 0 and 2, 1 and 3: first the distances from the set's first element, whose
    mean gives the mean; then the squares of those from the mean.
    """
    rows, n = x.shape
    at = np.arange(n) % 2
    first = x[:, [0, min(1, n - 1)]]
    total = _sums(fp.sub(x, first[:, at]))
    counts = np.broadcast_to(np.array([n - n // 2, n // 2], dtype=np.float32), (rows, 2))
    mean, excess = _mean(first, total, counts)
    distance = fp.sub(x, mean[:, at])
    spread = _spread(_sums(fp.mul(distance, distance)), excess)
    out = np.stack([counts, mean, spread], axis=2)
    return np.where(counts[..., None] == 0, np.float32(0), out).reshape(rows, 2 * TRIPLE)


def aggregate(x: F32) -> F32:
    """[rows, 3 n] to [rows, 2], n >= 1: (mean, variance) of all that the triples stand for.

    Two walks with one sum each, from the first triple on; distances are from the mean of the first triple whose count is not a zero.
    """
    rows = x.shape[0]
    triples = x.reshape(rows, -1, TRIPLE)
    shift = np.zeros(rows, dtype=np.float32)
    found = np.zeros(rows, dtype=bool)
    counts, total, spread = (np.full(rows, fp.identity(AluOp.ADD)) for _ in range(3))
    for n in range(triples.shape[1]):
        count, mean, own = triples[:, n].T
        shift = np.where(found, shift, mean)
        found |= count != 0
        counts = fp.add(count, counts)
        total = fp.add(fp.mul(fp.sub(mean, shift), count), total)
        spread = fp.add(own, spread)
    mean, excess = _mean(shift, total, counts)
    for n in range(triples.shape[1]):
        distance = fp.sub(triples[:, n, 1], mean)
        spread = fp.add(fp.mul(fp.mul(distance, triples[:, n, 0]), distance), spread)
    out = np.stack([mean, fp.divide(_spread(spread, excess), counts)], axis=1)
    return np.where(counts[:, None] == 0, np.float32(0), out)


def _sums(x: F32) -> F32:
    """Of the elements of even number and of odd number, [rows, n] to [rows, 2]."""
    partials = np.full((x.shape[0], fp.PARTIALS), fp.identity(AluOp.ADD))
    fp.accumulate(AluOp.ADD, x, partials)
    return fp.add(partials[:, :2], partials[:, 2:])


def _mean(shift: F32, total: F32, counts: F32) -> tuple[F32, F32]:
    """The mean, from a sum of distances from `shift`; and what its rounding adds to a sum of squared distances from it."""
    offset = fp.divide(total, counts)
    mean = fp.add(shift, offset)
    lost = fp.sub(offset, fp.sub(mean, shift))
    excess = fp.mul(fp.mul(lost, lost), counts)
    # where squares overflow the variance does, which an infinite excess would turn into NaN
    return mean, fp.minimum(excess, np.full_like(excess, np.finfo(np.float32).max))


def _spread(squares: F32, excess: F32) -> F32:
    """variance * count; not below zero, whatever was rounded."""
    return fp.maximum(fp.sub(squares, excess), np.zeros_like(squares))


class Moments(Memories):
    """BN_STATS and BN_AGGR."""

    def _moments(self, opcode: Opcode, dst: AccessPattern, src: AccessPattern, raw: dict[str, int]) -> Action:
        """One of MOMENTS. Raises Fault(ILLEGAL_FIELD) for sizes and types, and range faults."""
        parts, saturate = raw["parts"], bool(raw["flags"] & Flag.SATURATE)
        legal(1 <= src.size <= MOST[opcode] and dst.size == MOMENTS[opcode])
        legal(opcode == STATS or src.size % TRIPLE == 0)
        legal(dst.dtype in {*FLOATS, *INTS} and src.dtype in {*FLOATS, *INTS, DType.E8M0})
        out, a = self._place(dst, parts), self._place(src, parts)
        of = stats if opcode == STATS else aggregate
        return lambda: out.store(of(a.numbers()), saturate=saturate)
