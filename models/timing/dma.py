"""DMA of a core: chunks through source, aligner and target, one instruction after the other (rtl.dma)."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from models import addressing
from models.isa import Engine, Space
from models.timing.banks import Banks, Side
from models.timing.busy import Busy
from models.timing.clock import ACT, CHOOSE, Clock
from models.timing.memory import PAGE, Memory, ReadPort, Write
from models.timing.semaphores import Semaphores
from models.timing.words import Word

BEAT = 16
QUEUED = 4
"""Chunks that wait between the generator and each of source, aligner and target."""
QUEUE = 2
"""Cycles through a queue."""
HELD = 17
"""Beats between their source and the aligner: the queue, and one in the register slice."""
ROW_READ = 3
"""Cycles from a row read to its answer."""
SLICE = 2
"""Beats in the register slice before the crossbar."""
AHEAD = 8
"""Cycles by which beats may be worked out before their time."""
Taken = Callable[[], None]
Done = Callable[[int], None]


@dataclass(slots=True)
class _Place:
    """A byte of memory (`space` None), or of a partition."""

    space: Space | None
    offset: int

    def moved(self, by: int) -> "_Place":
        """The place `by` bytes on."""
        return _Place(self.space, self.offset + by)


def _place(address: int) -> _Place:
    offset = address & addressing.OFFSET_MASK
    if (address >> addressing.UNIT_SHIFT) & 0xFF == addressing.UNIT_MEMORY:
        return _Place(None, offset)
    if offset >= addressing.CORE_PSUM_BASE:
        return _Place(Space.PSUM, offset % addressing.PSUM_PARTITION_STRIDE)
    return _Place(Space.SBUF, offset % addressing.SBUF_PARTITION_STRIDE)


@dataclass(slots=True)
class _Chunk:
    """Up to a page of one row: where it comes from and goes to, whether it is its row's first, and when it was given out."""

    source: _Place
    target: _Place
    bytes: int
    first: bool
    given: int = 0


@dataclass(slots=True)
class _Offer:
    engine: Engine
    word: Word
    taken: Taken
    done: Done


def _beats(offset: int, count: int) -> int:
    return (offset % BEAT + count + BEAT - 1) // BEAT


