"""What an instruction costs: cycles from when its engine takes it to its update, alone, where memories grant at once.

An engine checks the next instruction's fields while one runs, so that instructions back to back cost a few cycles less each. What
instructions in several engines cost together depends on how their memory banks meet; that is what simulation is for.
"""

from collections.abc import Callable
from dataclasses import dataclass

from models.config import ChipConfig
from models.encoding import Instruction
from models.formats import FP32_PASSES, DType
from models.fp import PARTIALS
from models.functions import ActFunc, library
from models.isa import AluOp, Engine, Flag, Opcode

GROUP = 8
"""Elements of every lane that the scalar engine works on together."""

GATHER_SLOTS = 8
"""Elements of every lane that LOCAL_GATHER looks for in one walk over its source."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A rule as text, in N (elements of dst), M, P, R (elements of a group) and s (cycles of a function), and as a function."""

    text: str
    cycles: Callable[[ChipConfig, Instruction], int]


def _elements(instr: Instruction) -> int:
    return instr.aps["dst"].size


def _columns(instr: Instruction) -> int:
    """Cycles in which a matmul's columns enter the array."""
    return _elements(instr) * (FP32_PASSES if instr.aps["src0"].dtype == DType.FP32 else 1)


def _rounded(count: int, to: int) -> int:
    return -(-count // to) * to


def _reduce(config: ChipConfig, instr: Instruction) -> int:
    group = instr.aps["src0"].inner(instr.fields["axes"])
    return _elements(instr) * _rounded(group, PARTIALS) + 25


DIVIDE_PACE = 10
"""Cycles of a division."""


def _divided(config: ChipConfig, instr: Instruction) -> int:
    late = 2 if instr.fields.get("flags", 0) & Flag.SRC1_SCALAR else 0
    n = _elements(instr)
    if instr.fields.get("op0", 0) == AluOp.DIVIDE:
        return DIVIDE_PACE * n + 22 + late
    return n + 22 + late


def _exponential(config: ChipConfig, instr: Instruction) -> int:
    return _elements(instr) + (30 if instr.fields.get("flags", 0) & Flag.SRC1_SCALAR else 28)


def _ranked(instr: Instruction) -> int:
    return instr.aps["src0"].size


def steps(function: ActFunc) -> int:
    """Cycles that the scalar engine takes for an element of every lane."""
    return len(library()[0][function]) + 1


def _activate(config: ChipConfig, instr: Instruction) -> int:
    n = _elements(instr)
    full = _rounded(n, GROUP)
    return full * steps(ActFunc(instr.fields.get("op0", 0))) - (full - n) + 24


def _levels(config: ChipConfig) -> int:
    """Levels of a binary tree over the partitions."""
    return (config.partitions - 1).bit_length()


def _gather(config: ChipConfig, instr: Instruction) -> int:
    n, r = _elements(instr), instr.aps["src0"].size
    return -(-n // GATHER_SLOTS) * (r + 6) + 2 * n + 19


def _partition_reduce(config: ChipConfig, instr: Instruction) -> int:
    return 4 * _elements(instr) + 7 * _levels(config) + 11


COSTS: dict[Opcode, Cost] = {
    Opcode.LOAD_STATIONARY: Cost("M + 11", lambda config, instr: instr.fields["cols"] + 11),
    Opcode.MATMUL: Cost(
        "N + 3 P + 20; FP32 4 N + 3 P + 20",
        lambda config, instr: _columns(instr) + 3 * config.partitions + 20,
    ),
    Opcode.TRANSPOSE: Cost(
        "M + K + 3 P + 20",
        lambda config, instr: instr.fields["cols"] + _elements(instr) + 3 * config.partitions + 20,
    ),
    Opcode.TENSOR_COPY: Cost("N + 22", lambda config, instr: _elements(instr) + 22),
    Opcode.TENSOR_TENSOR: Cost("N + 22; DIVIDE 10 N + 22", _divided),
    Opcode.TENSOR_SCALAR: Cost("N + 22; DIVIDE 10 N + 22; with flag SRC1_SCALAR 2 more", _divided),
    Opcode.SCALAR_TENSOR_TENSOR: Cost("N + 22", lambda config, instr: _elements(instr) + 22),
    Opcode.TENSOR_REDUCE: Cost("N R + 25, R rounded up to a multiple of 4", _reduce),
    Opcode.MEMSET: Cost("N + 17", lambda config, instr: _elements(instr) + 17),
    Opcode.TENSOR_COPY_PREDICATED: Cost("N + 22", lambda config, instr: _elements(instr) + 22),
    Opcode.TENSOR_TENSOR_SCAN: Cost("5 N + 18", lambda config, instr: 5 * _elements(instr) + 18),
    Opcode.READ_ACCUMULATOR: Cost("24", lambda config, instr: 24),
    Opcode.EXPONENTIAL: Cost("N + 28; with flag SRC1_SCALAR 2 more", _exponential),
    Opcode.SELECT: Cost("N + 22", lambda config, instr: _elements(instr) + 22),
    Opcode.RANGE_SELECT: Cost("N + 25", lambda config, instr: _elements(instr) + 25),
    Opcode.MX_SCALE: Cost("4 N + 17", lambda config, instr: 4 * _elements(instr) + 17),
    Opcode.MX_CAST: Cost("4 N + 22", lambda config, instr: 4 * _elements(instr) + 22),
    Opcode.IOTA: Cost("N + log2 P + 14", lambda config, instr: _elements(instr) + _levels(config) + 14),
    Opcode.AFFINE_SELECT: Cost(
        "N + 19, or N + log2 P + 14 where that is more",
        lambda config, instr: _elements(instr) + max(19, _levels(config) + 14),
    ),
    Opcode.LOCAL_GATHER: Cost("N / 8, rounded up, * (R + 6) + 2 N + 19, R elements of src0", _gather),
    Opcode.PARTITION_REDUCE: Cost("4 N + 7 log2 P + 11", _partition_reduce),
    Opcode.MAX8: Cost("R + 31, R elements of src0", lambda config, instr: _ranked(instr) + 31),
    Opcode.FIND_INDEX8: Cost("R + 40, R elements of src0", lambda config, instr: _ranked(instr) + 40),
    Opcode.MATCH_REPLACE8: Cost("N + 32", lambda config, instr: _elements(instr) + 32),
    Opcode.ACTIVATE: Cost("N' s - (N' - N) + 24, N' = N rounded up to a multiple of 8", _activate),
}
"""Rules for one element or more; a MATMUL is counted from the end of the LOAD_STATIONARY before it. DMAs depend on memory.

Double rows take what single ones do, where src0 and src1 begin in different banks; else a cycle more.
"""


SCALAR_COSTS: dict[Opcode, Cost] = {
    Opcode.READ_ACCUMULATOR: Cost("18", lambda config, instr: 18),
}
"""Rules of the scalar engine for what the vector engine has as well."""

PACES: dict[Opcode, int] = {
    Opcode.TENSOR_COPY: 1,
    Opcode.TENSOR_TENSOR: 1,
    Opcode.TENSOR_SCALAR: 1,
    Opcode.SCALAR_TENSOR_TENSOR: 1,
    Opcode.MEMSET: 1,
    Opcode.TENSOR_COPY_PREDICATED: 1,
    Opcode.TENSOR_TENSOR_SCAN: 5,
    Opcode.EXPONENTIAL: 1,
    Opcode.SELECT: 1,
    Opcode.RANGE_SELECT: 1,
}
"""Cycles from one element to the next, where all its operands are touched at the same pace."""
EMPTY = 7
"""Cycles of an instruction without elements."""
CHECK = 5
"""Cycles from when an engine takes an instruction until it may start: patterns are measured, fields are checked."""
READ = 6
"""Cycles from a tensor instruction's start to its first column."""
CONTROL = 8
"""Cycles of a NOP, a REGISTER, or a BRANCH that is not taken, in a straight line: the fetch's pace."""
FURTHER_MATMUL = Cost("N + 5 (FP32: 4 N + 5)", lambda config, instr: _columns(instr) + 5)
"""What one more MATMUL adds behind others, also behind a LOAD_STATIONARY of its own, where it has ENOUGH_COLUMNS or more."""
FURTHER_TRANSPOSE = Cost(
    "M + K + 16", lambda config, instr: instr.fields["cols"] + instr.fields["parts"] + 16
)
"""The most that one more TRANSPOSE adds behind others."""
ENOUGH_COLUMNS = 32
"""Columns that hide the time in which the next instructions come."""


def alone(config: ChipConfig, instr: Instruction, engine: Engine | None = None) -> int:
    """Cycles of `instr` by itself, on `engine` where several have it. Raises ValueError for an instruction without a rule."""
    if engine == Engine.SCALAR and instr.opcode in SCALAR_COSTS:
        return SCALAR_COSTS[instr.opcode].cycles(config, instr)
    if instr.opcode not in COSTS:
        known = ", ".join(o.name for o in COSTS)
        raise ValueError(f"opcode must be one of {known}, not {instr.opcode.name}")
    return COSTS[instr.opcode].cycles(config, instr)
