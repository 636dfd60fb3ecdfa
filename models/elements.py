"""Vector engine: what its instructions do to elements."""

from collections.abc import Callable

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
from models.operands import Action
from models.ranking import RANKS, Ranking
from models.xorwow import RANDOMS, Random

F32 = NDArray[np.float32]

_REVERSE = int(Flag.REVERSE0 | Flag.REVERSE1)
_SUMS = int(Flag.ACCUMULATE | Flag.FRESH)
# plain integers: a Flag takes a microsecond to be combined
ACCUMULATE, FRESH = int(Flag.ACCUMULATE), int(Flag.FRESH)
SATURATE, SRC1_SCALAR = int(Flag.SATURATE), int(Flag.SRC1_SCALAR)
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
_KNOWN = frozenset(AluOp)
WRITABLE = frozenset({*FLOATS, *INTS})
READABLE = WRITABLE | {DType.E8M0}
MOST_REDUCED = (1 << 32) - 1
"""Elements that one result of TENSOR_REDUCE may be made of."""


def legal_operations(opcode: Opcode, raw: dict[str, int]) -> None:
    """The rules about op0, op1 and flags of the vector engine's instructions. Raises Fault(ILLEGAL_FIELD)."""
    flags, op0, op1 = raw["flags"], raw["op0"], raw["op1"]
    legal(flags & ~VECTOR_OPS[opcode] == 0)
    legal(op0 in _KNOWN and op1 in ALU_OPS)
    legal(opcode not in NO_OP0 or op0 == 0)
    legal(op0 != AluOp.DIVIDE or opcode in DIVIDES)
    legal(opcode not in REDUCES or op0 in fp.IDENTITY)
    if flags & ACCUMULATE and opcode != Opcode.RANGE_SELECT:
        legal(op1 in fp.IDENTITY and not flags & int(Flag.REVERSE1))
    else:
        legal(opcode not in NO_OP1 or op1 == 0)
    legal(not flags & FRESH or bool(flags & ACCUMULATE))
    legal(opcode != Opcode.RANGE_SELECT or (op0 in fp.COMPARISONS and op1 in fp.COMPARISONS))


class ElementEngines(MxOperations, Ranking, Moments, Random, Moves):
    """Instructions that give one element for one, or for a group.

    accumulators: of the vector engine, FP32 [partitions, PARTIALS]; all +0 after reset and after a clear.
    """

    accumulators: F32

    def _vector(self, opcode: Opcode, word: bytes, raw: dict[str, int]) -> Action:
        parts, flags = raw["parts"], raw["flags"]
        legal(1 <= parts <= self.config.partitions)
        if opcode in MX_OPS:
            return self._mx(opcode, word, raw)
        legal_operations(opcode, raw)
        dst = self._pattern(word, "dst", parts)
        if opcode in RANDOMS:
            return self._randoms(opcode, word, dst, raw)
        if opcode in NO_SOURCE:
            return self._sourceless(opcode, dst, raw)
        src0 = self._pattern(word, "src0", parts)
        if opcode == Opcode.TENSOR_REDUCE:
            return self._reduce(dst, src0, raw)
        if opcode in RANKS:
            return self._rank(opcode, word, dst, src0, raw)
        if opcode in MOVES:
            legal(src0.dtype == dst.dtype or (dst.dtype in WRITABLE and src0.dtype in READABLE))
            return self._move(opcode, dst, src0, raw)
        if opcode in MOMENTS:
            return self._moments(opcode, dst, src0, raw)
        extra = 2 if opcode == Opcode.RANGE_SELECT else int(bool(flags & SRC1_SCALAR))
        src1 = self._pattern(word, "src1", parts) if extra or opcode in PAIRS else None
        legal(dst.size == src0.size and (src1 is None or src1.size == (extra or dst.size)))
        same = opcode in COPIES and src0.dtype == dst.dtype
        legal(src1 is None or src1.dtype in READABLE)
        legal(opcode != Opcode.RANGE_SELECT or (src1 is not None and src1.dtype == DType.FP32))
        legal(same or (dst.dtype in WRITABLE and src0.dtype in READABLE))
        if opcode == Opcode.TENSOR_COPY_PREDICATED:
            assert src1 is not None
            return self._predicated(dst, src0, src1, raw)
        if same:
            a, out = self._place(src0, parts), self._place(dst, parts)
            return lambda: out.write(a.words())
        return self._general(opcode, dst, src0, src1, raw)

    def _general(
        self,
        opcode: Opcode,
        dst: AccessPattern,
        src0: AccessPattern,
        src1: AccessPattern | None,
        raw: dict[str, int],
    ) -> Action:
        parts, flags = raw["parts"], raw["flags"]
        out, a = self._place(dst, parts), self._place(src0, parts)
        b = self._place(src1, parts) if src1 is not None else None
        immediate = _number(raw["imm0"])
        operation, saturate = _operation(opcode, raw), bool(flags & SATURATE)
        op = AluOp.MAX if opcode == Opcode.RANGE_SELECT else AluOp(raw["op1"])
        sums, fresh = bool(flags & ACCUMULATE), bool(flags & FRESH)

        def run() -> None:
            value = a.numbers()
            result = operation(value, immediate if b is None else b.numbers())
            if sums:
                partials = self.accumulators[:parts]
                if fresh:
                    partials[:] = fp.identity(op)
                fp.accumulate(op, result, partials)
            out.store(result, saturate=saturate)

        return run

    def _sourceless(self, opcode: Opcode, dst: AccessPattern, raw: dict[str, int]) -> Action:
        legal(dst.dtype in WRITABLE and (opcode == Opcode.MEMSET or dst.size == 1))
        parts, flags = raw["parts"], raw["flags"]
        out, saturate = self._place(dst, parts), bool(flags & SATURATE)
        if opcode == Opcode.MEMSET:
            one = cast.encode(dst.dtype, _number(raw["imm0"]), saturate=saturate)
            return lambda: out.fill(one)
        op = AluOp(raw["op0"])

        def run() -> None:
            value = fp.reduce(op, self.accumulators[:parts])[:, None]
            out.store(-value if flags & Flag.NEGATE else value, saturate=saturate)

        return run

    def _predicated(
        self, dst: AccessPattern, src: AccessPattern, predicate: AccessPattern, raw: dict[str, int]
    ) -> Action:
        parts, saturate = raw["parts"], bool(raw["flags"] & SATURATE)
        reverse = bool(raw["flags"] & Flag.REVERSE0)
        out, a, b = (self._place(ap, parts) for ap in (dst, src, predicate))

        def run() -> None:
            bits = a.read()
            if a.dtype != out.dtype:
                bits = cast.encode(out.dtype, cast.decode(a.dtype, bits), saturate=saturate)
            out.write(bits, where=(b.numbers() != 0) ^ reverse)

        return run

    def _reduce(self, dst: AccessPattern, src: AccessPattern, raw: dict[str, int]) -> Action:
        parts, op, flags = raw["parts"], AluOp(raw["op0"]), raw["flags"]
        legal(1 <= raw["axes"] <= AP_DIMS)
        group = src.inner(raw["axes"])
        legal(dst.dtype in WRITABLE and src.dtype in READABLE)
        legal(1 <= group <= MOST_REDUCED and dst.size == src.outer(raw["axes"]))
        out, a = self._place(dst, parts), self._place(src, parts)
        saturate, negate = bool(flags & SATURATE), bool(flags & Flag.NEGATE)

        def run() -> None:
            result = fp.reduce(op, a.numbers().reshape(parts, -1, group))
            out.store(-result if negate else result, saturate=saturate)

        return run


