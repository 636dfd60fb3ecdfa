"""Straight lines and loops, kept and not: the fetch's pace."""

import pytest

from models.config import find
from models.isa import Cond, Opcode, RegOp
from models.timing.fetch import BEATS
from rtl.control import fetch
from tb.models.timing.chips import both, image_of


def loop(length, turns):
    def fill(p):
        stream = p.vector
        stream.emit(Opcode.REGISTER, {"reg_op": RegOp.MOVE, "rd": 1, "use_imm": 1, "imm": turns})
        for _ in range(length):
            stream.nop()
        stream.emit(Opcode.REGISTER, {"reg_op": RegOp.ADD, "rd": 1, "ra": 1, "use_imm": 1, "imm": -1})
        stream.emit(Opcode.BRANCH, {"cond": Cond.NE, "ra": 1, "use_imm": 1, "imm": 0, "target": 1})

    return fill


@pytest.mark.parametrize("latency", [1, 20, 60])
@pytest.mark.parametrize("length", [0, 5, 13, 14, 40])
def test_loops(length, latency):
    config = find("nano")
    found = both(config, image_of(config, loop(length, 6)), latency)
    assert abs(found.told - found.took) <= 3, (found.took, found.told)


def test_straight_lines_of_all_engines():
    config = find("mini")

    def fill(p):
        for stream in p.streams.values():
            for _ in range(40):
                stream.nop()

    found = both(config, image_of(config, fill))
    assert abs(found.told - found.took) <= 3, (found.took, found.told)


def test_constants_are_those_of_the_chip():
    assert BEATS == fetch.BEATS
