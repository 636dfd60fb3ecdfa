"""Tensor engine: loads run behind matmuls, columns stream one a cycle, updates come in order (rtl.tensor.engine)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from models import cost
from models.config import ChipConfig
from models.encoding import Instruction
from models.formats import FP32_PASSES, DType
from models.isa import Flag, Opcode, Space
from models.timing.banks import Banks, Stream, pattern_banks
from models.timing.busy import Busy
from models.timing.clock import ACT, Clock, TimingError
from models.timing.semaphores import Semaphores
from models.timing.words import Word

PENDING = 16
"""Instructions between their start and their update."""
HAZARD = 5
"""Least distance of columns that add to the same PSUM address (rtl.memory.psum)."""
LOOK = 4
"""Cycles from an access to SBUF until its column enters."""
ADD = 4
"""Cycles from a sum's read in PSUM to its write."""
DONE = 2
"""Cycles from a matmul's last write in PSUM to its update."""
Taken = Callable[[], None]
Done = Callable[[int], None]


@dataclass(slots=True)
class _Item:
    """An instruction: when it was taken, and when it will have done its work."""

    word: Word
    accepted: int
    done: Done
    finished: int = 0

    @property
    def instr(self) -> Instruction:
        assert self.word.instr is not None
        return self.word.instr

    @property
    def load(self) -> bool:
        return self.word.opcode == Opcode.LOAD_STATIONARY


class TensorEngine:
    """Takes LOAD_STATIONARY, MATMUL and TRANSPOSE. `columns`: moving columns so far."""

    def __init__(self, clock: Clock, config: ChipConfig, semaphores: Semaphores, banks: Banks):
        self.clock, self.config, self.semaphores, self.banks = clock, config, semaphores, banks
        self.busy, self.columns = Busy(), 0
        self._offered: tuple[Word, Taken, Done] | None = None
        self._checked: _Item | None = None
        self._front_free = 0
        self._pending: deque[_Item] = deque()
        self._updating = False
        # when weights may be pushed again, when those loaded last are whole, whether a matmul has still to bring them into use, and
        # when the last ones that were came into use
        self._load_free, self._full = 0, 0
        self._fresh, self._held = False, False
        self._swapped = 0
        # when the last matmul's columns have all entered
        self._stream_free = 0

    def offer(self, word: Word, taken: Taken, done: Done) -> None:
        """See models.timing.sequencer.Target."""
        self._offered = (word, taken, done)
        if self._checked is None and self.clock.now >= self._front_free:
            self._take()

    def _take(self) -> None:
        if self._offered is None:
            return
        (word, taken, done), self._offered = self._offered, None
        self._checked = _Item(word, self.clock.now, done)
        self.clock.at(self.clock.now + cost.CHECK, ACT, self._start)
        taken()

    def _start(self) -> None:
        """Start the checked instruction, if it may; called again when something has changed."""
        item, now = self._checked, self.clock.now
        if item is None or now < item.accepted + cost.CHECK or len(self._pending) == PENDING:
            return
        empty = not item.load and item.instr.aps["src0"].size == 0
        turns = item.word.opcode == Opcode.TRANSPOSE
        free = 0 if empty else self._load_free if item.load else self._stream_free
        if turns and not empty:
            free = max(self._load_free, self._stream_free)
        if free > now:
            self.clock.at(free, ACT, self._start)
            return
        self._checked, self._front_free = None, now + 1
        self._pending.append(item)
        if empty:
            item.finished = now + 1
        elif item.load:
            self._load(item)
        elif turns:
            self._turn(item)
        else:
            self._stream(item)
        self._update()
        self.clock.at(now + 1, ACT, self._take)

    def _load(self, item: _Item) -> None:
        """Weights go into the array when those before them are in use."""
        first = max(self.clock.now + cost.READ, self._swapped + 1)
        cycles = item.word.cycles - cost.CHECK - cost.READ
        item.finished = self._load_free = self._full = first + cycles
        self._fresh = self._held = True

    def _turn(self, item: _Item) -> None:
        """A TRANSPOSE has the weights and the columns to itself, and leaves no weights."""
        now = self.clock.now
        self.columns += item.instr.fields["parts"]
        item.finished = now + item.word.cycles - cost.CHECK
        self._load_free = self._stream_free = now + cost.FURTHER_TRANSPOSE.cycles(self.config, item.instr)
        self._fresh = self._held = False

    def _stream(self, item: _Item) -> None:
        """Columns enter when they and the weights are there."""
        if not self._held:
            raise TimingError("a MATMUL without a LOAD_STATIONARY before it")
        first = self.clock.now + cost.READ
        if self._fresh:
            first = max(first, self._full)
            self._fresh, self._swapped = False, first
        spread = self._hazards(item.instr)
        columns = item.instr.aps["src0"].size
        self.columns += columns
        passes = FP32_PASSES if item.instr.aps["src0"].dtype == DType.FP32 else 1
        self._stream_free = first + spread + passes * columns - 1
        item.finished = first + spread + item.word.cycles - cost.CHECK - cost.READ
        self._claim(item.instr, first, item.finished)

    def _claim(self, instr: Instruction, first: int, finished: int) -> None:
        """The banks that columns which enter from `first` on, and their sums, have for themselves."""
        now, dst = self.clock.now, instr.aps["dst"]
        moving = pattern_banks(self.config, instr.aps["src0"], fresh=True)
        self.banks.reads[Space.SBUF].add(Stream(first - LOOK, moving), now, wins=True)
        if instr.fields.get("flags", 0) & Flag.DOUBLE_ROW:
            second = pattern_banks(self.config, instr.aps["src1"], fresh=True)
            self.banks.reads[Space.SBUF].add(Stream(first - LOOK, second), now, wins=False)
        sums = pattern_banks(self.config, dst, fresh=False)
        written = finished - DONE - dst.size + 1
        self.banks.reads[Space.PSUM].add(Stream(written - ADD, sums), now, wins=True)
        self.banks.writes[Space.PSUM].add(Stream(written, sums), now, wins=True)

    def _hazards(self, instr: Instruction) -> int:
        """Cycles lost to columns that add to what one before them has not left yet."""
        if not instr.fields.get("flags", 0) & Flag.ACCUMULATE:
            return 0
        addresses = instr.aps["dst"].addresses()
        if np.unique(addresses).size == addresses.size:
            return 0
        at: dict[int, int] = {}
        now = -1
        for address in addresses.tolist():
            now = max(now + 1, at.get(address, -HAZARD) + HAZARD)
            at[address] = now
        return now + 1 - addresses.size

    def _update(self) -> None:
        """Updates in order, one a cycle."""
        if self._updating or not self._pending:
            return
        self._updating = True
        self.clock.at(max(self._pending[0].finished, self.clock.now), ACT, self._done)

    def _done(self) -> None:
        item = self._pending.popleft()
        updated = self.semaphores.update(item.word.update)
        self.busy.add(item.accepted, updated)
        item.done(updated)
        self.clock.at(updated + 1, ACT, self._after)

    def _after(self) -> None:
        self._updating = False
        self._update()
        self._start()
