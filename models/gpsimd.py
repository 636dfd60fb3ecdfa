"""GpSimd engine: what its instructions do to elements. It works on SBUF alone."""

import numpy as np
from numpy.typing import NDArray

from models import cast, encoding, fp
from models.access import AccessPattern
from models.elements import READABLE, WRITABLE
from models.fault import Fault, legal
from models.formats import DType
from models.isa import AP_DIMS, AluOp, ErrorCode, Flag, Opcode, Space
from models.operands import Action, Memories

U32 = NDArray[np.uint32]
F32 = NDArray[np.float32]

GPSIMD_OPS = (Opcode.IOTA, Opcode.AFFINE_SELECT, Opcode.LOCAL_GATHER, Opcode.PARTITION_REDUCE)
"""The engine's own opcodes. All of them know the flag SATURATE and no other."""
AFFINE = (Opcode.IOTA, Opcode.AFFINE_SELECT)
"""Opcodes whose src1 is a pattern of numbers."""
WORDS = (DType.INT32, DType.UINT32)
"""Types that take the bits of IOTA's numbers."""
INDICES = (DType.UINT16, DType.INT32, DType.UINT32)
"""Types of LOCAL_GATHER's src1."""
MOST_GATHERED = 1 << 16
"""Elements that LOCAL_GATHER's src0 may have."""
REDUCING = (AluOp.ADD, AluOp.MUL, AluOp.MAX, AluOp.MIN, AluOp.ABS_MAX)
"""Operations of PARTITION_REDUCE."""


def affine(ap: AccessPattern, parts: int, multiplier: int) -> U32:
    """addr + lane * multiplier + sum of stride * place, modulo 2^32, uint32 [parts, elements]."""
    value = np.array([ap.addr], dtype=np.int64)
    for stride, count in ap.padded():
        value = (value[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    lanes = np.arange(parts, dtype=np.int64) * multiplier
    return ((value[None, :] + lanes[:, None]) & 0xFFFFFFFF).astype(np.uint32)


def compare_with_zero(op: AluOp, value: U32) -> NDArray[np.bool_]:
    """INT32 value op 0, for a comparison."""
    v = value.view(np.int32)
    table = {
        AluOp.IS_EQ: v == 0,
        AluOp.NOT_EQ: v != 0,
        AluOp.IS_GT: v > 0,
        AluOp.IS_GE: v >= 0,
        AluOp.IS_LT: v < 0,
        AluOp.IS_LE: v <= 0,
    }
    return table[op]


def tree(op: AluOp, x: F32, lanes: int) -> F32:
    """`op` over the first axis, [parts, N] to [N], as a binary tree over `lanes` (a power of two) lanes.

    Lanes from `parts` on hold the identity; lanes 2k and 2k + 1 become lane k, as lane 2k op lane 2k + 1, until one is left.
    """
    held = np.full((lanes, x.shape[1]), fp.identity(op))
    held[: x.shape[0]] = x
    while held.shape[0] > 1:
        held = fp.alu(op, held[::2], held[1::2])
    return held[0]


class GpsimdEngine(Memories):
    """Instructions about places rather than values: numbers of elements, masks, gathers, sums across partitions."""

    def _gpsimd(self, opcode: Opcode, word: bytes, raw: dict[str, int]) -> Action:
        parts, flags, op0 = raw["parts"], raw["flags"], raw["op0"]
        legal(1 <= parts <= self.config.partitions)
        legal(flags & ~int(Flag.SATURATE) == 0 and raw["op1"] == 0)
        if opcode == Opcode.AFFINE_SELECT:
            legal(op0 in fp.COMPARISONS)
        elif opcode == Opcode.PARTITION_REDUCE:
            legal(op0 in REDUCING)
        else:
            legal(op0 == 0)
        saturate = bool(flags & Flag.SATURATE)
        written = 1 if opcode == Opcode.PARTITION_REDUCE else parts
        dst = self._local(word, "dst", written)
        if opcode == Opcode.IOTA:
            legal(dst.dtype in WRITABLE)
            return self._iota(dst, self._numbers(word, dst), raw, saturate=saturate)
        src = self._local(word, "src0", parts)
        if opcode == Opcode.LOCAL_GATHER:
            return self._gather(dst, src, self._local(word, "src1", parts), parts, saturate=saturate)
        legal(dst.size == src.size and dst.dtype in WRITABLE and src.dtype in READABLE)
        steps = self._numbers(word, dst) if opcode == Opcode.AFFINE_SELECT else None
        out, source = self._place(dst, written), self._place(src, parts)
        rest = np.array([raw["imm1"]], dtype=np.uint32).view(np.float32)

        def run() -> None:
            value = source.numbers()
            if steps is not None:
                number = affine(steps, parts, raw["imm0"])
                value = np.where(compare_with_zero(AluOp(op0), number), value, rest)
            else:
                value = tree(AluOp(op0), value, self.config.partitions)[None, :]
            out.store(value, saturate=saturate)

        return run

    def _iota(
        self, dst: AccessPattern, pattern: AccessPattern, raw: dict[str, int], *, saturate: bool
    ) -> Action:
        out = self._place(dst, raw["parts"])

        def run() -> None:
            number = affine(pattern, out.parts, raw["imm0"])
            if dst.dtype in WORDS:
                out.write(number)
            else:
                out.store(cast.decode(DType.INT32, number), saturate=saturate)

        return run

    def _local(self, word: bytes, name: str, parts: int) -> AccessPattern:
        """A pattern in SBUF."""
        ap = self._pattern(word, name, parts)
        legal(ap.space == Space.SBUF)
        return ap

    def _numbers(self, word: bytes, dst: AccessPattern) -> AccessPattern:
        """src1 as a pattern of numbers, one for each element of dst."""
        raw = encoding.raw_ap(word, "src1")
        legal(raw["space"] == 0 and raw["dtype"] == 0 and raw["part"] == 0)
        size = 1
        for n in range(AP_DIMS):
            size *= raw[f"count{n}"]
        legal(size == dst.size)
        return encoding.ap_from_raw(raw)

    def _gather(
        self, dst: AccessPattern, src: AccessPattern, index: AccessPattern, parts: int, *, saturate: bool
    ) -> Action:
        same = src.dtype == dst.dtype
        legal(same or (dst.dtype in WRITABLE and src.dtype in READABLE))
        legal(index.dtype in INDICES and index.size == dst.size and src.size <= MOST_GATHERED)
        out, places = self._place(dst, parts), self._place(index, parts)

        def run() -> None:
            chosen = places.read()
            # element by element, in each the lowest lane first
            bad = np.argwhere((chosen >= src.size).T)
            if bad.size:
                element, lane = bad[0]
                raise Fault(ErrorCode.INDEX_RANGE, int(chosen[lane, element]))
            # an index out of range comes before a source that is
            bits = self._place(src, parts).read()
            bits = np.take_along_axis(bits, chosen.astype(np.int64), axis=1)
            if same:
                out.write(bits)
            else:
                out.store(cast.decode(src.dtype, bits), saturate=saturate)

        return run
