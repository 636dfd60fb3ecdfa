"""Vector engine: what its instructions do to elements."""

import numpy as np
from numpy.typing import NDArray

from models import cast, fp
from models.access import AccessPattern
from models.exponential import exponential
from models.fault import legal
from models.formats import FLOATS, INTS, DType
from models.isa import AP_DIMS, AluOp, Flag, Opcode
from models.moments import MOMENTS, Moments
from models.moves import MOVES, Moves
from models.mx import MX_OPS, MxOperations
from models.ranking import RANKS, Ranking
from models.xorwow import RANDOMS, Random

F32 = NDArray[np.float32]

_REVERSE = int(Flag.REVERSE0 | Flag.REVERSE1)
_SUMS = int(Flag.ACCUMULATE | Flag.FRESH)
VECTOR_OPS = {
    Opcode.TENSOR_COPY: int(Flag.SATURATE),
    Opcode.TENSOR_TENSOR: int(Flag.SATURATE) | _SUMS,
    Opcode.TENSOR_SCALAR: int(Flag.SATURATE | Flag.SRC1_SCALAR) | _REVERSE | _SUMS,
    Opcode.SCALAR_TENSOR_TENSOR: int(Flag.SATURATE) | _REVERSE,
    Opcode.TENSOR_REDUCE: int(Flag.SATURATE | Flag.NEGATE),
    Opcode.MEMSET: int(Flag.SATURATE),
    Opcode.TENSOR_COPY_PREDICATED: int(Flag.SATURATE | Flag.REVERSE0),
    Opcode.TENSOR_TENSOR_SCAN: int(Flag.SATURATE) | _REVERSE,
    Opcode.READ_ACCUMULATOR: int(Flag.SATURATE | Flag.NEGATE),
    Opcode.EXPONENTIAL: int(Flag.SATURATE | Flag.SRC1_SCALAR | Flag.REVERSE0) | _SUMS,
    Opcode.SELECT: int(Flag.SATURATE | Flag.REVERSE0) | _SUMS,
    Opcode.RANGE_SELECT: int(Flag.SATURATE) | _SUMS,
    Opcode.MX_SCALE: 0,
    Opcode.MX_CAST: 0,
    Opcode.BN_STATS: int(Flag.SATURATE),
    Opcode.BN_AGGR: int(Flag.SATURATE),
    Opcode.MAX8: int(Flag.SATURATE),
    Opcode.FIND_INDEX8: 0,
    Opcode.MATCH_REPLACE8: int(Flag.SATURATE),
    Opcode.STREAM_SHUFFLE: int(Flag.SATURATE),
    Opcode.LANE_TRANSPOSE: int(Flag.SATURATE),
    Opcode.RANDOM: int(Flag.SATURATE),
    Opcode.RANDOM_STATE: 0,
    Opcode.DROPOUT: int(Flag.SATURATE),
}
"""The vector engine's own opcodes, and the flags that each may have."""
PAIRS = (
    Opcode.TENSOR_TENSOR,
    Opcode.SCALAR_TENSOR_TENSOR,
    Opcode.TENSOR_COPY_PREDICATED,
    Opcode.TENSOR_TENSOR_SCAN,
    Opcode.SELECT,
)
"""Opcodes that read src1 element by element."""
COPIES = (Opcode.TENSOR_COPY, Opcode.TENSOR_COPY_PREDICATED, *MOVES)
"""Opcodes that move bits between equal types."""
NO_SOURCE = (Opcode.MEMSET, Opcode.READ_ACCUMULATOR, Opcode.RANDOM)
NO_OP0 = (*COPIES, Opcode.MEMSET, Opcode.SELECT, *RANKS, *MOMENTS, Opcode.DROPOUT)
"""Opcodes without a first ALU operation."""
NO_OP1 = (
    *NO_OP0,
    Opcode.TENSOR_TENSOR,
    Opcode.TENSOR_REDUCE,
    Opcode.READ_ACCUMULATOR,
    Opcode.EXPONENTIAL,
)
"""Opcodes without a second one, but for ACCUMULATE."""
REDUCES = (Opcode.TENSOR_REDUCE, Opcode.READ_ACCUMULATOR)
"""Opcodes whose op0 must be able to reduce."""
DIVIDES = (Opcode.TENSOR_TENSOR, Opcode.TENSOR_SCALAR)
"""Opcodes whose op0 may be DIVIDE."""
ALU_OPS = tuple(op for op in AluOp if op != AluOp.DIVIDE)
"""Operations of both ALU stages."""
WRITABLE = frozenset({*FLOATS, *INTS})
READABLE = WRITABLE | {DType.E8M0}
MOST_REDUCED = (1 << 32) - 1
"""Elements that one result of TENSOR_REDUCE may be made of."""