class Dma:
    """Takes DMA instructions of all streams in turn. `bytes` copied so far; `sync` busy with those of the sync engine."""

    def __init__(self, clock: Clock, memory: Memory, semaphores: Semaphores, port: ReadPort, banks: Banks):
        self.clock, self.memory, self.semaphores, self.port = clock, memory, semaphores, port
        self.banks = banks
        self._flows: deque[Iterator[int | None]] = deque()
        self._number = memory.ports.index(port)
        self.busy, self.sync = Busy(), Busy()
        self.bytes = 0
        self._offers: list[_Offer] = []
        self._last = -1
        self._free = 0
        self._now: _Offer | None = None
        self._accepted = 0
        self._chunks: Iterator[_Chunk] = iter(())
        self._next: _Chunk | None = None
        self._given = self._flowed = 0
        # cycles in which the target takes chunks, as far as they are known, and the chunk that waits for it
        self._targeted: list[int] = []
        self._waiting: deque[_Chunk] = deque()
        # cycles in which the latest beats left for the aligner
        self._consumed: deque[int] = deque(maxlen=HELD)
        self._target: _RowTarget | _MemoryTarget | None = None
        self._asked = self._align_last = self._target_last = self._end = 0
        self._write_channel, self._write_done = 0, 0
        self._blocked = self._held = False

    # --- instructions ----------------------------------------------------------------------------------------
    def offer(self, engine: Engine, word: Word, taken: Taken, done: Done) -> None:
        """A stream's DMA; see models.timing.sequencer.Target."""
        self._offers.append(_Offer(engine, word, taken, done))
        self._choose_from(self.clock.now)

    def _choose_from(self, cycle: int) -> None:
        if self._now is None and self._offers:
            self.clock.at(max(cycle, self._free), CHOOSE, self._choose)

    def _choose(self) -> None:
        if self._now is not None or not self._offers:
            return
        offer = min(self._offers, key=lambda o: (o.engine - self._last - 1) % len(Engine))
        self._offers.remove(offer)
        self._last, self._now, self._accepted = offer.engine, offer, self.clock.now
        raw = offer.word.raw
        self._chunks = self._cut(raw)
        self._next = next(self._chunks, None)
        self.bytes += raw["rows"] * raw["row_bytes"]
        self._given = self._flowed = 0
        self._targeted.clear()
        self._consumed.clear()
        self._end = self.clock.now + 1
        self._align_last = self._target_last = self._asked = 0
        offer.taken()
        if self._next is not None:
            self.clock.at(self.clock.now + 3, ACT, self._give)
        else:
            self._finish()

    def _cut(self, raw: dict[str, int]) -> Iterator[_Chunk]:
        """Rows cut where either side crosses a page."""
        for r in range(raw["rows"] if raw["row_bytes"] else 0):
            source, target = (
                _place((raw[name] + r * raw[f"{name}_stride"]) % (1 << 64)) for name in ("src", "dst")
            )
            left, first = raw["row_bytes"], True
            while left:
                size = min(left, PAGE - source.offset % PAGE, PAGE - target.offset % PAGE)
                yield _Chunk(source, target, size, first)
                source, target, left, first = source.moved(size), target.moved(size), left - size, False

    def _finish(self) -> None:
        """Everything has been written at `_end`: the update comes two cycles later."""
        self.clock.at(max(self._end, self.clock.now) + 1, ACT, self._done)

    def _done(self) -> None:
        offer = self._now
        assert offer is not None
        updated = self.semaphores.update(offer.word.update)
        self.busy.add(self._accepted, updated)
        if offer.engine == Engine.SYNC:
            self.sync.add(self._accepted, updated)
        offer.done(updated)
        self._now, self._free = None, updated + 1
        self._choose_from(updated + 1)

    # --- chunks ----------------------------------------------------------------------------------------------
    def _give(self) -> None:
        """Give out the next chunk, once there is a place for it."""
        now = self.clock.now
        if self._given >= QUEUED:
            # the chunk QUEUED before this one must have left its queue
            if self._given - QUEUED >= len(self._targeted):
                self._blocked = True
                return
            place = self._targeted[self._given - QUEUED] + 1
            if place > now:
                self.clock.at(place, ACT, self._give)
                return
        chunk, self._next = self._next, next(self._chunks, None)
        assert chunk is not None
        chunk.given = now
        self._given += 1
        self._waiting.append(chunk)
        self._target_next()
        there = max(now + QUEUE, self._asked)
        if chunk.source.space is None:
            self._asked = there + 1
            self.port.request(
                there + 1, chunk.source.offset, lambda first, ends: self._start_flow(chunk, first, ends)
            )
        else:
            self._start_flow(chunk, there, lambda _: None)
        if self._next is not None:
            self.clock.at(now + (4 if self._next.first else 1), ACT, self._give)

    def _target_next(self) -> None:
        """The target takes the oldest chunk that waits, once it has done with the one before."""
        if self._waiting and len(self._targeted) == self._flowed:
            chunk, taken = self._waiting[0], max(self._waiting[0].given + QUEUE, self._target_last)
            self._targeted.append(taken)
            self._target = (
                _MemoryTarget(self, chunk, taken)
                if chunk.target.space is None
                else _RowTarget(self.banks.writes[chunk.target.space], chunk, taken)
            )
            if self._blocked:
                self._blocked = False
                self.clock.at(max(self.clock.now, self._targeted[-1] + 1), ACT, self._give)

    def _start_flow(self, chunk: _Chunk, first: int, ends: Callable[[int], None]) -> None:
        """Let a chunk's beats flow from `first` on, behind those of the chunks before it."""
        self._flows.append(self._flow(chunk, first, ends))
        if len(self._flows) == 1:
            self._go_on()

    def _go_on(self) -> None:
        """Beats up to now; the rest when its time has come, because what else is in its banks then is not known before.

        A flow gives None where it waits for its turn at a channel; `_turn` goes on then."""
        while self._flows:
            for cycle in self._flows[0]:
                if cycle is None:
                    self._held = True
                    return
                if cycle > self.clock.now + AHEAD:
                    self.clock.at(cycle, ACT, self._go_on)
                    return
            self._flows.popleft()

    def _turn(self) -> None:
        """It is the turn of a burst at its channel."""
        if self._held:
            self._held = False
            self._go_on()

    def _flow(self, chunk: _Chunk, first: int, ends: Callable[[int], None]) -> Iterator[int | None]:
        """Beats from `first` on (at the crossbar, or asked for on the core) through aligner and target. Gives where it has come to."""
        ins, outs = _beats(chunk.source.offset, chunk.bytes), _beats(chunk.target.offset, chunk.bytes)
        prime = chunk.target.offset % BEAT < chunk.source.offset % BEAT
        source_space = chunk.source.space
        reads = self.banks.reads[source_space] if source_space is not None else None
        way = 1 + QUEUE if reads is None else ROW_READ + QUEUE
        there = chunk.given + QUEUE
        free = max(there, self._align_last) + 1
        target = self._target
        assert target is not None
        consumed, used, last = self._consumed, 0, 0
        at = max(first, self._asked) - 1 if reads is not None else first - 1

        def arrive() -> int:
            nonlocal at, used
            at += 1
            if len(consumed) == HELD:
                at = max(at, consumed[0] + 1)
            if reads is not None:
                at = reads.row(at, chunk.source.offset // BEAT + used)
            used += 1
            if used == ins and reads is None:
                ends(at)
            return at + way

        if prime:
            free = max(free, arrive())
            consumed.append(free)
            free += 1
        for _ in range(outs):
            fresh = used < ins
            if fresh:
                free = max(free, arrive())
            while target.full:
                yield None
            last = target.beat(free)
            if fresh:
                consumed.append(last)
            free = last + 1
            yield last
        while not target.open:
            yield None
        self._flowed += 1
        self._waiting.popleft()
        self._align_last = self._target_last = last
        if reads is not None:
            self._asked = at + 1
        self._end = max(self._end, target.answered())
        self._target_next()
        if self._next is None and self._given == self._flowed:
            self._finish()


class _RowTarget:
    """A chunk's beats go to a partition of SBUF or PSUM."""

    open, full = True, False

    def __init__(self, writes: Side, chunk: _Chunk, taken: int):
        self.writes, self.beat_number = writes, chunk.target.offset // BEAT
        self.place, self.last = taken + 1, 0

    def beat(self, cycle: int) -> int:
        """A beat offered from `cycle` on; the cycle in which it is written."""
        self.last = self.writes.row(max(cycle, self.place), self.beat_number)
        self.beat_number += 1
        return self.last

    def answered(self) -> int:
        """The cycle in which nothing is under way any more."""
        return self.last + 1


class _MemoryTarget:
    """A chunk's write burst: its address first, then data through the register slice to the channel."""

    def __init__(self, dma: Dma, chunk: _Chunk, taken: int):
        memory = dma.memory
        self.dma, number = dma, memory.channel(chunk.target.offset)
        self.writes = memory.channels[number].writes
        address = taken + 2
        if number != dma._write_channel:
            address = max(address, dma._write_done + 1)
            dma._write_channel = number
        self.place = taken + 2
        self.sent = [0, 0]
        # beats in the register slice before their burst's turn
        self.early: list[int] = []
        self.write = Write(dma._number, self._opened)
        self.writes.request(address, self.write)

    @property
    def open(self) -> bool:
        """It is this burst's turn at its channel."""
        return self.write.open is not None

    @property
    def full(self) -> bool:
        """The slice takes no beat before that turn."""
        return not self.open and len(self.early) == SLICE

    def _opened(self) -> None:
        for cycle in self.early:
            self._send(cycle)
        self.dma._turn()

    def _send(self, cycle: int) -> None:
        assert self.write.open is not None
        self.sent = [self.sent[-1], max(self.write.open, cycle + 1)]
        self.write.open = self.sent[-1] + 1

    def beat(self, cycle: int) -> int:
        """A beat offered from `cycle` on; the cycle in which the slice takes it."""
        cycle = max(cycle, self.place, self.sent[-SLICE] + 1)
        if self.open:
            self._send(cycle)
        else:
            self.early.append(cycle)
        return cycle

    def answered(self) -> int:
        """The cycle in which its answer has been counted."""
        self.writes.over(self.sent[-1])
        self.dma._write_done = self.sent[-1] + self.dma.memory.latency
        return self.dma._write_done + 2
