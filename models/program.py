"""Program builder: streams of instructions for the engines of one core, with labels, named semaphores and checks.

program = Program(config)
ready = program.semaphore("ready")
program.sync.dma(src, dst, row_bytes=64, rows=16, src_stride=64, dst_stride=SBUF_PARTITION_STRIDE, update=ready.add(1))
program.tensor.matmul(..., wait=ready.ge(1))
program.finish()
"""

from dataclasses import dataclass
from typing import Any

from models import isa
from models.access import AccessPattern
from models.checks import Checker, ProgramError
from models.config import ChipConfig
from models.control_flow import ControlFlow
from models.emitter import Register
from models.encoding import Instruction, encode
from models.formats import MAC_CLASSES, DType, dtype_bytes
from models.gpsimd_stream import GpsimdInstructions
from models.isa import Engine, Flag, Opcode, Space, UpdateMode, WaitMode
from models.mx_stream import MxInstructions
from models.ranking_stream import RankingInstructions


@dataclass(frozen=True, slots=True)
class Wait:
    """Start when semaphore `sem` >= `value`."""

    sem: int
    value: int


@dataclass(frozen=True, slots=True)
class Update:
    """When done, apply `mode` with `value` to semaphore `sem`."""

    mode: UpdateMode
    sem: int
    value: int


@dataclass(frozen=True, slots=True)
class Semaphore:
    """A named semaphore of a program."""

    name: str
    index: int

    def ge(self, value: int) -> Wait:
        """Wait for at least `value`."""
        return Wait(self.index, value)

    def add(self, value: int = 1) -> Update:
        """Add `value` when done."""
        return Update(UpdateMode.ADD, self.index, value)

    def sub(self, value: int = 1) -> Update:
        """Subtract `value` when done."""
        return Update(UpdateMode.SUB, self.index, value)

    def set(self, value: int) -> Update:
        """Set to `value` when done."""
        return Update(UpdateMode.SET, self.index, value)


def _operands(
    src: AccessPattern, scale: AccessPattern | None, double_row: AccessPattern | None
) -> tuple[dict[str, AccessPattern], int]:
    """(patterns, flags) of a load's or a matmul's operand with its scales or its second rows."""
    other = scale if double_row is None else double_row
    aps = {"src0": src} | ({"src1": other} if other is not None else {})
    return aps, int(Flag.DOUBLE_ROW) if double_row is not None else 0


