"""Events in order of cycles."""

import heapq
from collections.abc import Callable

CHANGE, ACT, CHOOSE = range(3)
"""Order within a cycle: registers take their new values, then blocks act on them, then arbiters choose among what was asked for."""


class TimingError(ValueError):
    """A program whose cycles cannot be told: it never ends, or it would stop on an error; the text says where."""


class Clock:
    """Calls functions at cycles. `now`: the cycle of the call under way. `limit`: a run that goes beyond it is an error."""

    def __init__(self, limit: int):
        self.now, self.limit = 0, limit
        self._events: list[tuple[int, int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, cycle: int, order: int, call: Callable[[], None]) -> None:
        """Call `call` at `cycle`, among that cycle's calls by `order`, then by age."""
        self._count += 1
        heapq.heappush(self._events, (cycle, order, self._count, call))

    def run(self) -> None:
        """Until nothing is left to call. Raises TimingError beyond the limit."""
        while self._events:
            self.now, _, _, call = heapq.heappop(self._events)
            if self.now > self.limit:
                raise TimingError(f"the program has not ended after {self.limit} cycles")
            call()
