"""Vector instructions of a stream that move elements from partition to partition."""

from collections.abc import Sequence
from typing import Any

from models.access import AccessPattern
from models.element_stream import ElementInstructions
from models.isa import Flag, Opcode
from models.moves import STAYS, mask_field


class MoveInstructions(ElementInstructions):
    """STREAM_SHUFFLE and LANE_TRANSPOSE. Methods are as those of ElementInstructions; all raise ProgramError.

    A quadrant is Q = min(32, P) partitions, counted from each operand's first one; `parts` is a multiple of Q.
    """

    def stream_shuffle(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        mask: Sequence[int],
        *,
        parts: int,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst's partition p of each quadrant = cast(src's partition mask[p] of it); where mask[p] is 255 it stays. dst may be src.

        mask: Q entries. Equal types copy bits.
        """

        def check() -> None:
            quadrant = self._quadrants(dst, src, parts)
            if len(mask) != quadrant:
                raise ValueError(f"mask must have {quadrant} entries, not {len(mask)}")
            for n, entry in enumerate(mask):
                if entry != STAYS and not 0 <= entry < quadrant:
                    raise ValueError(f"mask[{n}] must be from 0 to {quadrant - 1}, or {STAYS}, not {entry!r}")

        self._checked(Opcode.STREAM_SHUFFLE, check)
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate, "mask": mask_field(mask)}
        return self.emit(Opcode.STREAM_SHUFFLE, fields, {"dst": dst, "src0": src}, **sync)

    def lane_transpose(
        self, dst: AccessPattern, src: AccessPattern, *, parts: int, saturate: bool = False, **sync: Any
    ) -> int:
        """dst[p, f] = cast(src[f, p]) in each block of Q partitions and Q elements in walking order. dst may be src.

        The number of elements is a multiple of Q. Equal types copy bits.
        """

        def check() -> None:
            quadrant = self._quadrants(dst, src, parts)
            if src.size % quadrant:
                raise ValueError(f"src0 must have a multiple of {quadrant} elements, not {src.size}")

        self._checked(Opcode.LANE_TRANSPOSE, check)
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate}
        return self.emit(Opcode.LANE_TRANSPOSE, fields, {"dst": dst, "src0": src}, **sync)

    def _quadrants(self, dst: AccessPattern, src: AccessPattern, parts: int) -> int:
        """Q, for operands of whole quadrants."""
        self._vector(dst, {"src0": src}, parts, copy=True)
        quadrant = self._checker().config.quadrant
        if parts % quadrant:
            raise ValueError(f"parts must be a multiple of {quadrant}, not {parts!r}")
        return quadrant