def legal_operations(opcode: Opcode, raw: dict[str, int]) -> None:
    """The rules about op0, op1 and flags of the vector engine's instructions. Raises Fault(ILLEGAL_FIELD)."""
    flags, op0, op1 = raw["flags"], raw["op0"], raw["op1"]
    legal(flags & ~VECTOR_OPS[opcode] == 0)
    legal(op0 in list(AluOp) and op1 in ALU_OPS)
    legal(opcode not in NO_OP0 or op0 == 0)
    legal(op0 != AluOp.DIVIDE or opcode in DIVIDES)
    legal(opcode not in REDUCES or op0 in fp.IDENTITY)
    if flags & Flag.ACCUMULATE and opcode != Opcode.RANGE_SELECT:
        legal(op1 in fp.IDENTITY and not flags & Flag.REVERSE1)
    else:
        legal(opcode not in NO_OP1 or op1 == 0)
    legal(not flags & Flag.FRESH or bool(flags & Flag.ACCUMULATE))
    legal(opcode != Opcode.RANGE_SELECT or (op0 in fp.COMPARISONS and op1 in fp.COMPARISONS))


class ElementEngines(MxOperations, Ranking, Moments, Random, Moves):
    """Instructions that give one element for one, or for a group.

    accumulators: of the vector engine, FP32 [partitions, PARTIALS]; all +0 after reset and after a clear.
    """

    accumulators: F32

    def _vector(self, opcode: Opcode, word: bytes, raw: dict[str, int]) -> None:
        parts, flags = raw["parts"], raw["flags"]
        legal(1 <= parts <= self.config.partitions)
        if opcode in MX_OPS:
            self._mx(opcode, word, raw)
            return
        legal_operations(opcode, raw)
        dst = self._pattern(word, "dst", parts)
        if opcode in RANDOMS:
            self._randoms(opcode, word, dst, raw)
            return
        if opcode in NO_SOURCE:
            self._sourceless(opcode, dst, raw)
            return
        src0 = self._pattern(word, "src0", parts)
        if opcode == Opcode.TENSOR_REDUCE:
            self._reduce(dst, src0, raw)
            return
        if opcode in RANKS:
            self._rank(opcode, word, dst, src0, raw)
            return
        if opcode in MOVES:
            legal(src0.dtype == dst.dtype or (dst.dtype in WRITABLE and src0.dtype in READABLE))
            self._move(opcode, dst, src0, raw)
            return
        if opcode in MOMENTS:
            self._moments(opcode, dst, src0, raw)
            return
        scalar = bool(flags & Flag.SRC1_SCALAR)
        extra = 2 if opcode == Opcode.RANGE_SELECT else int(scalar)
        src1 = self._pattern(word, "src1", parts) if extra or opcode in PAIRS else None
        legal(dst.size == src0.size and (src1 is None or src1.size == (extra or dst.size)))
        same = opcode in COPIES and src0.dtype == dst.dtype
        legal(src1 is None or src1.dtype in READABLE)
        legal(opcode != Opcode.RANGE_SELECT or (src1 is not None and src1.dtype == DType.FP32))
        legal(same or (dst.dtype in WRITABLE and src0.dtype in READABLE))
        if opcode == Opcode.TENSOR_COPY_PREDICATED:
            assert src1 is not None
            self._predicated(dst, src0, src1, raw)
            return
        if same:
            self._write(dst, parts, self._read(src0, parts))
            return
        self._addresses(dst)
        value = cast.decode(src0.dtype, self._read(src0, parts))
        other = _filled(value, raw["imm0"])
        if src1 is not None:
            other = cast.decode(src1.dtype, self._read(src1, parts))
            if scalar:
                other = np.broadcast_to(other, value.shape)
        result = _results(opcode, value, other, raw)
        if flags & Flag.ACCUMULATE:
            op = AluOp.MAX if opcode == Opcode.RANGE_SELECT else AluOp(raw["op1"])
            sums = self.accumulators[:parts]
            if flags & Flag.FRESH:
                sums[:] = fp.identity(op)
            fp.accumulate(op, result, sums)
        self._write(dst, parts, cast.encode(dst.dtype, result, saturate=bool(flags & Flag.SATURATE)))

    def _sourceless(self, opcode: Opcode, dst: AccessPattern, raw: dict[str, int]) -> None:
        legal(dst.dtype in WRITABLE and (opcode == Opcode.MEMSET or dst.size == 1))
        parts, count = raw["parts"], self._addresses(dst).size
        if opcode == Opcode.MEMSET:
            value = np.full((1, 1), raw["imm0"], dtype=np.uint32).view(np.float32)
        else:
            value = fp.reduce(AluOp(raw["op0"]), self.accumulators[:parts])[:, None]
            value = -value if raw["flags"] & Flag.NEGATE else value
        one = cast.encode(dst.dtype, value, saturate=bool(raw["flags"] & Flag.SATURATE))
        self._write(dst, parts, np.broadcast_to(one, (parts, count)))

    def _predicated(
        self, dst: AccessPattern, src: AccessPattern, predicate: AccessPattern, raw: dict[str, int]
    ) -> None:
        parts, flags = raw["parts"], raw["flags"]
        self._addresses(dst)
        bits = self._read(src, parts)
        if src.dtype != dst.dtype:
            value = cast.decode(src.dtype, bits)
            bits = cast.encode(dst.dtype, value, saturate=bool(flags & Flag.SATURATE))
        holds = cast.decode(predicate.dtype, self._read(predicate, parts)) != 0
        self._write(dst, parts, bits, where=holds ^ bool(flags & Flag.REVERSE0))

    def _reduce(self, dst: AccessPattern, src: AccessPattern, raw: dict[str, int]) -> None:
        parts, op = raw["parts"], AluOp(raw["op0"])
        legal(1 <= raw["axes"] <= AP_DIMS)
        group = src.inner(raw["axes"])
        legal(dst.dtype in WRITABLE and src.dtype in READABLE)
        legal(1 <= group <= MOST_REDUCED and dst.size == src.outer(raw["axes"]))
        self._addresses(dst)
        value = cast.decode(src.dtype, self._read(src, parts))
        result = fp.reduce(op, value.reshape(parts, -1, group))
        if raw["flags"] & Flag.NEGATE:
            result = -result
        self._write(dst, parts, cast.encode(dst.dtype, result, saturate=bool(raw["flags"] & Flag.SATURATE)))


