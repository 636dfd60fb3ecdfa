"""Vector instructions of a stream that go through whole rows: the eight largest, where values stand, their replacement."""

from typing import Any

from models.access import AccessPattern
from models.element_stream import ElementInstructions, fp32_bits
from models.isa import Flag, Opcode
from models.ranking import EIGHT, INDEXES, MOST_RANKED


class RankingInstructions(ElementInstructions):
    """MAX8, FIND_INDEX8, MATCH_REPLACE8. Methods are as those of ElementInstructions; all raise ProgramError."""

    def max8(
        self, dst: AccessPattern, src: AccessPattern, *, parts: int, saturate: bool = False, **sync: Any
    ) -> int:
        """dst, eight elements a partition = cast(the eight largest of src's 8 to 16384), from the largest on; NaN is above all, -0 below +0."""

        def check() -> None:
            self._row(dst, src, parts)
            _eight("dst", dst)

        self._checked(Opcode.MAX8, check)
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate}
        return self.emit(Opcode.MAX8, fields, {"dst": dst, "src0": src}, **sync)

    def find_index8(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        values: AccessPattern,
        *,
        parts: int,
        start: int = 0,
        **sync: Any,
    ) -> int:
        """dst, eight UINT16, UINT32 or INT32 a partition = start + the number of the first element of src that is a value and that none before took.

        values: eight elements a partition. The type's largest number stands for a value that src does not have. Numbers are FP32 before
        the cast: exact up to 2^24.
        """

        def check() -> None:
            self._row(dst, src, parts)
            _eight("dst", dst)
            self._values(dst, values, parts)
            if dst.dtype not in INDEXES:
                allowed = ", ".join(t.name for t in INDEXES)
                raise ValueError(f"dst.dtype must be one of {allowed}, not {dst.dtype.name}")
            if not -(1 << 31) <= start < 1 << 31:
                raise ValueError(f"start must fit in 32 bits, not {start!r}")

        self._checked(Opcode.FIND_INDEX8, check)
        fields = {"parts": parts, "imm0": start & 0xFFFFFFFF}
        aps = {"dst": dst, "src0": src, "src1": values}
        return self.emit(Opcode.FIND_INDEX8, fields, aps, **sync)

    def match_replace8(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        values: AccessPattern,
        replacement: float,
        *,
        parts: int,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(src, with replacement where `find_index8` finds the eight values); dst may be src."""

        def check() -> None:
            self._row(dst, src, parts)
            self._values(dst, values, parts)
            if dst.size != src.size:
                raise ValueError(f"dst must have src0's {src.size} elements, not {dst.size}")

        self._checked(Opcode.MATCH_REPLACE8, check)
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate, "imm0": fp32_bits(replacement)}
        aps = {"dst": dst, "src0": src, "src1": values}
        return self.emit(Opcode.MATCH_REPLACE8, fields, aps, **sync)

    def _row(self, dst: AccessPattern, src: AccessPattern, parts: int) -> None:
        self._checker().vector(dst, {"src0": src}, parts, copy=False)
        if not EIGHT <= src.size <= MOST_RANKED:
            raise ValueError(f"src0 must have from {EIGHT} to {MOST_RANKED} elements, not {src.size}")

    def _values(self, dst: AccessPattern, values: AccessPattern, parts: int) -> None:
        self._checker().vector(dst, {"values": values}, parts, copy=False)
        _eight("values", values)


def _eight(key: str, ap: AccessPattern) -> None:
    if ap.size != EIGHT:
        raise ValueError(f"{key} must be {EIGHT} elements a partition, not {ap.size}")
