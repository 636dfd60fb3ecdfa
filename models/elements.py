"""Vector and scalar engine: what their instructions do to elements."""

import numpy as np
from numpy.typing import NDArray

from models import cast, fp, functions
from models.access import AccessPattern
from models.fault import legal
from models.formats import FLOATS, INTS, DType
from models.functions import ActFunc
from models.isa import AP_DIMS, AluOp, Flag, Opcode
from models.operands import Memories

F32 = NDArray[np.float32]

_REVERSE = int(Flag.REVERSE0 | Flag.REVERSE1)
VECTOR_OPS = {
    Opcode.TENSOR_COPY: int(Flag.SATURATE),
    Opcode.TENSOR_TENSOR: int(Flag.SATURATE),
    Opcode.TENSOR_SCALAR: int(Flag.SATURATE | Flag.SRC1_SCALAR) | _REVERSE,
    Opcode.SCALAR_TENSOR_TENSOR: int(Flag.SATURATE) | _REVERSE,
    Opcode.TENSOR_REDUCE: int(Flag.SATURATE | Flag.NEGATE),
    Opcode.MEMSET: int(Flag.SATURATE),
    Opcode.TENSOR_COPY_PREDICATED: int(Flag.SATURATE | Flag.REVERSE0),
    Opcode.TENSOR_TENSOR_SCAN: int(Flag.SATURATE) | _REVERSE,
}
"""The vector engine's own opcodes, and the flags that each may have."""
PAIRS = (
    Opcode.TENSOR_TENSOR,
    Opcode.SCALAR_TENSOR_TENSOR,
    Opcode.TENSOR_COPY_PREDICATED,
    Opcode.TENSOR_TENSOR_SCAN,
)
"""Opcodes that read src1 element by element."""
ONE_OP = (Opcode.TENSOR_TENSOR, Opcode.TENSOR_REDUCE)
"""Opcodes with op0 alone."""
COPIES = (Opcode.TENSOR_COPY, Opcode.TENSOR_COPY_PREDICATED)
"""Opcodes that move bits between equal types."""
NO_OP = (*COPIES, Opcode.MEMSET)
"""Opcodes without ALU operations."""
WRITABLE = frozenset({*FLOATS, *INTS})
READABLE = WRITABLE | {DType.E8M0}
MOST_REDUCED = (1 << 32) - 1
"""Elements that one result of TENSOR_REDUCE may be made of."""


class ElementEngines(Memories):
    """Instructions that give one element for one, or for a group."""

    def _vector(self, opcode: Opcode, word: bytes, raw: dict[str, int]) -> None:
        parts, flags = raw["parts"], raw["flags"]
        legal(1 <= parts <= self.config.partitions)
        legal(flags & ~VECTOR_OPS[opcode] == 0)
        op0, op1 = raw["op0"], raw["op1"]
        legal(op0 in list(AluOp) and op1 in list(AluOp))
        legal(opcode not in NO_OP or op0 == 0)
        legal(opcode not in (*NO_OP, *ONE_OP) or op1 == 0)
        dst = self._pattern(word, "dst", parts)
        saturate = bool(flags & Flag.SATURATE)
        if opcode == Opcode.MEMSET:
            legal(dst.dtype in WRITABLE)
            count = self._addresses(dst).size
            one = cast.encode(
                dst.dtype, np.array([raw["imm0"]], dtype=np.uint32).view(np.float32), saturate=saturate
            )
            self._write(dst, parts, np.broadcast_to(one, (parts, count)))
            return
        src0 = self._pattern(word, "src0", parts)
        if opcode == Opcode.TENSOR_REDUCE:
            self._reduce(dst, src0, raw)
            return
        scalar = opcode == Opcode.TENSOR_SCALAR and bool(flags & Flag.SRC1_SCALAR)
        src1 = self._pattern(word, "src1", parts) if scalar or opcode in PAIRS else None
        legal(dst.size == src0.size and (src1 is None or src1.size == (1 if scalar else dst.size)))
        same = opcode in COPIES and src0.dtype == dst.dtype
        legal(src1 is None or src1.dtype in READABLE)
        if opcode == Opcode.TENSOR_COPY_PREDICATED:
            legal(same or (dst.dtype in WRITABLE and src0.dtype in READABLE))
            assert src1 is not None
            self._predicated(dst, src0, src1, raw)
            return
        if same:
            self._write(dst, parts, self._read(src0, parts))
            return
        legal(dst.dtype in WRITABLE and src0.dtype in READABLE)
        self._addresses(dst)
        value = cast.decode(src0.dtype, self._read(src0, parts))
        if opcode == Opcode.TENSOR_COPY:
            result = value
        else:
            if src1 is not None:
                other = np.broadcast_to(cast.decode(src1.dtype, self._read(src1, parts)), value.shape)
            first = second = _filled(value, raw["imm0"])
            if opcode == Opcode.TENSOR_TENSOR_SCAN:
                result = _scanned(value, other, first, raw)
                self._write(dst, parts, cast.encode(dst.dtype, result, saturate=saturate))
                return
            if opcode == Opcode.TENSOR_SCALAR:
                second = _filled(value, raw["imm1"])
            if src1 is not None:
                first, second = (first, other) if opcode == Opcode.SCALAR_TENSOR_TENSOR else (other, second)
            result = _ordered(AluOp(op0), value, first, flags & Flag.REVERSE0)
            if opcode != Opcode.TENSOR_TENSOR:
                result = _ordered(AluOp(op1), result, second, flags & Flag.REVERSE1)
        self._write(dst, parts, cast.encode(dst.dtype, result, saturate=saturate))

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
        legal(op in fp.IDENTITY and 1 <= raw["axes"] <= AP_DIMS)
        group = src.inner(raw["axes"])
        legal(dst.dtype in WRITABLE and src.dtype in READABLE)
        legal(1 <= group <= MOST_REDUCED and dst.size == src.outer(raw["axes"]))
        self._addresses(dst)
        value = cast.decode(src.dtype, self._read(src, parts))
        result = fp.reduce(op, value.reshape(parts, -1, group))
        if raw["flags"] & Flag.NEGATE:
            result = -result
        self._write(dst, parts, cast.encode(dst.dtype, result, saturate=bool(raw["flags"] & Flag.SATURATE)))

    def _activate(self, word: bytes, raw: dict[str, int]) -> None:
        parts, flags = raw["parts"], raw["flags"]
        legal(1 <= parts <= self.config.partitions)
        legal(flags & ~int(Flag.SATURATE | Flag.SRC1_SCALAR) == 0 and raw["op0"] in list(ActFunc))
        dst, src = self._pattern(word, "dst", parts), self._pattern(word, "src0", parts)
        legal(dst.size == src.size and dst.dtype in WRITABLE and src.dtype in READABLE)
        scale, bias = np.array([raw["imm0"], raw["imm1"]], dtype=np.uint32).view(np.float32)
        offset = np.full((parts, 1), bias)
        if flags & Flag.SRC1_SCALAR:
            pattern = self._pattern(word, "src1", parts)
            legal(pattern.size == 1 and pattern.dtype == DType.FP32)
            offset = self._read(pattern, parts).view(np.float32)
        self._addresses(dst)
        x = cast.decode(src.dtype, self._read(src, parts))
        result = functions.activate(ActFunc(raw["op0"]), x, scale, offset)
        self._write(dst, parts, cast.encode(dst.dtype, result, saturate=bool(flags & Flag.SATURATE)))


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
