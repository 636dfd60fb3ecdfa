"""Psum: columns that add or write bytes, beside traffic on all other ports; every read, every done, bounded waiting with pauses obeyed."""

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np

from models import array
from rtl.memory.psum import PSUM_HAZARD
from sim.runner import params
from tb.memory.traffic import Bench, LaneReader, LaneWriter, Memory, RowReader, RowWriter, hot_spot, uniform

DONE = PSUM_HAZARD
"""Cycles from a column to its `done`."""
PATTERNS = np.array(
    [0, 0x80000000, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x3F800000, 0xBF800000],
    dtype=np.uint32,
)


class Columns:
    """Drives the accumulate port: `rate` columns a cycle from `start` on; keeps hazards off as the tensor engine must."""

    def __init__(self, bench: Bench, words: int, partitions: int):
        self.bench, self.dut, self.words, self.p = bench, bench.dut, words, partitions
        self.rate, self.obey = 0.0, True
        self.column: tuple[int, int, int, int, list[int]] | None = None
        self.recent: deque[int] = deque([-1] * (PSUM_HAZARD - 1), maxlen=PSUM_HAZARD - 1)
        self.writes: deque[tuple[int, int, int, int, list[int]]] = deque()
        self.dones: deque[int] = deque()
        self.next = 0
        self.sent = self.pauses = 0
        bench.each_drive.append(self.drive)
        bench.each_cycle.append(self.observe)

    def drive(self, cycle: int) -> None:
        self.column = None
        if random.random() < self.rate and not (self.obey and self.paused):
            addr = self.next % self.words if random.random() < 0.8 else random.randrange(self.words)
            self.next += 1
            add = int(random.random() < 0.6)
            if add and addr in self.recent:
                add = 0
            data = [
                int(PATTERNS[random.randrange(len(PATTERNS))])
                if random.random() < 0.2
                else random.getrandbits(32) & 0xBFFFFFFF
                for _ in range(self.p)
            ]
            if add:
                data = [0x7FC00000 if d & 0x7FFFFFFF > 0x7F800000 else d for d in data]
            mask = 15 if add else random.choice([15, 15, 1, 4, 12, random.getrandbits(4)])
            lanes = random.choice([(1 << self.p) - 1, random.getrandbits(self.p)])
            self.column = (addr, add, mask, lanes, data)
        self.recent.append(self.column[0] if self.column else -1)
        self.dut.accumulate__valid.value = int(self.column is not None)
        if self.column:
            addr, add, mask, lanes, data = self.column
            bits = (self.words_total() - 1).bit_length()
            packed = sum(d << 32 * i for i, d in enumerate(data))
            self.dut.accumulate__column.value = (
                addr | add << bits | mask << bits + 1 | lanes << bits + 5 | packed << bits + 5 + self.p
            )

    def words_total(self) -> int:
        return self.bench.memory.depth

    paused = False

    def observe(self, cycle: int) -> None:
        """After the reads of this cycle, before the other ports' writes."""
        self.paused = bool(int(self.dut.accumulate__pause.value))
        self.pauses += self.paused
        due = bool(self.dones) and self.dones[0] == cycle
        assert int(self.dut.accumulate__done.value) == int(due), f"done in cycle {cycle}"
        if due:
            self.dones.popleft()
        if self.column:
            addr, add, mask, lanes, data = self.column
            new = np.array(data, dtype=np.uint32)
            if add:
                old = np.array([self.bench.memory.words[p][addr] for p in range(self.p)], dtype=np.uint32)
                new = array.accumulate(old.view(np.float32), new.view(np.float32)).view(np.uint32)
            self.writes.append((cycle + DONE - 1, addr, mask, lanes, new.tolist()))
            self.dones.append(cycle + DONE)
            self.sent += 1
        while self.writes and self.writes[0][0] == cycle:
            _, addr, mask, lanes, values = self.writes.popleft()
            for p in range(self.p):
                if lanes >> p & 1:
                    self.bench.memory.write(p, addr, values[p], mask)


class PsumBench(Bench):
    """Columns in the lower half, other writes in the upper half, reads everywhere."""

    def __init__(self, dut: Any):
        words = params()["bytes"] // 4
        partitions = params()["partitions"]
        super().__init__(dut, Memory(partitions, words))
        half = words // 2
        upper = lambda: half + random.randrange(half)  # noqa: E731
        self.readers = [
            LaneReader(dut, n, self.memory, uniform(words), limit=0) for n in ("vector0", "vector1", "scalar")
        ]
        self.readers.append(RowReader(dut, "row_read", self.memory, uniform(words), limit=0))
        self.writers = [
            LaneWriter(dut, "vector_w", self.memory, upper, limit=0),
            LaneWriter(dut, "scalar_w", self.memory, upper, limit=0),
            RowWriter(dut, "row_write", self.memory, upper, limit=0),
        ]
        dut.accumulate__valid.value = 0
        self.columns = Columns(self, half, partitions)

    async def quiet(self) -> None:
        self.columns.rate = 0.0
        await self.drain()
        await self.run(2 * DONE)
        assert not self.columns.writes


async def _started(dut: Any) -> PsumBench:
    bench = PsumBench(dut)
    await bench.start()
    await bench.fill()
    for words in bench.memory.words:
        for value in words:
            assert 0 <= value < 1 << 32
    return bench


@cocotb.test()
async def adds_beside_traffic(dut: Any) -> None:
    """Everything at once, in several mixes."""
    bench = await _started(dut)
    words = bench.memory.depth
    for mix in range(8):
        for port in (*bench.readers, *bench.writers):
            port.left, port.rate = None, random.choice([0.2, 0.6, 1.0])
        for reader in bench.readers:
            reader.addresses = random.choice([uniform(words), hot_spot(words)])  # type: ignore[attr-defined]
        bench.columns.rate = (0.3, 1.0)[mix % 2]
        await bench.run(200)
        await bench.quiet()
    assert bench.columns.sent > 600


@cocotb.test()
async def same_word_at_the_least_distance(dut: Any) -> None:
    """Columns that add to one word every PSUM_HAZARD cycles: none is lost."""
    bench = await _started(dut)
    word = random.randrange(bench.columns.words)
    for cycle in range(PSUM_HAZARD * 40):
        bench.columns.rate = float(cycle % PSUM_HAZARD == 0)
        bench.columns.next = word
        await bench.cycle()
    await bench.quiet()
    bench.readers[0].addresses, bench.readers[0].left = (lambda: word), 3  # type: ignore[attr-defined]
    await bench.run(12)
    assert bench.readers[0].answers >= 3


@cocotb.test()
async def pause_lets_others_in(dut: Any) -> None:
    """Columns in every cycle, obeying pause: row reads and vector reads wait a bounded time."""
    bench = await _started(dut)
    limit = params()["starvation_limit"]
    for port in bench.readers:
        port.left, port.rate = None, 1.0
    bench.columns.rate = 1.0
    await bench.run(30 * limit)
    for port in bench.readers:
        assert port.accepted > 10
        assert port.worst <= limit + 3 * len(bench.readers) + DONE
    await bench.quiet()
