"""Scalar engine: what its instructions do to elements, and its accumulators."""

import numpy as np
from numpy.typing import NDArray

from models import cast, fp, functions
from models.elements import READABLE, WRITABLE
from models.fault import legal
from models.formats import DType
from models.functions import ActFunc
from models.isa import AluOp, Flag, Opcode
from models.operands import Memories

SCALAR_OPS = {
    Opcode.ACTIVATE: int(Flag.SATURATE | Flag.SRC1_SCALAR | Flag.ACCUMULATE | Flag.FRESH),
    Opcode.READ_ACCUMULATOR: int(Flag.SATURATE | Flag.NEGATE),
}
"""The scalar engine's own opcodes, and the flags that each may have."""


class ScalarEngine(Memories):
    """ACTIVATE and READ_ACCUMULATOR of the scalar engine.

    scalar_accumulators: FP32 [partitions, PARTIALS]; all +0 after reset and after a clear. The vector engine's are others.
    """

    scalar_accumulators: NDArray[np.float32]

    def _scalar(self, opcode: Opcode, word: bytes, raw: dict[str, int]) -> None:
        """Run one instruction. Raises Fault(ILLEGAL_FIELD), or one of the range faults, before anything is written."""
        legal(1 <= raw["parts"] <= self.config.partitions)
        flags = raw["flags"]
        legal(flags & ~SCALAR_OPS[opcode] == 0)
        legal(not flags & Flag.FRESH or bool(flags & Flag.ACCUMULATE))
        if opcode == Opcode.ACTIVATE:
            self._activate(word, raw)
        else:
            self._read_accumulator(word, raw)

    def _activate(self, word: bytes, raw: dict[str, int]) -> None:
        parts, flags = raw["parts"], raw["flags"]
        legal(raw["op0"] in list(ActFunc))
        dst, src = self._pattern(word, "dst", parts), self._pattern(word, "src0", parts)
        legal(dst.size == src.size and dst.dtype in WRITABLE and src.dtype in READABLE)
        scale, bias = np.array([raw["imm0"], raw["imm1"]], dtype=np.uint32).view(np.float32)
        f = ActFunc(raw["op0"])
        # a function whose parameter is imm1 has no other bias than src1's
        offset = np.full((parts, 1), np.float32(-0.0) if f in functions.SLOPED else bias)
        if flags & Flag.SRC1_SCALAR:
            pattern = self._pattern(word, "src1", parts)
            legal(pattern.size == 1 and pattern.dtype == DType.FP32)
            offset = self._read(pattern, parts).view(np.float32)
        self._addresses(dst)
        x = cast.decode(src.dtype, self._read(src, parts))
        result = functions.activate(f, x, scale, offset, bias if f in functions.SLOPED else None)
        if flags & Flag.ACCUMULATE:
            sums = self.scalar_accumulators[:parts]
            if flags & Flag.FRESH:
                sums[:] = fp.identity(AluOp.ADD)
            fp.accumulate(AluOp.ADD, result, sums)
        self._write(dst, parts, cast.encode(dst.dtype, result, saturate=bool(flags & Flag.SATURATE)))

    def _read_accumulator(self, word: bytes, raw: dict[str, int]) -> None:
        parts, flags = raw["parts"], raw["flags"]
        legal(raw["op0"] == AluOp.ADD and raw["op1"] == 0)
        dst = self._pattern(word, "dst", parts)
        legal(dst.dtype in WRITABLE and dst.size == 1)
        value = fp.reduce(AluOp.ADD, self.scalar_accumulators[:parts])[:, None]
        value = -value if flags & Flag.NEGATE else value
        self._write(dst, parts, cast.encode(dst.dtype, value, saturate=bool(flags & Flag.SATURATE)))
