"""Scalar engine: what its instructions do to elements, and its accumulators."""

import numpy as np
from numpy.typing import NDArray

from models import fp, functions
from models.elements import READABLE, WRITABLE
from models.fault import legal
from models.formats import DType
from models.functions import ActFunc
from models.isa import AluOp, Flag, Opcode
from models.operands import Action, Memories

SCALAR_OPS = {
    Opcode.ACTIVATE: int(Flag.SATURATE | Flag.SRC1_SCALAR | Flag.ACCUMULATE | Flag.FRESH),
    Opcode.READ_ACCUMULATOR: int(Flag.SATURATE | Flag.NEGATE),
}
"""The scalar engine's own opcodes, and the flags that each may have."""
FUNCTIONS = frozenset(ActFunc)


class ScalarEngine(Memories):
    """ACTIVATE and READ_ACCUMULATOR of the scalar engine.

    scalar_accumulators: FP32 [partitions, PARTIALS]; all +0 after reset and after a clear. The vector engine's are others.
    """

    scalar_accumulators: NDArray[np.float32]

    def _scalar(self, opcode: Opcode, word: bytes, raw: dict[str, int]) -> Action:
        """One instruction. Raises Fault(ILLEGAL_FIELD), or one of the range faults."""
        legal(1 <= raw["parts"] <= self.config.partitions)
        flags = raw["flags"]
        legal(flags & ~SCALAR_OPS[opcode] == 0)
        legal(not flags & Flag.FRESH or bool(flags & Flag.ACCUMULATE))
        if opcode == Opcode.ACTIVATE:
            return self._activate(word, raw)
        return self._read_accumulator(word, raw)

    def _activate(self, word: bytes, raw: dict[str, int]) -> Action:
        parts, flags = raw["parts"], raw["flags"]
        legal(raw["op0"] in FUNCTIONS)
        dst, src = self._pattern(word, "dst", parts), self._pattern(word, "src0", parts)
        legal(dst.size == src.size and dst.dtype in WRITABLE and src.dtype in READABLE)
        scale, bias = np.array([raw["imm0"], raw["imm1"]], dtype=np.uint32).view(np.float32)
        f = ActFunc(raw["op0"])
        # a function whose parameter is imm1 has no other bias than src1's
        sloped = f in functions.SLOPED
        offset = np.float32(-0.0) if sloped else bias
        parameter = bias if sloped else None
        pattern = None
        if flags & Flag.SRC1_SCALAR:
            pattern = self._pattern(word, "src1", parts)
            legal(pattern.size == 1 and pattern.dtype == DType.FP32)
        # of operands that are not there, src1's fault comes first
        biases = self._place(pattern, parts) if pattern is not None else None
        out, source = self._place(dst, parts), self._place(src, parts)
        saturate, sums = bool(flags & Flag.SATURATE), bool(flags & Flag.ACCUMULATE)
        fresh = bool(flags & Flag.FRESH)

        def run() -> None:
            added = offset if biases is None else biases.read().view(np.float32)
            result = functions.activate(f, source.numbers(), scale, added, parameter)
            if sums:
                partials = self.scalar_accumulators[:parts]
                if fresh:
                    partials[:] = fp.identity(AluOp.ADD)
                fp.accumulate(AluOp.ADD, result, partials)
            out.store(result, saturate=saturate)

        return run

    def _read_accumulator(self, word: bytes, raw: dict[str, int]) -> Action:
        parts, flags = raw["parts"], raw["flags"]
        legal(raw["op0"] == AluOp.ADD and raw["op1"] == 0)
        dst = self._pattern(word, "dst", parts)
        legal(dst.dtype in WRITABLE and dst.size == 1)
        out = self._place(dst, parts)

        def run() -> None:
            value = fp.reduce(AluOp.ADD, self.scalar_accumulators[:parts])[:, None]
            out.store(-value if flags & Flag.NEGATE else value, saturate=bool(flags & Flag.SATURATE))

        return run
