"""When an instruction is there: fetched ahead by its number, the latest ones kept for branches back (rtl.control.fetch)."""

from collections.abc import Callable

from models.config import CoreConfig
from models.isa import INSTR_BYTES
from models.timing.clock import ACT, CHANGE, Clock
from models.timing.memory import PAGE, ReadPort

BEATS = INSTR_BYTES // 16
ASK = 2
"""Cycles from asking to the crossbar: a register, and the core's register slice."""
KEEP = 2
"""Cycles from the last beat at the crossbar until the instruction can be taken: the slice, and the memory that keeps it."""


class Fetch:
    """One stream's fetch. `flight`: bursts under way."""

    def __init__(self, clock: Clock, core: CoreConfig, port: ReadPort, base: int, end: int):
        self.clock, self.core, self.port, self.base, self.end = clock, core, port, base, end
        self.active = True
        self.oldest = self.out = self.arrives = self.asks = 0
        self.flight = self.stale = 0
        self.next_ask = 0
        self.waiting: Callable[[], None] | None = None
        self.on_idle: Callable[[], None] | None = None

    def head(self, taken: Callable[[], None]) -> None:
        """The sequencer is ready from this cycle on: `taken` is called in the cycle in which it gets the next instruction."""
        if self.out != self.arrives:
            self._give(taken)
        else:
            self.waiting = taken

    def _give(self, taken: Callable[[], None]) -> None:
        self.clock.at(self.clock.now + 1, CHANGE, self._taken)
        taken()

    def _taken(self) -> None:
        self.out += 1
        self.ask()

    def ask(self) -> None:
        """Ask for the next instruction if it is time to; one a cycle."""
        now = self.clock.now
        offset = self.base + self.asks * INSTR_BYTES
        if not self.active or self.stale or self.asks - self.out >= self.core.prefetch or offset >= self.end:
            return
        if now < self.next_ask:
            self.clock.at(self.next_ask, ACT, self.ask)
            return
        self.next_ask = now + 1
        self.asks += 1
        self.flight += 1
        self.port.request(now + ASK, offset, self._beats)
        self.clock.at(now + 1, ACT, self.ask)

    def _beats(self, first: int, ends: Callable[[int], None]) -> None:
        last = first + BEATS - 1
        self.clock.at(last + KEEP, CHANGE, self._arrived)
        ends(last)

    def _arrived(self) -> None:
        self.flight -= 1
        if not self.active and self.flight == 0 and self.on_idle is not None:
            self.on_idle()
        if self.stale:
            self.stale -= 1
            self.ask()
            return
        self.arrives += 1
        if self.arrives - self.oldest > self.core.loop_buffer:
            self.oldest += 1
        if self.waiting is not None:
            self.clock.at(self.clock.now, ACT, self._late)

    def _late(self) -> None:
        if self.waiting is not None and self.out != self.arrives:
            taken, self.waiting = self.waiting, None
            self._give(taken)

    def jump(self, to: int) -> None:
        """Go on with instruction `to`; called in the cycle after the sequencer says so."""
        here = self.oldest <= to < self.arrives or to == self.arrives
        self.out = to
        if not here or self.asks - to > self.core.loop_buffer:
            self.oldest = self.arrives = self.asks = to
            self.stale = self.flight
        self.ask()

    def stop(self) -> None:
        """Ask for nothing more."""
        self.active = False


assert PAGE % INSTR_BYTES == 0, "an instruction lies in one channel"
