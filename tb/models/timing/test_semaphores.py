"""Updates one a cycle, seen a cycle later; numbers wrap."""

from models.isa import UpdateMode
from models.timing.clock import ACT, Clock
from models.timing.semaphores import Semaphores


def test_updates_and_waits():
    clock = Clock(1000)
    sems, seen = Semaphores(clock, 64), []

    def updates():
        assert sems.update((UpdateMode.ADD, 3, 2)) == 10
        assert sems.update((UpdateMode.NONE, 0, 0)) == 11
        assert sems.update((UpdateMode.ADD, 3, 1)) == 12

    sems.wait(3, 2, lambda: seen.append(("two", clock.now)))
    sems.wait(3, 3, lambda: seen.append(("three", clock.now)))
    sems.wait(4, -1, lambda: seen.append(("at once", clock.now)))
    clock.at(10, ACT, updates)
    clock.run()
    assert seen == [("at once", 0), ("two", 11), ("three", 13)]


def test_numbers_are_those_of_32_bits():
    clock = Clock(1000)
    sems = Semaphores(clock, 64)
    sems.update((UpdateMode.SET, 0, (1 << 31) - 1))
    sems.update((UpdateMode.ADD, 0, 1))
    sems.update((UpdateMode.SUB, 1, 5))
    clock.run()
    assert sems.values[:2] == [-(1 << 31), -5]
