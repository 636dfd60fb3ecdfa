"""Vector and scalar instructions of a stream in a program."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from models import fp, isa
from models.access import AccessPattern
from models.checks import Checker
from models.elements import READABLE
from models.emitter import Emitter
from models.formats import DType
from models.functions import SLOPED, ActFunc
from models.isa import AluOp, Engine, Flag, Opcode


def fp32_bits(value: float) -> int:
    """The FP32 code of `value`, as an immediate operand."""
    return int(np.float32(value).view(np.uint32))


def _reducing(key: str, op: AluOp) -> None:
    if op not in fp.IDENTITY:
        allowed = ", ".join(o.name for o in fp.IDENTITY)
        raise ValueError(f"{key} must be one of {allowed}, not {AluOp(op).name}")


def _sums(fields: dict[str, int], accumulate: AluOp | None, *, fresh: bool) -> None:
    """Put the accumulating operation into `fields`. Raises ValueError for one that does not reduce, or beside a second operation."""
    if accumulate is None:
        if fresh:
            raise ValueError("fresh needs accumulate")
        return
    _reducing("accumulate", accumulate)
    if fields.get("op1", 0) or fields["flags"] & Flag.REVERSE1:
        raise ValueError(f"op1 must be BYPASS with accumulate, not {AluOp(fields['op1']).name}")
    fields["op1"] = accumulate
    fields["flags"] |= Flag.ACCUMULATE + Flag.FRESH * fresh


class ElementInstructions(Emitter):
    """What a stream has for the engines that work element by element. Methods append one instruction and return its index; they raise
    ProgramError for operands that the engine would refuse, and pass `wait`, `update` and `dynamic` on.
    """

    engine: Engine
    """Whose stream it is."""

    @abstractmethod
    def _checker(self) -> Checker:
        """The program's rules."""

    @abstractmethod
    def _checked(self, opcode: Opcode, check: Callable[[], None]) -> None:
        """Raise ProgramError, with the place, for the ValueError that `check` raises."""

    def tensor_copy(
        self, dst: AccessPattern, src: AccessPattern, *, parts: int, saturate: bool = False, **sync: Any
    ) -> int:
        """dst = cast(src); equal types copy bits."""
        self._checked(Opcode.TENSOR_COPY, lambda: self._vector(dst, {"src0": src}, parts, copy=True))
        return self.emit(
            Opcode.TENSOR_COPY,
            {"parts": parts, "flags": Flag.SATURATE * saturate},
            {"dst": dst, "src0": src},
            **sync,
        )

    def tensor_copy_predicated(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        predicate: AccessPattern,
        *,
        parts: int,
        reverse: bool = False,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(src) where predicate is not a zero, or with `reverse` where it is one; equal types copy bits."""

        def check() -> None:
            self._checker().vector(dst, {"src1": predicate}, parts, copy=src.dtype == dst.dtype)
            self._vector(dst, {"src0": src}, parts, copy=True)
            if predicate.dtype not in READABLE:
                raise ValueError(
                    f"src1.dtype must be a float, integer or E8M0 type, not {predicate.dtype.name}"
                )
            if predicate.size != dst.size:
                raise ValueError(f"src1 must have dst's {dst.size} elements, not {predicate.size}")

        self._checked(Opcode.TENSOR_COPY_PREDICATED, check)
        flags = Flag.SATURATE * saturate + Flag.REVERSE0 * reverse
        aps = {"dst": dst, "src0": src, "src1": predicate}
        return self.emit(Opcode.TENSOR_COPY_PREDICATED, {"parts": parts, "flags": flags}, aps, **sync)

    def tensor_tensor(
        self,
        dst: AccessPattern,
        src0: AccessPattern,
        src1: AccessPattern,
        op: AluOp,
        *,
        parts: int,
        accumulate: AluOp | None = None,
        fresh: bool = False,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(src0 op src1). `accumulate`: the results also go into the accumulators; `fresh`: these start anew."""
        srcs = {"src0": src0, "src1": src1}
        fields = {"parts": parts, "op0": op, "flags": Flag.SATURATE * saturate}

        def check() -> None:
            _sums(fields, accumulate, fresh=fresh)
            self._vector(dst, srcs, parts)

        self._checked(Opcode.TENSOR_TENSOR, check)
        return self.emit(Opcode.TENSOR_TENSOR, fields, {"dst": dst, **srcs}, **sync)

    def tensor_scalar(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        op0: AluOp,
        operand0: "float | AccessPattern",
        op1: AluOp = AluOp.BYPASS,
        operand1: float = 0.0,
        *,
        parts: int,
        accumulate: AluOp | None = None,
        fresh: bool = False,
        saturate: bool = False,
        reverse0: bool = False,
        reverse1: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast((src op0 operand0) op1 operand1); operand0 is a number, or a pattern of one element a partition.

        `reverse0`: operand0 op0 src; `reverse1`: operand1 op1 the rest. `accumulate` takes op1's place: src op0 operand0 is written, and goes
        into the accumulators; `fresh`: these start anew.
        """
        fields = {
            "parts": parts,
            "op0": op0,
            "op1": op1,
            "flags": Flag.SATURATE * saturate + Flag.REVERSE0 * reverse0 + Flag.REVERSE1 * reverse1,
            "imm1": fp32_bits(operand1),
        }
        return self._with_scalar(
            Opcode.TENSOR_SCALAR, fields, {"dst": dst, "src0": src}, operand0, accumulate, fresh=fresh, **sync
        )

    def exponential(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        op0: AluOp = AluOp.BYPASS,
        operand0: "float | AccessPattern" = 0.0,
        *,
        parts: int,
        accumulate: AluOp | None = None,
        fresh: bool = False,
        saturate: bool = False,
        reverse0: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(exp(src op0 operand0)), with operand0, `reverse0`, `accumulate` and `fresh` as of `tensor_scalar`."""
        fields = {
            "parts": parts,
            "op0": op0,
            "flags": Flag.SATURATE * saturate + Flag.REVERSE0 * reverse0,
        }
        return self._with_scalar(
            Opcode.EXPONENTIAL, fields, {"dst": dst, "src0": src}, operand0, accumulate, fresh=fresh, **sync
        )

    def reciprocal(
        self, dst: AccessPattern, src: AccessPattern, *, parts: int, saturate: bool = False, **sync: Any
    ) -> int:
        """dst = cast(1 / src), correctly rounded: a TENSOR_SCALAR with DIVIDE."""
        return self.tensor_scalar(
            dst, src, AluOp.DIVIDE, 1.0, parts=parts, saturate=saturate, reverse0=True, **sync
        )

    def select(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        predicate: AccessPattern,
        otherwise: float,
        *,
        parts: int,
        reverse: bool = False,
        accumulate: AluOp | None = None,
        fresh: bool = False,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(src where predicate is not a zero, or with `reverse` where it is one; elsewhere otherwise).

        `accumulate`, `fresh`: as of `tensor_tensor`.
        """
        fields = {
            "parts": parts,
            "flags": Flag.SATURATE * saturate + Flag.REVERSE0 * reverse,
            "imm1": fp32_bits(otherwise),
        }
        srcs = {"src0": src, "src1": predicate}

        def check() -> None:
            _sums(fields, accumulate, fresh=fresh)
            self._vector(dst, srcs, parts)

        self._checked(Opcode.SELECT, check)
        return self.emit(Opcode.SELECT, fields, {"dst": dst, **srcs}, **sync)

    def range_select(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        bounds: AccessPattern,
        compare0: AluOp,
        compare1: AluOp,
        otherwise: float,
        *,
        parts: int,
        start: int = 0,
        accumulate: bool = False,
        fresh: bool = False,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(src where (i compare0 bounds[0]) and (i compare1 bounds[1]), elsewhere otherwise), i = start + the element's number.

        bounds: two FP32 words a partition. `accumulate`: the largest result goes into the accumulators; `fresh`: these start anew.
        """
        fields = {
            "parts": parts,
            "op0": compare0,
            "op1": compare1,
            "flags": Flag.SATURATE * saturate + Flag.ACCUMULATE * accumulate + Flag.FRESH * fresh,
            "imm0": start & 0xFFFFFFFF,
            "imm1": fp32_bits(otherwise),
        }

        def check() -> None:
            for key, op in (("compare0", compare0), ("compare1", compare1)):
                if op not in fp.COMPARISONS:
                    allowed = ", ".join(o.name for o in fp.COMPARISONS)
                    raise ValueError(f"{key} must be one of {allowed}, not {AluOp(op).name}")
            if not -(1 << 31) <= start < 1 << 31:
                raise ValueError(f"start must fit in 32 bits, not {start!r}")
            if bounds.size != 2 or bounds.dtype != DType.FP32:
                raise ValueError(
                    f"bounds must be two FP32 words a partition, not {bounds.size} of {bounds.dtype.name}"
                )
            if fresh and not accumulate:
                raise ValueError("fresh needs accumulate")
            self._checker().vector(dst, {"bounds": bounds}, parts, copy=False)
            self._vector(dst, {"src0": src}, parts)

        self._checked(Opcode.RANGE_SELECT, check)
        aps = {"dst": dst, "src0": src, "src1": bounds}
        return self.emit(Opcode.RANGE_SELECT, fields, aps, **sync)

    def read_accumulator(
        self,
        dst: AccessPattern,
        op: AluOp = AluOp.ADD,
        *,
        parts: int,
        negate: bool = False,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst, one element a partition = cast((a0 op a1) op (a2 op a3)) of this engine's accumulators; `negate` changes its sign.

        The scalar engine's only add up.
        """
        fields = {"parts": parts, "op0": op, "flags": Flag.SATURATE * saturate + Flag.NEGATE * negate}

        def check() -> None:
            _reducing("op", op)
            if self.engine == Engine.SCALAR and op != AluOp.ADD:
                raise ValueError(f"op must be ADD on the scalar engine, not {op.name}")
            if dst.size != 1:
                raise ValueError(f"dst must be one element a partition, not {dst.size}")
            self._vector(dst, {}, parts)

        self._checked(Opcode.READ_ACCUMULATOR, check)
        return self.emit(Opcode.READ_ACCUMULATOR, fields, {"dst": dst}, **sync)

    def _with_scalar(
        self,
        opcode: Opcode,
        fields: dict[str, int],
        aps: dict[str, AccessPattern],
        operand: "float | AccessPattern",
        accumulate: AluOp | None,
        *,
        fresh: bool,
        **sync: Any,
    ) -> int:
        """An instruction whose op0 has a number or one element a partition."""
        parts, dst = fields["parts"], aps["dst"]
        scalar = operand if isinstance(operand, AccessPattern) else None
        if scalar is not None:
            aps["src1"] = scalar
            fields["flags"] |= Flag.SRC1_SCALAR
        else:
            assert not isinstance(operand, AccessPattern)
            fields["imm0"] = fp32_bits(operand)

        def check() -> None:
            _sums(fields, accumulate, fresh=fresh)
            if scalar is not None:
                if scalar.size != 1:
                    raise ValueError(f"src1 must be one element a partition, not {scalar.size}")
                self._checker().vector(dst, {"src1": scalar}, parts, copy=False)
            self._vector(dst, {"src0": aps["src0"]}, parts)

        self._checked(opcode, check)
        return self.emit(opcode, fields, aps, **sync)

    def scalar_tensor_tensor(
        self,
        dst: AccessPattern,
        src0: AccessPattern,
        op0: AluOp,
        operand0: float,
        op1: AluOp,
        src1: AccessPattern,
        *,
        parts: int,
        saturate: bool = False,
        reverse0: bool = False,
        reverse1: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast((src0 op0 operand0) op1 src1). `reverse0`: operand0 op0 src0; `reverse1`: src1 op1 the rest."""
        fields = {
            "parts": parts,
            "op0": op0,
            "op1": op1,
            "flags": Flag.SATURATE * saturate + Flag.REVERSE0 * reverse0 + Flag.REVERSE1 * reverse1,
            "imm0": fp32_bits(operand0),
        }
        srcs = {"src0": src0, "src1": src1}
        self._checked(Opcode.SCALAR_TENSOR_TENSOR, lambda: self._vector(dst, srcs, parts))
        return self.emit(Opcode.SCALAR_TENSOR_TENSOR, fields, {"dst": dst, **srcs}, **sync)

    def tensor_reduce(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        op: AluOp,
        *,
        parts: int,
        axes: int = 1,
        negate: bool = False,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(op over the `axes` innermost of src's dimensions); `negate` changes the results' sign (models.fp.reduce)."""

        def check() -> None:
            _reducing("op", op)
            if not 1 <= axes <= isa.AP_DIMS:
                raise ValueError(f"axes must be from 1 to {isa.AP_DIMS}, not {axes!r}")
            self._checker().vector(dst, {"src0": src}, parts, copy=False)
            if dst.size != src.outer(axes):
                raise ValueError(f"dst must have {src.outer(axes)} elements, not {dst.size}")
            if src.inner(axes) < 1:
                raise ValueError("src0 must have one element or more for each result, not 0")

        self._checked(Opcode.TENSOR_REDUCE, check)
        flags = Flag.SATURATE * saturate + Flag.NEGATE * negate
        fields = {"parts": parts, "op0": op, "axes": axes, "flags": flags}
        return self.emit(Opcode.TENSOR_REDUCE, fields, {"dst": dst, "src0": src}, **sync)

    def tensor_tensor_scan(
        self,
        dst: AccessPattern,
        src0: AccessPattern,
        src1: AccessPattern,
        op0: AluOp,
        op1: AluOp,
        *,
        parts: int,
        initial: float = 0.0,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(s), s = (s op0 src0) op1 src1 from one element to the next, starting from `initial`."""
        srcs = {"src0": src0, "src1": src1}
        self._checked(Opcode.TENSOR_TENSOR_SCAN, lambda: self._vector(dst, srcs, parts))
        fields = {"parts": parts, "op0": op0, "op1": op1, "flags": Flag.SATURATE * saturate}
        fields["imm0"] = fp32_bits(initial)
        return self.emit(Opcode.TENSOR_TENSOR_SCAN, fields, {"dst": dst, **srcs}, **sync)

    def memset(
        self, dst: AccessPattern, value: float, *, parts: int, saturate: bool = False, **sync: Any
    ) -> int:
        """dst = cast(value), every element."""
        self._checked(Opcode.MEMSET, lambda: self._vector(dst, {}, parts))
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate, "imm0": fp32_bits(value)}
        return self.emit(Opcode.MEMSET, fields, {"dst": dst}, **sync)

    def activate(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        function: ActFunc,
        *,
        parts: int,
        scale: float = 1.0,
        bias: "float | AccessPattern" = -0.0,
        slope: float | None = None,
        saturate: bool = False,
        accumulate: bool = False,
        fresh: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(function(src * scale + bias)); bias is a number, or a pattern of one FP32 word a partition.

        `slope`: of PRELU and D_PRELU, which need it, and whose bias is a pattern or -0 for that.
        `accumulate`: FP32 results are also added to the scalar engine's accumulators; `fresh`: which start from -0 (`read_accumulator`).
        """
        fields = {
            "parts": parts,
            "op0": function,
            "flags": Flag.SATURATE * saturate + Flag.ACCUMULATE * accumulate + Flag.FRESH * fresh,
            "imm0": fp32_bits(scale),
        }
        aps = {"dst": dst, "src0": src}
        if isinstance(bias, AccessPattern):
            aps["src1"] = bias
            fields["flags"] |= Flag.SRC1_SCALAR
        elif slope is None:
            fields["imm1"] = fp32_bits(bias)
        if slope is not None:
            fields["imm1"] = fp32_bits(slope)

        def check() -> None:
            if (function in SLOPED) != (slope is not None):
                raise ValueError(f"{ActFunc(function).name} {'needs' if slope is None else 'takes no'} slope")
            if slope is not None and not isinstance(bias, AccessPattern) and fp32_bits(bias) != 0x80000000:
                raise ValueError(f"bias must be a pattern or -0.0 beside a slope, not {bias!r}")
            if fresh and not accumulate:
                raise ValueError("fresh needs accumulate")
            if isinstance(bias, AccessPattern):
                if bias.size != 1 or bias.dtype != DType.FP32:
                    raise ValueError(
                        f"bias must be one FP32 word a partition, not {bias.size} of {bias.dtype.name}"
                    )
                self._checker().pattern("bias", bias, parts)
            self._vector(dst, {"src0": src}, parts)

        self._checked(Opcode.ACTIVATE, check)
        return self.emit(Opcode.ACTIVATE, fields, aps, **sync)

    def _vector(
        self, dst: AccessPattern, srcs: dict[str, AccessPattern], parts: int, *, copy: bool = False
    ) -> None:
        self._checker().vector(dst, srcs, parts, copy=copy)
        for key, s in srcs.items():
            if s.size != dst.size:
                raise ValueError(f"{key} must have dst's {dst.size} elements, not {s.size}")
