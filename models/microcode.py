"""The scalar engine's microcode: straight-line programs over wide floats, the same for every lane and element.

One step reads up to three operands (registers of an element, or shared constants; each may be negated or made positive first) and writes a register.
`models.functions` writes the programs, `run` executes them as the hardware does, `rtl.scalar` executes the very same steps.
"""

import enum
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from models import turns, wide
from models.wide import SIG_BITS, Wide

REGISTERS = 8
"""Registers an element has; register 0 holds the argument at the start, and the result is read from the last step's."""
OPERANDS = ("a", "b", "c")


class Op(enum.IntEnum):
    """What a step does with its operands a, b, c (models.wide says exactly)."""

    FMA = 0
    """a * b + c"""
    RINT = 1
    SCALE = 2
    """a * 2**b"""
    EXPONENT = 3
    FRACTION = 4
    RECIPROCAL_SEED = 5
    RSQRT_SEED = 6
    LESS = 7
    """1 where a < b, else +0"""
    SELECT = 8
    """b where a is not zero (NaN is not), else c"""
    COPYSIGN = 9
    """|a| with the sign of b"""
    MIN = 10
    """The smaller of a and b (a when they are equal); NaN when one is"""
    TURN = 11
    """|a| in quarter turns, less its nearest integer (models.turns)"""
    QUADRANT = 12
    """That integer modulo 4"""


@dataclass(frozen=True, slots=True)
class Constant:
    """A wide float as plain integers; infinity and NaN have `kind` 1 and 2. `kind` 3 stands for the instruction's parameter."""

    neg: int
    exp: int
    sig: int
    kind: int = 0


PARAMETER = Constant(0, 0, 0, 3)
"""A number that comes with the instruction, as a program's constant."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Register `index`, or constant `index` of the common table; `absolute` is applied before `negate`."""

    constant: bool
    index: int
    negate: bool = False
    absolute: bool = False


ZERO = Operand(True, 0)
"""Constant 0 is +0."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; operands that `op` does not use are ZERO."""

    op: Op
    target: int
    a: Operand
    b: Operand = ZERO
    c: Operand = ZERO


def constant(value: Fraction | int | float | str) -> Constant:
    """The nearest wide float to an exact number, or "inf", "nan", "-0"."""
    if isinstance(value, str):
        return {"inf": Constant(0, 0, 0, 1), "nan": Constant(0, 0, 0, 2), "-0": Constant(1, 0, 0)}[value]
    x = Fraction(value)
    if x == 0:
        return Constant(0, 0, 0)
    mag = abs(x)
    exp = mag.numerator.bit_length() - mag.denominator.bit_length()
    if Fraction(2) ** exp > mag:
        exp -= 1
    sig = round(mag / Fraction(2) ** (exp - (SIG_BITS - 1)))
    if sig == 1 << SIG_BITS:
        sig, exp = sig >> 1, exp + 1
    return Constant(int(x < 0), exp, sig)


def exact(c: Constant) -> Fraction:
    """The number that a finite constant is."""
    return Fraction(c.sig) * Fraction(2) ** (c.exp - (SIG_BITS - 1)) * (-1 if c.neg else 1)


class Value:
    """A value while a program is being written: made by a Builder, used as often as one likes."""

    def __init__(
        self,
        builder: "Builder",
        number: int | None,
        const: int | None,
        negate: bool = False,
        absolute: bool = False,
    ):
        self.builder, self.number, self.const, self.negate, self.absolute = (
            builder,
            number,
            const,
            negate,
            absolute,
        )

    def __neg__(self) -> "Value":
        return Value(self.builder, self.number, self.const, not self.negate, self.absolute)

    def __abs__(self) -> "Value":
        return Value(self.builder, self.number, self.const, False, True)