def _results(opcode: Opcode, value: F32, other: F32, raw: dict[str, int]) -> F32:
    """What goes into the cast: `value` is src0, `other` src1 or imm0."""
    op0, op1, flags = AluOp(raw["op0"]), AluOp(raw["op1"]), raw["flags"]
    reverse0, reverse1 = flags & Flag.REVERSE0, flags & Flag.REVERSE1
    rest = _filled(value, raw["imm1"])
    if opcode == Opcode.TENSOR_COPY:
        return value
    if opcode == Opcode.TENSOR_TENSOR_SCAN:
        return _scanned(value, other, _filled(value, raw["imm0"]), raw)
    if opcode == Opcode.SELECT:
        return fp.alu(AluOp.BYPASS, np.where((other == 0) == bool(reverse0), value, rest), rest)
    if opcode == Opcode.RANGE_SELECT:
        number = (raw["imm0"] + np.arange(value.shape[1])).astype(np.uint32)
        index = np.broadcast_to(cast.decode(DType.INT32, number), value.shape)
        inside = (fp.compare(op0, index, other[:, :1]) != 0) & (fp.compare(op1, index, other[:, 1:]) != 0)
        return fp.alu(AluOp.BYPASS, np.where(inside, value, rest), rest)
    if opcode == Opcode.SCALAR_TENSOR_TENSOR:
        first = _ordered(op0, value, _filled(value, raw["imm0"]), reverse0)
        return _ordered(op1, first, other, reverse1)
    first = _ordered(op0, value, other, reverse0)
    if opcode == Opcode.EXPONENTIAL:
        return exponential(first)
    if opcode == Opcode.TENSOR_SCALAR and not flags & Flag.ACCUMULATE:
        return _ordered(op1, first, rest, reverse1)
    return first


def _filled(like: F32, bits: int) -> F32:
    """An immediate for every element."""
    return np.full(like.shape, bits, dtype=np.uint32).view(np.float32)


def _scanned(a: F32, b: F32, start: F32, raw: dict[str, int]) -> F32:
    """The states of a scan, [parts, elements], from `start`'s first column on."""
    out, op0, op1 = np.empty_like(a), AluOp(raw["op0"]), AluOp(raw["op1"])
    state = start[:, 0] if start.shape[1] else start
    for n in range(a.shape[1]):
        state = _ordered(op0, state, a[:, n], raw["flags"] & Flag.REVERSE0)
        state = _ordered(op1, state, b[:, n], raw["flags"] & Flag.REVERSE1)
        out[:, n] = state
    return out


def _ordered(op: AluOp, a: F32, b: F32, reverse: int) -> F32:
    """a op b, or b op a."""
    return fp.alu(op, b, a) if reverse else fp.alu(op, a, b)
