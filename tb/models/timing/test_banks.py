"""Streams of accesses that meet in banks."""

from models.access import row
from models.config import find
from models.formats import DType
from models.isa import Space
from models.timing.banks import NOWHERE, Side, Stream, pattern_banks

NANO = find("nano")


def test_banks_of_patterns():
    assert pattern_banks(NANO, row(8, DType.FP32, 4, space=Space.PSUM), fresh=True) == [2, 3, 4, 5]
    assert pattern_banks(NANO, row(0, DType.BF16, 4), fresh=True) == [0, NOWHERE, 1, NOWHERE]
    assert pattern_banks(NANO, row(0, DType.BF16, 4), fresh=False) == [0, 0, 1, 1]


def test_lanes_give_way_once_to_columns_of_their_own_pace():
    side = Side(8)
    side.add(Stream(10, [0, 1, 2, 3, 4, 5, 6, 7]), 0, wins=True)
    assert side.lost(Stream(10, [0, 1, 2, 3])) == 1
    assert side.lost(Stream(10, [4, 5, 6, 7])) == 0
    assert side.lost(Stream(30, [0, 1])) == 0


def test_rows_wait_for_columns_in_their_half():
    side = Side(8)
    side.add(Stream(10, list(range(8)) * 2), 0, wins=True)
    assert side.row(10, 0) == 14
    assert side.row(15, 1) == 18
    assert side.row(10, 1) == 10
    assert side.row(40, 0) == 40


def test_rows_and_lanes_take_turns():
    side = Side(4)
    lanes = side.add(Stream(10, [0, 1, 2, 3]), 0, wins=False)
    assert [side.row(10, 0), side.row(12, 0)] == [11, 13]
    assert lanes.delay == 2
    assert lanes.end == 16
