"""Semaphores: one update a cycle, seen by those who wait from the next cycle on."""

from collections.abc import Callable

from models.isa import UpdateMode
from models.timing.clock import ACT, CHANGE, Clock

Update = tuple[int, int, int]
"""Mode, semaphore, value."""


class Semaphores:
    """A core's semaphores."""

    def __init__(self, clock: Clock, count: int):
        self.clock = clock
        self.values = [0] * count
        self.free = 0
        self.waiters: list[tuple[int, int, Callable[[], None]]] = []

    def update(self, update: Update) -> int:
        """Ask for an update now; the cycle in which it is taken."""
        taken = max(self.clock.now, self.free)
        self.free = taken + 1
        if update[0] != UpdateMode.NONE:
            self.clock.at(taken + 1, CHANGE, lambda: self._change(update))
        return taken

    def _change(self, update: Update) -> None:
        mode, sem, value = update
        old = self.values[sem]
        new = value if mode == UpdateMode.SET else old + value if mode == UpdateMode.ADD else old - value
        self.values[sem] = (new + (1 << 31)) % (1 << 32) - (1 << 31)
        met = [w for w in self.waiters if w[0] == sem and self.values[sem] >= w[1]]
        for waiter in met:
            self.waiters.remove(waiter)
            self.clock.at(self.clock.now, ACT, waiter[2])

    def wait(self, sem: int, value: int, met: Callable[[], None]) -> None:
        """Call `met` in the first cycle from now on in which the semaphore is there."""
        if self.values[sem] >= value:
            met()
        else:
            self.waiters.append((sem, value, met))
