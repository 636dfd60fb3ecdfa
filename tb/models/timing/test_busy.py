"""Cycles with work count once."""

from models.timing.busy import Busy


def test_spans_that_overlap_touch_and_lie_apart():
    busy = Busy()
    for first, last in ((0, 10), (5, 12), (6, 8), (12, 13), (20, 25)):
        busy.add(first, last)
    assert busy.cycles == 13 + 5
