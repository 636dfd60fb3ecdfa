"""Vector, scalar and gpsimd engine: one instruction runs while the next one is checked (rtl.vector.engine, rtl.scalar.engine)."""

from collections.abc import Callable

from models import cost
from models.config import ChipConfig
from models.encoding import Instruction
from models.isa import AluOp
from models.timing.banks import Banks, Side, Stream, pattern_banks
from models.timing.busy import Busy
from models.timing.clock import ACT, Clock
from models.timing.semaphores import Semaphores
from models.timing.words import Word

FIRST_READ = 2
"""Cycles from an instruction's start to its first read."""
LONGEST = 1 << 16
"""Elements of an instruction whose accesses are looked at one by one."""
Taken = Callable[[], None]
Done = Callable[[int], None]


class ElementEngine:
    """Takes instructions one after the other, each for the cycles that models.cost says."""

    def __init__(self, clock: Clock, config: ChipConfig, semaphores: Semaphores, banks: Banks):
        self.clock, self.config, self.semaphores, self.banks = clock, config, semaphores, banks
        self.busy = Busy()
        self._offered: tuple[Word, Taken, Done] | None = None
        self._checked: tuple[Word, int, Done] | None = None
        self._front_free = self._free = 0
        self._running = False

    def offer(self, word: Word, taken: Taken, done: Done) -> None:
        """See models.timing.sequencer.Target."""
        self._offered = (word, taken, done)
        if self._checked is None and self.clock.now >= self._front_free:
            self._take()

    def _take(self) -> None:
        if self._offered is None:
            return
        now = self.clock.now
        (word, taken, done), self._offered = self._offered, None
        self._checked = (word, now, done)
        if not self._running:
            self.clock.at(max(now + cost.CHECK, self._free), ACT, self._start)
        taken()

    def _start(self) -> None:
        now = self.clock.now
        assert self._checked is not None
        word, accepted, done = self._checked
        assert word.instr is not None
        self._checked, self._running, self._front_free = None, True, now + 1
        end = now + word.cycles - cost.CHECK
        streams = self._claim(word.instr, now, end)
        self.clock.at(end, ACT, lambda: self._end(word, accepted, done, streams, 0))
        self.clock.at(now + 1, ACT, self._take)

    def _claim(self, instr: Instruction, start: int, end: int) -> list[tuple[Side, Stream]]:
        """The accesses of an instruction that has one or more a cycle."""
        pace = cost.PACES.get(instr.opcode)
        if pace is not None and instr.fields.get("op0") == AluOp.DIVIDE:
            pace = cost.DIVIDE_PACE
        if pace is None or instr.aps["dst"].size not in range(1, LONGEST):
            return []
        out = []
        for name, ap in instr.aps.items():
            if ap.size != instr.aps["dst"].size:  # a scalar of each partition, or bounds
                continue
            banks = pattern_banks(self.config, ap, fresh=name != "dst")
            side = (self.banks.writes if name == "dst" else self.banks.reads)[ap.space]
            first = end - 1 - (len(banks) - 1) * pace if name == "dst" else start + FIRST_READ
            out.append((side, side.add(Stream(first, banks, pace), start, wins=False)))
        return out

    def _end(
        self, word: Word, accepted: int, done: Done, streams: list[tuple[Side, Stream]], paid: int
    ) -> None:
        """The instruction's last cycle, unless it has lost more cycles to others than it has been given yet."""
        lost = max((stream.delay + side.lost(stream) for side, stream in streams), default=0)
        if lost > paid:
            again = self.clock.now + lost - paid
            self.clock.at(again, ACT, lambda: self._end(word, accepted, done, streams, lost))
            return
        updated = self.semaphores.update(word.update)
        self.busy.add(accepted, updated)
        self._free, self._running = updated + 1, False
        done(updated)
        if self._checked is not None:
            self.clock.at(max(self._checked[1] + cost.CHECK, self._free), ACT, self._start)
