"""The microcode builder: registers, constants, modifiers."""

from fractions import Fraction

import numpy as np
import pytest

from models import microcode, wide
from models.microcode import REGISTERS, Builder, Op, constant, run


def _evaluate(write, x):
    constants = [constant(0)]
    b = Builder(constants)
    steps = b.program(write(b))
    argument = wide.from_fp32(np.array([x], dtype=np.float32).view(np.uint32))
    return wide.to_fp32(run(steps, constants, argument)).view(np.float32)[0], steps, constants


def test_constants_are_shared_and_exact():
    value, steps, constants = _evaluate(lambda b: b.add(b.mul(b.x, b.const(3)), b.const(3)), 2.0)
    assert value == 9
    assert constants.count(constant(3)) == 1
    assert len(steps) == 2
    assert constant(Fraction(1, 3)).sig == round(Fraction(1, 3) * 2**33)
    assert constant((1 << 32) - Fraction(1, 4)) == constant(1 << 32), "rounds up to the next power"
    assert constant("-0").neg


def test_modifiers_and_unchanged_results_cost_a_step_at_most():
    assert _evaluate(lambda b: -abs(b.x), -3.0)[0] == -3
    assert _evaluate(lambda b: abs(-b.x), -3.0)[0] == 3
    value, steps, _ = _evaluate(lambda b: b.x, -0.0)
    assert np.signbit(value)
    assert len(steps) == 1


def test_registers_are_used_again_and_can_run_out():
    def chain(b):
        x = b.x
        for _ in range(50):
            x = b.add(x, b.x)
        return x

    value, steps, _ = _evaluate(chain, 1.0)
    assert value == 51
    assert max(s.target for s in steps) < REGISTERS

    def hoard(b):
        values = [b.add(b.x, b.const(i)) for i in range(REGISTERS + 1)]
        total = values[0]
        for v in values[1:]:
            total = b.add(total, v)
        return total

    with pytest.raises(ValueError, match=f"more than {REGISTERS} registers"):
        _evaluate(hoard, 1.0)


def test_select_and_min():
    def bigger(b):
        return b.select(b.less(b.x, b.const(5)), b.const(5), b.maximum(b.x, b.const(7)))

    assert [float(_evaluate(bigger, x)[0]) for x in (1.0, 6.0, 9.0)] == [5, 7, 9]
    assert np.isnan(_evaluate(lambda b: b.step(Op.MIN, b.x, b.const(1)), np.nan)[0])
    assert microcode.ZERO.constant