class Stream(ControlFlow, RankingInstructions, MxInstructions, GpsimdInstructions):
    """The instruction stream of one engine. Methods append one instruction and return its index."""

    def __init__(self, program: "Program", engine: Engine):
        self.program, self.engine = program, engine
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.registers: dict[str, Register] = {}
        self.targets: dict[int, str] = {}
        self._loaded: tuple[int, int, DType, bool] | None = None

    def label(self, name: str) -> None:
        """Name the next instruction. Raises ProgramError when the name is taken."""
        if name in self.labels:
            raise ProgramError(
                f"{self.engine.name.lower()}: label {name!r} is already at index {self.labels[name]}"
            )
        self.labels[name] = len(self.instructions)

    def emit(
        self,
        opcode: Opcode,
        fields: dict[str, int] | None = None,
        aps: dict[str, AccessPattern] | None = None,
        *,
        wait: Wait | None = None,
        update: Update | None = None,
        dynamic: dict[str, Register] | None = None,
    ) -> int:
        """Append an instruction after checking what all instructions share. Raises ProgramError.

        `dynamic`: registers added to the addresses of operands dst, src0, src1 (a DMA's source is src0).
        """
        where = f"{self.engine.name.lower()}[{len(self.instructions)}] {opcode.name}"
        if self.engine not in isa.OPS[opcode].engines:
            raise ProgramError(f"{where}: not an instruction of this engine")
        out: dict[str, int] = {k: v for k, v in (fields or {}).items() if v}
        for sem in (wait.sem if wait else 0, update.sem if update else 0):
            if not 0 <= sem < self.program.config.core.semaphores:
                raise ProgramError(
                    f"{where}: semaphore must be below {self.program.config.core.semaphores}, not {sem}"
                )
        if wait is not None:
            out |= {"wait_mode": WaitMode.GE, "wait_sem": wait.sem, "wait_value": wait.value}
        if update is not None:
            out |= {"update_mode": update.mode, "update_sem": update.sem, "update_value": update.value}
        for name, register in (dynamic or {}).items():
            if name not in isa.dynamic_operands(opcode):
                allowed = ", ".join(isa.dynamic_operands(opcode)) or "no operand"
                raise ProgramError(f"{where}: a register may be added to {allowed}, not to {name!r}")
            out[f"dyn_{name}"] = register.number
        instr = Instruction(opcode, {k: int(v) for k, v in out.items()}, dict(aps or {}))
        try:
            encode(instr)
        except ValueError as e:
            raise ProgramError(f"{where}: {e}") from None
        self.instructions.append(instr)
        return len(self.instructions) - 1

    def _checked(self, opcode: Opcode, check: Any) -> None:
        try:
            check()
        except ValueError as e:
            raise ProgramError(
                f"{self.engine.name.lower()}[{len(self.instructions)}] {opcode.name}: {e}"
            ) from None

    def _checker(self) -> Checker:
        return self.program.checker

    def nop(self, **sync: Any) -> int:
        """Wait and update only."""
        return self.emit(Opcode.NOP, **sync)

    def halt(self, **sync: Any) -> int:
        """End the stream."""
        return self.emit(Opcode.HALT, **sync)

    def dma(
        self,
        src: int,
        dst: int,
        *,
        row_bytes: int,
        rows: int = 1,
        src_stride: int = 0,
        dst_stride: int = 0,
        **sync: Any,
    ) -> int:
        """Copy `rows` rows of `row_bytes` bytes between 64-bit addresses; strides in bytes."""
        fields = {
            "src": src,
            "dst": dst,
            "row_bytes": row_bytes,
            "rows": rows,
            "src_stride": src_stride,
            "dst_stride": dst_stride,
        }
        return self.emit(Opcode.DMA, fields, **sync)

    def load_stationary(
        self,
        src: AccessPattern,
        *,
        k: int,
        m: int,
        scale: AccessPattern | None = None,
        double_row: AccessPattern | None = None,
        **sync: Any,
    ) -> int:
        """Load stationary [K, M]; x4 types need `scale`. `double_row`: K more rows of FP8, for matmuls that have one too."""

        def check() -> None:
            checker = self.program.checker
            checker.parts("parts", k)
            checker.parts("cols", m)
            checker.operand("src0", src, k, scale, m)
            if double_row is not None:
                checker.double_row("double_row", src, k, double_row)

        self._checked(Opcode.LOAD_STATIONARY, check)
        self._loaded = (k, m, src.dtype, double_row is not None)
        aps, flags = _operands(src, scale, double_row)
        return self.emit(Opcode.LOAD_STATIONARY, {"parts": k, "cols": m, "flags": flags}, aps, **sync)

    def matmul(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        *,
        k: int,
        m: int,
        accumulate: bool = False,
        scale: AccessPattern | None = None,
        double_row: AccessPattern | None = None,
        **sync: Any,
    ) -> int:
        """Stream moving [K, N] through the loaded weights into PSUM [M, N]. `double_row`: the K rows that go with those of the load."""

        def check() -> None:
            checker = self.program.checker
            if self._loaded is None:
                raise ValueError("needs a LOAD_STATIONARY before it")
            if (k, m) != self._loaded[:2]:
                raise ValueError(f"K, M must be the loaded {self._loaded[:2]}, not {(k, m)}")
            pair = {src.dtype, self._loaded[2]}
            if not any(pair <= c for c in MAC_CLASSES):
                raise ValueError(
                    f"src0.dtype {src.dtype.name} does not go with stationary {self._loaded[2].name}"
                )
            checker.operand("src0", src, k, scale, None)
            if (double_row is not None) != self._loaded[3]:
                raise ValueError(
                    f"double_row must be {'given' if self._loaded[3] else 'left out'}, as of the LOAD_STATIONARY before it"
                )
            if double_row is not None:
                checker.double_row("double_row", src, k, double_row)
            checker.pattern("dst", dst, m, spaces=(Space.PSUM,))
            limit = self.program.config.psum.bank_bytes // 4
            if dst.dtype != DType.FP32 or dst.size != src.size or dst.size > limit:
                raise ValueError(
                    f"dst must be FP32 with the moving operand's {src.size} elements (at most {limit}), not {dst}"
                )

        self._checked(Opcode.MATMUL, check)
        aps, flags = _operands(src, scale, double_row)
        flags |= Flag.ACCUMULATE if accumulate else 0
        return self.emit(Opcode.MATMUL, {"parts": k, "cols": m, "flags": flags}, {"dst": dst, **aps}, **sync)

    def transpose(self, dst: AccessPattern, src: AccessPattern, *, k: int, m: int, **sync: Any) -> int:
        """Move src (SBUF [K, M]) into dst (PSUM [M, K]), dst[m, k] = src[k, m], bit for bit. Uses up the loaded weights."""

        def check() -> None:
            checker = self.program.checker
            checker.parts("parts", k)
            checker.parts("cols", m)
            checker.pattern("src0", src, k, spaces=(Space.SBUF,))
            checker.pattern("dst", dst, m, spaces=(Space.PSUM,))
            if (src.size, dst.size) != (m, k):
                raise ValueError(f"src0 must have {m} elements and dst {k}, not {src.size} and {dst.size}")
            if dtype_bytes(src.dtype) != dtype_bytes(dst.dtype):
                raise ValueError(f"dst must be as wide as src0's {src.dtype.name}, not {dst.dtype.name}")

        self._checked(Opcode.TRANSPOSE, check)
        self._loaded = None
        return self.emit(Opcode.TRANSPOSE, {"parts": k, "cols": m}, {"dst": dst, "src0": src}, **sync)

    def encode(self) -> bytes:
        """The stream's words, 128 bytes each. Raises ProgramError when a branch's label was never placed."""
        return b"".join(encode(self.resolved(n)) for n in range(len(self.instructions)))


