"""Vector instructions of a stream for counts, means and variances."""

from typing import Any

from models.access import AccessPattern
from models.element_stream import ElementInstructions
from models.isa import Flag, Opcode
from models.moments import MOMENTS, MOST, TRIPLE


class MomentInstructions(ElementInstructions):
    """BN_STATS and BN_AGGR. Methods are as those of ElementInstructions; all raise ProgramError."""

    def bn_stats(
        self, dst: AccessPattern, src: AccessPattern, *, parts: int, saturate: bool = False, **sync: Any
    ) -> int:
        """dst, six elements a partition = cast(count, mean, variance * count) of src's elements 0, 2 ..., then of 1, 3 ...; at most 512."""
        return self._moments(Opcode.BN_STATS, dst, src, parts, saturate=saturate, **sync)

    def bn_aggr(
        self, dst: AccessPattern, src: AccessPattern, *, parts: int, saturate: bool = False, **sync: Any
    ) -> int:
        """dst, two elements a partition = cast(mean, variance) of all that src's triples stand for, which `bn_stats` made; at most 512."""
        return self._moments(Opcode.BN_AGGR, dst, src, parts, saturate=saturate, **sync)

    def _moments(
        self,
        opcode: Opcode,
        dst: AccessPattern,
        src: AccessPattern,
        parts: int,
        *,
        saturate: bool,
        **sync: Any,
    ) -> int:
        def check() -> None:
            self._checker().vector(dst, {"src0": src}, parts, copy=False)
            step, most = (TRIPLE if opcode == Opcode.BN_AGGR else 1), MOST[opcode]
            if src.size % step or not 1 <= src.size <= most:
                multiple = f"a multiple of {step} " if step > 1 else ""
                raise ValueError(f"src0 must have {multiple}from {step} to {most} elements, not {src.size}")
            if dst.size != MOMENTS[opcode]:
                raise ValueError(f"dst must be {MOMENTS[opcode]} elements a partition, not {dst.size}")

        self._checked(opcode, check)
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate}
        return self.emit(opcode, fields, {"dst": dst, "src0": src}, **sync)