def _operation(opcode: Opcode, raw: dict[str, int]) -> Callable[[F32, F32], F32]:
    """What goes into the cast: a function of src0's numbers, [parts, n], and of src1's or imm0, [1, 1]."""
    op0, op1, flags = AluOp(raw["op0"]), AluOp(raw["op1"]), raw["flags"]
    reverse0, reverse1 = bool(flags & Flag.REVERSE0), bool(flags & Flag.REVERSE1)
    imm0, imm1 = _number(raw["imm0"]), _number(raw["imm1"])
    if opcode == Opcode.TENSOR_COPY:
        return lambda value, _: value
    if opcode == Opcode.TENSOR_TENSOR_SCAN:
        return lambda value, other: _scanned(value, other, imm0, raw)
    if opcode == Opcode.SELECT:
        return lambda value, other: cast.canonical(np.where((other == 0) == reverse0, value, imm1))
    if opcode == Opcode.RANGE_SELECT:

        def inside(value: F32, other: F32) -> F32:
            number = (raw["imm0"] + np.arange(value.shape[1])).astype(np.uint32)
            index = cast.decode(DType.INT32, number)
            chosen = (fp.compare(op0, index, other[:, :1]) != 0) & (fp.compare(op1, index, other[:, 1:]) != 0)
            return cast.canonical(np.where(chosen, value, imm1))

        return inside
    if opcode == Opcode.SCALAR_TENSOR_TENSOR:
        return lambda value, other: _ordered(op1, _ordered(op0, value, imm0, reverse0), other, reverse1)
    if opcode == Opcode.EXPONENTIAL:
        return lambda value, other: exponential(_ordered(op0, value, other, reverse0))
    # x BYPASS imm1 is x, and x canonical from op0
    if opcode == Opcode.TENSOR_SCALAR and not flags & ACCUMULATE and (op1 != AluOp.BYPASS or reverse1):
        return lambda value, other: _ordered(op1, _ordered(op0, value, other, reverse0), imm1, reverse1)
    return lambda value, other: _ordered(op0, value, other, reverse0)


def _number(bits: int) -> F32:
    """An immediate, FP32 [1, 1]."""
    return np.full((1, 1), bits, dtype=np.uint32).view(np.float32)


def _scanned(a: F32, b: F32, start: F32, raw: dict[str, int]) -> F32:
    """The states of a scan, [parts, elements], from `start` on."""
    out, op0, op1 = np.empty_like(a), AluOp(raw["op0"]), AluOp(raw["op1"])
    reverse0, reverse1 = bool(raw["flags"] & Flag.REVERSE0), bool(raw["flags"] & Flag.REVERSE1)
    state = np.broadcast_to(start[:, 0], a.shape[:1])
    for n in range(a.shape[1]):
        state = _ordered(op0, state, a[:, n], reverse0)
        state = _ordered(op1, state, b[:, n], reverse1)
        out[:, n] = state
    return out


def _ordered(op: AluOp, a: F32, b: F32, reverse: bool) -> F32:
    """a op b, or b op a."""
    out = fp.alu(op, b, a) if reverse else fp.alu(op, a, b)
    return np.broadcast_to(out, np.broadcast_shapes(a.shape, b.shape)) if op == AluOp.BYPASS else out
