"""One engine's stream: take, check, wait, issue, next (rtl.control.sequencer)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from models import flow
from models.isa import INSTR_BYTES, Engine, Opcode, UpdateMode
from models.machine import SPIN_LIMIT
from models.timing.clock import ACT, CHANGE, Clock, TimingError
from models.timing.fetch import Fetch
from models.timing.semaphores import Semaphores
from models.timing.words import Word, Words

MOST_LEFT = 255
"""Instructions that an engine, and the DMA for a stream, may have from it."""


class Target(Protocol):
    """What instructions are issued to. `taken` is called in the cycle in which it takes the word, `done` with the cycle of its update."""

    def offer(self, word: Word, taken: Callable[[], None], done: Callable[[int], None]) -> None: ...


@dataclass(slots=True)
class Spin:
    """Instructions of a core that only sequencers saw, since the last one that did something."""

    count: int = 0


@dataclass(slots=True)
class Left:
    """Instructions of this stream that something has and has not finished."""

    count: int = 0


class Sequencer:
    """Runs a stream. `read`: an instruction word of memory. `waiting`: cycles held by semaphores so far. `ended`: the cycle of its HALT."""

    def __init__(
        self,
        clock: Clock,
        where: str,
        engine: Engine,
        fetch: Fetch,
        semaphores: Semaphores,
        words: Words,
        read: Callable[[int], bytes],
        own: Target | None,
        dma: Target,
        spin: Spin,
    ):
        self.clock, self.where, self.engine, self.fetch = clock, where, engine, fetch
        self.semaphores, self.words, self.read, self.own, self.dma = semaphores, words, read, own, dma
        self.spin = spin
        self.registers = [0] * 16
        self.index = self.instructions = self.waiting = 0
        self.engine_left, self.dma_left = Left(), Left()
        self.ended: int | None = None
        self.waits_for: tuple[int, int] | None = None
        self._since = 0
        self._served: int | None = None
        self._word: Word
        self._blocked: Callable[[], None] | None = None

    def start(self) -> None:
        """From this cycle on."""
        self.fetch.ask()
        self.fetch.head(self._check)

    def _check(self) -> None:
        self.clock.at(self.clock.now + 2, ACT, self._wait)

    def _wait(self) -> None:
        address = self.fetch.base + self.index * INSTR_BYTES
        try:
            self._word = self.words.word(self.engine, self.read(address), self.registers)
        except TimingError as e:
            raise TimingError(f"{self.where}[{self.index}]: {e}") from None
        self._since = self.clock.now
        self.waits_for = self._word.wait
        if self._word.wait is None:
            self._met()
        else:
            self.semaphores.wait(*self._word.wait, self._met)

    def _met(self) -> None:
        self.waits_for = None
        self.waiting += self.clock.now - self._since
        self.clock.at(self.clock.now + 1, ACT, self._issue)

    def _issue(self) -> None:
        word = self._word
        if word.opcode == Opcode.DMA:
            self._offer(self.dma, self.dma_left)
        elif word.opcode in (Opcode.NOP, Opcode.REGISTER, Opcode.BRANCH):
            if word.update[0] != UpdateMode.NONE:
                if self.engine_left.count:
                    self._blocked = self._issue
                    return
                if not self._updated():
                    return
                self.spin.count = 0
            self.spin.count += 1
            if self.spin.count > SPIN_LIMIT:
                raise TimingError(f"{self.where}[{self.index}] never ends: a loop that does nothing")
            self._next(flow.control(word.opcode, word.raw, self.registers))
        elif word.opcode == Opcode.HALT:
            if self.engine_left.count or self.dma_left.count:
                self._blocked = self._issue
                return
            if self._updated():
                self.instructions += 1
                self.ended = self.clock.now
                self.fetch.stop()
        else:
            assert self.own is not None
            self._offer(self.own, self.engine_left)

    def _updated(self) -> bool:
        """Whether this instruction's update has been taken; if not, the issue is tried again when it is."""
        if self._served is None:
            self._served = self.semaphores.update(self._word.update)
        if self._served > self.clock.now:
            self.clock.at(self._served, ACT, self._issue)
            return False
        self._served = None
        return True

    def _offer(self, target: Target, left: Left) -> None:
        if left.count == MOST_LEFT:
            self._blocked = self._issue
            return

        def done(cycle: int) -> None:
            self.clock.at(cycle + 1, CHANGE, lambda: self._finished(left))

        self.spin.count = 0
        left.count += 1
        target.offer(self._word, lambda: self._next(None), done)

    def _finished(self, left: Left) -> None:
        left.count -= 1
        if self._blocked is not None:
            blocked, self._blocked = self._blocked, None
            self.clock.at(self.clock.now, ACT, blocked)

    def _next(self, jump: int | None) -> None:
        """Called in the cycle in which the instruction leaves."""
        self.instructions += 1
        self.index = self.index + 1 if jump is None else jump
        if jump is not None:
            self.clock.at(self.clock.now + 2, CHANGE, lambda: self.fetch.jump(jump))
        self.clock.at(self.clock.now + 2, ACT, lambda: self.fetch.head(self._check))