@dataclass
class Builder:
    """Writes one program. `constants` is the table that all programs share."""

    constants: list[Constant]
    steps: list[tuple[Op, list[Value]]] = field(default_factory=list)

    def const(self, value: Fraction | int | float | str | Constant) -> Value:
        """A shared constant."""
        c = value if isinstance(value, Constant) else constant(value)
        if c not in self.constants:
            self.constants.append(c)
        return Value(self, None, self.constants.index(c))

    @property
    def x(self) -> Value:
        """The argument."""
        return Value(self, 0, None)

    @property
    def parameter(self) -> Value:
        """The instruction's parameter."""
        return self.const(PARAMETER)

    def step(self, op: Op, *operands: Value) -> Value:
        """Append a step; its result."""
        self.steps.append((op, list(operands)))
        return Value(self, len(self.steps), None)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c."""
        return self.step(Op.FMA, a, b, c)

    def mul(self, a: Value, b: Value) -> Value:
        """a * b; a zero keeps its sign."""
        return self.fma(a, b, self.const("-0"))

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        return self.fma(a, self.const(1), b)

    def less(self, a: Value, b: Value) -> Value:
        """1 where a < b, else 0."""
        return self.step(Op.LESS, a, b)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """`yes` where condition is not zero."""
        return self.step(Op.SELECT, condition, yes, no)

    def minimum(self, a: Value, b: Value) -> Value:
        """The smaller."""
        return self.step(Op.MIN, a, b)

    def maximum(self, a: Value, b: Value) -> Value:
        """The larger."""
        return -self.step(Op.MIN, -a, -b)

    def copysign(self, a: Value, sign: Value) -> Value:
        """|a| with the sign of `sign`."""
        return self.step(Op.COPYSIGN, a, sign)

    def polynomial(self, x: Value, coefficients: list[Fraction]) -> Value:
        """Horner's rule; highest power first."""
        result = self.const(coefficients[0])
        for c in coefficients[1:]:
            result = self.fma(result, x, self.const(c))
        return result

    def reciprocal(self, x: Value) -> Value:
        """1/x to nearly all bits for finite x that is not 0 (Newton's method from the seed)."""
        r = self.step(Op.RECIPROCAL_SEED, x)
        for _ in range(2):
            error = self.fma(-x, r, self.const(1))
            r = self.fma(r, error, r)
        return r

    def program(self, result: Value) -> tuple[Step, ...]:
        """Steps with registers allocated; the last one writes the result to its target. Raises ValueError when REGISTERS are too few."""
        if not self.steps or result.number != len(self.steps) or result.negate or result.absolute:
            result = self.step(Op.FMA, result, self.const(1), self.const("-0"))
        last: dict[int, int] = {}
        for i, (_, operands) in enumerate(self.steps):
            for v in operands:
                if v.number is not None:
                    last[v.number] = i
        free = list(range(1, REGISTERS))
        where = {0: 0}
        out = []
        for i, (op, operands) in enumerate(self.steps):
            coded = [
                Operand(True, v.const, v.negate, v.absolute)
                if v.const is not None
                else Operand(False, where[v.number if v.number is not None else 0], v.negate, v.absolute)
                for v in operands
            ]
            for number in {v.number for v in operands if v.number is not None}:
                if last[number] == i:
                    free.append(where.pop(number))
            if not free:
                raise ValueError(f"step {i} needs more than {REGISTERS} registers")
            free.sort()
            target = free.pop(0)
            where[i + 1] = target
            out.append(Step(op, target, *coded))
        return tuple(out)


def _broadcast(c: Constant, like: Wide) -> Wide:
    shape = like.sig.shape
    return Wide(
        np.full(shape, bool(c.neg)),
        np.full(shape, c.exp, dtype=np.int64),
        np.full(shape, c.sig, dtype=np.uint64),
        np.full(shape, c.kind == 1),
        np.full(shape, c.kind == 2),
    )


def execute(op: Op, a: Wide, b: Wide, c: Wide) -> Wide:
    """One step's operation."""
    if op == Op.FMA:
        return wide.fma(a, b, c)
    if op == Op.RINT:
        return wide.rint(a)
    if op == Op.SCALE:
        return wide.scale(a, b)
    if op == Op.EXPONENT:
        return wide.exponent(a)
    if op == Op.FRACTION:
        return wide.fraction(a)
    if op == Op.RECIPROCAL_SEED:
        return wide.reciprocal_seed(a)
    if op == Op.RSQRT_SEED:
        return wide.rsqrt_seed(a)
    if op == Op.LESS:
        return _broadcast(constant(1), a).select(wide.less(a, b), _broadcast(constant(0), a))
    if op == Op.SELECT:
        return b.select(~a.zero, c)
    if op == Op.COPYSIGN:
        return wide.copysign(a, b)
    if op == Op.TURN:
        return turns.turn(a)
    if op == Op.QUADRANT:
        return turns.quadrant(a)
    smallest = b.select(wide.less(b, a), a)
    return _broadcast(constant("nan"), a).select(a.nan | b.nan, smallest)


def run(
    steps: tuple[Step, ...], constants: list[Constant], x: Wide, parameter: Constant | None = None
) -> Wide:
    """Execute a program on every element of `x`; `parameter` is what PARAMETER stands for (+0 when there is none)."""
    constants = [(parameter or constant(0)) if c == PARAMETER else c for c in constants]
    registers: dict[int, Wide] = {0: x}
    result = x

    def fetch(o: Operand) -> Wide:
        value = _broadcast(constants[o.index], x) if o.constant else registers[o.index]
        value = wide.absolute(value) if o.absolute else value
        return wide.negate(value) if o.negate else value

    for s in steps:
        result = execute(s.op, fetch(s.a), fetch(s.b), fetch(s.c))
        registers[s.target] = result
    return result
