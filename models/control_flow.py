"""Registers, branches and loops of a stream in a program."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from models import isa
from models.checks import ProgramError
from models.emitter import Emitter, Register
from models.encoding import Instruction
from models.isa import Cond, Opcode, RegOp


class ControlFlow(Emitter):
    """What a stream has for its sequencer: `register`, `set`, `compute`, `branch`, `loop`."""

    labels: dict[str, int]
    instructions: list[Instruction]
    registers: dict[str, Register]
    targets: dict[int, str]
    """Index of a branch to the label that it goes to."""

    @abstractmethod
    def label(self, name: str) -> None:
        """Name the next instruction."""

    def register(self, name: str) -> Register:
        """The register called `name`, allocated on first use; 0 when the stream starts. Raises ProgramError when all are taken."""
        if name not in self.registers:
            free = set(range(1, isa.REGISTERS)) - {r.number for r in self.registers.values()}
            if not free:
                raise ProgramError(f"register {name!r}: all {isa.REGISTERS - 1} of this stream are in use")
            self.registers[name] = Register(min(free))
        return self.registers[name]

    def _b(self, b: "Register | int") -> dict[str, int]:
        if isinstance(b, Register):
            return {"rb": b.number}
        return {"use_imm": 1, "imm": b}

    def set(self, rd: Register, b: "Register | int", **sync: Any) -> int:
        """rd = b."""
        return self.emit(Opcode.REGISTER, {"reg_op": RegOp.MOVE, "rd": rd.number, **self._b(b)}, **sync)

    def compute(self, rd: Register, op: RegOp, a: Register, b: "Register | int", **sync: Any) -> int:
        """rd = a op b, 32 bits."""
        fields = {"reg_op": op, "rd": rd.number, "ra": a.number, **self._b(b)}
        return self.emit(Opcode.REGISTER, fields, **sync)

    def branch(
        self,
        label: str,
        cond: Cond = Cond.ALWAYS,
        a: Register | None = None,
        b: "Register | int" = 0,
        **sync: Any,
    ) -> int:
        """Go on at `label`, which may come later, when a cond b; `a` of None is 0."""
        fields = {"cond": int(cond), "ra": a.number if a else 0, **self._b(b)}
        index = self.emit(Opcode.BRANCH, fields, **sync)
        self.targets[index] = label
        return index

    @contextmanager
    def loop(self, times: int, *, step: int = 1) -> Iterator[Register]:
        """The body `times` times, at least once; yields a register that counts 0, step, 2 step ... and may be an operand's offset.

        Raises ProgramError when `times` is below 1 or `step` is 0.
        """
        if times < 1 or step == 0:
            raise ProgramError(
                f"a loop needs times >= 1 and a step that is not 0, not {times!r} and {step!r}"
            )
        index = len(self.instructions)
        name = f"loop {index}"
        counter = self.register(name)
        self.set(counter, 0)
        self.label(name)
        yield counter
        self.compute(counter, RegOp.ADD, counter, step)
        self.branch(name, Cond.NE, counter, times * step)
        del self.registers[name]

    def resolved(self, index: int) -> Instruction:
        """Instruction `index` with its branch target filled in. Raises ProgramError when the label was never placed."""
        instr = self.instructions[index]
        if index not in self.targets:
            return instr
        name = self.targets[index]
        if name not in self.labels:
            raise ProgramError(f"branch at index {index}: no label {name!r}; there are {sorted(self.labels)}")
        target = self.labels[name]
        return replace(instr, fields={**instr.fields, **({"target": target} if target else {})})
