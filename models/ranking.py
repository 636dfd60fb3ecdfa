"""Vector engine: the eight largest elements, where eight values stand, and their replacement."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.access import AccessPattern
from models.fault import legal
from models.formats import FLOATS, INTS, DType
from models.isa import Flag, Opcode
from models.operands import Action, Memories

F32 = NDArray[np.float32]

EIGHT = 8
"""Values that an instruction of this kind collects, or looks for."""
MOST_RANKED = 16384
"""Elements of a partition that it goes through."""
RANKS = (Opcode.MAX8, Opcode.FIND_INDEX8, Opcode.MATCH_REPLACE8)
GIVEN = (Opcode.FIND_INDEX8, Opcode.MATCH_REPLACE8)
"""Those whose eight values come from src1."""
LISTED = (Opcode.MAX8, Opcode.FIND_INDEX8)
"""Those that give eight results after the last element."""
INDEXES = (DType.UINT16, DType.UINT32, DType.INT32)
"""Types that FIND_INDEX8 writes."""
MISSING = np.float32(np.inf)
"""What FIND_INDEX8 casts where a value is not there: the type's largest number."""


def order(x: F32) -> NDArray[np.int64]:
    """Numbers in the order of fp.maximum, of FP32 with canonical NaN: NaN above all, -0 below +0."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)


def largest(x: F32) -> F32:
    """The EIGHT largest of each row, [rows, n] to [rows, EIGHT], n >= EIGHT: descending, duplicates kept, NaN canonical."""
    x = cast.canonical(x)
    at = np.argsort(-order(x), axis=1, kind="stable")[:, :EIGHT]
    return np.take_along_axis(x, at, axis=1)


def matches(x: F32, values: F32) -> NDArray[np.int64]:
    """Where each of `values`, [rows, EIGHT], stands in x, [rows, n]: its first place that none before it took; -1 without one.

    A value is found by its FP32 code: -0 is not +0, NaN is NaN.
    """
    codes, wanted = order(cast.canonical(x)), order(cast.canonical(values))
    out = np.full(values.shape, -1, dtype=np.int64)
    free = np.ones(codes.shape, dtype=bool)
    rows = np.arange(codes.shape[0])
    for k in range(values.shape[1]):
        here = (codes == wanted[:, k : k + 1]) & free
        there = here.any(axis=1)
        first = here.argmax(axis=1)
        out[there, k] = first[there]
        free[rows[there], first[there]] = False
    return out


class Ranking(Memories):
    """MAX8, FIND_INDEX8 and MATCH_REPLACE8."""

    def _rank(
        self, opcode: Opcode, word: bytes, dst: AccessPattern, src: AccessPattern, raw: dict[str, int]
    ) -> Action:
        """One of RANKS. Raises Fault(ILLEGAL_FIELD) for sizes and types, and range faults."""
        parts = raw["parts"]
        given = self._pattern(word, "src1", parts) if opcode in GIVEN else None
        readable = {*FLOATS, *INTS, DType.E8M0}
        legal(EIGHT <= src.size <= MOST_RANKED and dst.size == (EIGHT if opcode in LISTED else src.size))
        legal(given is None or (given.size == EIGHT and given.dtype in readable))
        legal(dst.dtype in (INDEXES if opcode == Opcode.FIND_INDEX8 else {*FLOATS, *INTS}))
        legal(src.dtype in readable)
        out, source = self._place(dst, parts), self._place(src, parts)
        values = self._place(given, parts) if given is not None else None
        saturate = bool(raw["flags"] & Flag.SATURATE)

        def run() -> None:
            x = source.numbers()
            if values is None:
                result = largest(x)
            else:
                at = matches(x, values.numbers())
                result = _numbers(at, raw) if opcode == Opcode.FIND_INDEX8 else _replaced(x, at, raw)
            out.store(result, saturate=saturate)

        return run


def _numbers(at: NDArray[np.int64], raw: dict[str, Any]) -> F32:
    """Elements' numbers from imm0 on, modulo 2^32, as FP32."""
    number = cast.decode(DType.INT32, ((raw["imm0"] + at) % (1 << 32)).astype(np.uint32))
    return np.where(at < 0, MISSING, number)


def _replaced(x: F32, at: NDArray[np.int64], raw: dict[str, Any]) -> F32:
    """x with imm0 where a value was found."""
    out = x.copy()
    row, slot = np.nonzero(at >= 0)
    out[row, at[row, slot]] = np.array([raw["imm0"]], dtype=np.uint32).view(np.float32)[0]
    return out