class Program:
    """Instruction streams of one core."""

    def __init__(self, config: ChipConfig):
        self.config = config
        self.checker = Checker(config)
        self.streams = {e: Stream(self, e) for e in Engine}
        self.semaphores: dict[str, Semaphore] = {}

    @property
    def tensor(self) -> Stream:
        """The tensor engine's stream."""
        return self.streams[Engine.TENSOR]

    @property
    def vector(self) -> Stream:
        """The vector engine's stream."""
        return self.streams[Engine.VECTOR]

    @property
    def scalar(self) -> Stream:
        """The scalar engine's stream."""
        return self.streams[Engine.SCALAR]

    @property
    def gpsimd(self) -> Stream:
        """The gpsimd engine's stream."""
        return self.streams[Engine.GPSIMD]

    @property
    def sync(self) -> Stream:
        """The sync engine's stream."""
        return self.streams[Engine.SYNC]

    def semaphore(self, name: str) -> Semaphore:
        """The semaphore called `name`, allocated on first use. Raises ProgramError when all are taken."""
        if name not in self.semaphores:
            if len(self.semaphores) == self.config.core.semaphores:
                raise ProgramError(f"semaphore {name!r}: all {self.config.core.semaphores} are in use")
            self.semaphores[name] = Semaphore(name, len(self.semaphores))
        return self.semaphores[name]

    def finish(self) -> None:
        """End every stream that does not end in HALT with one."""
        for stream in self.streams.values():
            if not stream.instructions or stream.instructions[-1].opcode != Opcode.HALT:
                stream.halt()
