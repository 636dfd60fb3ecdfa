"""MX instructions of a vector stream in a program."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from models.access import AccessPattern
from models.checks import Checker
from models.emitter import Emitter
from models.formats import FLOATS, MX_PACK, MX_ROWS, PACKED, DType, MxRule
from models.isa import Opcode


def _source(src: AccessPattern, parts: int, columns: int) -> None:
    if parts % MX_ROWS:
        raise ValueError(f"parts must be a multiple of {MX_ROWS}, not {parts!r}")
    if src.dtype not in FLOATS:
        raise ValueError(
            f"src0.dtype must be one of {', '.join(d.name for d in FLOATS)}, not {src.dtype.name}"
        )
    if src.size != MX_PACK * columns:
        raise ValueError(f"src0 must have {MX_PACK * columns} elements, not {src.size}")


class MxInstructions(Emitter):
    """Quantisation. Methods append instructions and return the last one's index; they raise ProgramError for operands that the engine would
    refuse, and pass `wait`, `update` and `dynamic` on.
    """

    @abstractmethod
    def _checker(self) -> Checker:
        """The program's rules."""

    @abstractmethod
    def _checked(self, opcode: Opcode, check: Callable[[], None]) -> None:
        """Raise ProgramError, with the place, for the ValueError that `check` raises."""

    def mx_scale(
        self,
        scale: AccessPattern,
        src: AccessPattern,
        dtype: DType,
        *,
        parts: int,
        rule: MxRule = MxRule.OCP,
        **sync: Any,
    ) -> int:
        """scale [groups of 8 partitions, N] = scales of src [parts, 4 N] for the x4 type `dtype`."""

        def check() -> None:
            checker = self._checker()
            if dtype not in PACKED:
                raise ValueError(
                    f"dtype must be one of {', '.join(d.name for d in PACKED)}, not {dtype.name}"
                )
            _source(src, parts, scale.size)
            checker.parts("parts", parts)
            checker.pattern("src0", src, parts)
            # the scales lie in the quadrants of the source, one for each four of its elements
            words = AccessPattern(0, DType.E8M0, scale.dims, part=src.part)
            checker.scale("scale", words, scale)

        self._checked(Opcode.MX_SCALE, check)
        fields = {"parts": parts, "op0": dtype, "op1": rule}
        return self.emit(Opcode.MX_SCALE, fields, {"dst": scale, "src0": src}, **sync)

    def mx_cast(
        self, dst: AccessPattern, src: AccessPattern, scale: AccessPattern, *, parts: int, **sync: Any
    ) -> int:
        """dst [parts, N], x4 words = src [parts, 4 N] / scale [groups of 8 partitions, N]."""

        def check() -> None:
            checker = self._checker()
            if dst.dtype not in PACKED:
                raise ValueError(
                    f"dst.dtype must be one of {', '.join(d.name for d in PACKED)}, not {dst.dtype.name}"
                )
            _source(src, parts, dst.size)
            checker.parts("parts", parts)
            checker.pattern("dst", dst, parts)
            checker.pattern("src0", src, parts)
            checker.scale("scale", dst, scale)

        self._checked(Opcode.MX_CAST, check)
        return self.emit(Opcode.MX_CAST, {"parts": parts}, {"dst": dst, "src0": src, "src1": scale}, **sync)

    def quantize_mx(
        self,
        dst: AccessPattern,
        scale: AccessPattern,
        src: AccessPattern,
        *,
        parts: int,
        rule: MxRule = MxRule.OCP,
        wait: Any = None,
        update: Any = None,
    ) -> int:
        """src [parts, 4 N] to x4 words dst [parts, N] and their scales [groups of 8 partitions, N]: MX_SCALE, then MX_CAST.

        Element 4 n + j of a partition is element j of word n; src and dst begin at a quadrant.
        """
        self.mx_scale(scale, src, dst.dtype, parts=parts, rule=rule, wait=wait)
        return self.mx_cast(dst, src, scale, parts=parts, update=update)
