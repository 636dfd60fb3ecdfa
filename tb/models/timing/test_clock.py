"""Events: in order of cycles, then of their kind, then of age; an end for what has none."""

import pytest

from models.timing.clock import ACT, CHANGE, CHOOSE, Clock, TimingError


def test_order():
    clock, seen = Clock(100), []
    for cycle, order, name in (
        (3, ACT, "d"),
        (1, CHOOSE, "c"),
        (1, ACT, "b"),
        (1, CHANGE, "a"),
        (3, ACT, "e"),
    ):
        clock.at(cycle, order, lambda name=name: seen.append((clock.now, name)))
    clock.run()
    assert seen == [(1, "a"), (1, "b"), (1, "c"), (3, "d"), (3, "e")]


def test_limit():
    clock = Clock(100)

    def again():
        clock.at(clock.now + 7, ACT, again)

    again()
    with pytest.raises(TimingError, match="has not ended after 100 cycles"):
        clock.run()
