"""GpSimd instructions of a stream in a program."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from models import fp
from models.access import AccessPattern
from models.checks import Checker
from models.element_stream import fp32_bits
from models.elements import READABLE, WRITABLE
from models.emitter import Emitter
from models.formats import DType
from models.gpsimd import INDICES, MOST_GATHERED, REDUCING
from models.isa import AluOp, Flag, Opcode, Space

Steps = tuple[tuple[int, int], ...]
"""Up to four (step, count), outermost first."""


def numbers(start: int, steps: Steps) -> AccessPattern:
    """The pattern that says start + the sum of step * place. Raises ValueError for a start that does not fit in 32 bits."""
    if not -(1 << 31) <= start < 1 << 32:
        raise ValueError(f"start must fit in 32 bits, not {start!r}")
    return AccessPattern(start & 0xFFFFFFFF, DType.FP32, steps)


def _one_of(key: str, op: AluOp, allowed: tuple[AluOp, ...]) -> None:
    if op not in allowed:
        raise ValueError(f"{key} must be one of {', '.join(o.name for o in allowed)}, not {AluOp(op).name}")


class GpsimdInstructions(Emitter):
    """What a stream has for the gpsimd engine. Methods append one instruction and return its index; they raise ProgramError for
    operands that the engine would refuse, and pass `wait`, `update` and `dynamic` on.
    """

    @abstractmethod
    def _checker(self) -> Checker:
        """The program's rules."""

    @abstractmethod
    def _checked(self, opcode: Opcode, check: Callable[[], None]) -> None:
        """Raise ProgramError, with the place, for the ValueError that `check` raises."""

    def iota(
        self,
        dst: AccessPattern,
        steps: Steps,
        *,
        parts: int,
        start: int = 0,
        multiplier: int = 0,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(start + lane * multiplier + the sum of step * place), modulo 2^32. Steps: (step, count), outermost first.

        A register that `dynamic` names for src1 is added to `start`.
        """
        aps = {"dst": dst}

        def check() -> None:
            self._operands(dst, {}, parts)
            aps["src1"] = self._affine(dst, steps, start, multiplier)

        self._checked(Opcode.IOTA, check)
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate, "imm0": multiplier & 0xFFFFFFFF}
        return self.emit(Opcode.IOTA, fields, aps, **sync)

    def affine_select(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        compare: AluOp,
        steps: Steps,
        otherwise: float,
        *,
        parts: int,
        start: int = 0,
        multiplier: int = 0,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(src where v compare 0, elsewhere otherwise), v as of `iota`, INT32.

        A causal mask of queries on partitions and keys along the row: compare IS_GE, steps ((-1, keys),), multiplier 1, start the first
        query's number less the first key's.
        """
        aps = {"dst": dst, "src0": src}

        def check() -> None:
            _one_of("compare", compare, fp.COMPARISONS)
            self._operands(dst, {"src0": src}, parts)
            self._sizes(dst, {"src0": src})
            aps["src1"] = self._affine(dst, steps, start, multiplier)

        self._checked(Opcode.AFFINE_SELECT, check)
        fields = {
            "parts": parts,
            "op0": compare,
            "flags": Flag.SATURATE * saturate,
            "imm0": multiplier & 0xFFFFFFFF,
            "imm1": fp32_bits(otherwise),
        }
        return self.emit(Opcode.AFFINE_SELECT, fields, aps, **sync)

    def local_gather(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        index: AccessPattern,
        *,
        parts: int,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst[p, i] = cast(src[p, index[p, i]]), elements counted in walking order; equal types copy bits."""

        def check() -> None:
            checker = self._checker()
            self._operands(dst, {"src0": src}, parts, copy=src.dtype == dst.dtype)
            if index.dtype not in INDICES:
                allowed = ", ".join(d.name for d in INDICES)
                raise ValueError(f"src1.dtype must be one of {allowed}, not {index.dtype.name}")
            checker.pattern("src1", index, parts, spaces=(Space.SBUF,))
            self._sizes(dst, {"src1": index})
            if src.size > MOST_GATHERED:
                raise ValueError(f"src0 must have at most {MOST_GATHERED} elements, not {src.size}")

        self._checked(Opcode.LOCAL_GATHER, check)
        aps = {"dst": dst, "src0": src, "src1": index}
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate}
        return self.emit(Opcode.LOCAL_GATHER, fields, aps, **sync)

    def partition_reduce(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        op: AluOp,
        *,
        parts: int,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst, one partition = cast(op over `parts` partitions of src, element by element), in the order of models.gpsimd.tree."""

        def check() -> None:
            _one_of("op", op, REDUCING)
            checker = self._checker()
            checker.parts("parts", parts)
            if dst.dtype not in WRITABLE:
                raise ValueError(f"dst.dtype must be a float or integer type, not {dst.dtype.name}")
            if src.dtype not in READABLE:
                raise ValueError(f"src0.dtype must be a float, integer or E8M0 type, not {src.dtype.name}")
            checker.pattern("dst", dst, 1, spaces=(Space.SBUF,))
            checker.pattern("src0", src, parts, spaces=(Space.SBUF,))
            self._sizes(dst, {"src0": src})

        self._checked(Opcode.PARTITION_REDUCE, check)
        fields = {"parts": parts, "op0": op, "flags": Flag.SATURATE * saturate}
        return self.emit(Opcode.PARTITION_REDUCE, fields, {"dst": dst, "src0": src}, **sync)

    def _operands(
        self, dst: AccessPattern, srcs: dict[str, AccessPattern], parts: int, *, copy: bool = False
    ) -> None:
        """Types and places of operands that are all in SBUF."""
        checker = self._checker()
        checker.vector(dst, srcs, parts, copy=copy)
        for key, ap in {"dst": dst, **srcs}.items():
            checker.pattern(key, ap, parts, spaces=(Space.SBUF,))

    @staticmethod
    def _sizes(dst: AccessPattern, srcs: dict[str, AccessPattern]) -> None:
        for key, ap in srcs.items():
            if ap.size != dst.size:
                raise ValueError(f"{key} must have dst's {dst.size} elements, not {ap.size}")

    @staticmethod
    def _affine(dst: AccessPattern, steps: Steps, start: int, multiplier: int) -> AccessPattern:
        if not -(1 << 31) <= multiplier < 1 << 32:
            raise ValueError(f"multiplier must fit in 32 bits, not {multiplier!r}")
        pattern = numbers(start, steps)
        if pattern.size != dst.size:
            raise ValueError(f"steps must give dst's {dst.size} elements, not {pattern.size}")
        return pattern
