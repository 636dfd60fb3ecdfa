"""Port drivers, golden memory and scoreboard for the on-core memories' benches.

A bench calls `Bench.cycle()` once per clock cycle: at the falling edge every port decides what it asks for, then all outputs
are read with everything settled, which is exactly what the next rising edge sees.
"""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

LANE_LATENCY = 2
ROW_LATENCY = 3

Addresses = Callable[[], int]


class Memory:
    """Golden contents: `words[partition][word]`."""

    def __init__(self, partitions: int, words: int):
        self.partitions, self.depth = partitions, words
        self.words = [[0] * words for _ in range(partitions)]

    def write(self, part: int, addr: int, data: int, mask: int) -> None:
        keep = sum(0xFF << 8 * b for b in range(4) if not mask >> b & 1)
        self.words[part][addr] = self.words[part][addr] & keep | data & ~keep & 0xFFFFFFFF

    def lanes(self, addr: int) -> int:
        return sum(self.words[p][addr] << 32 * p for p in range(self.partitions))

    def row(self, part: int, beat: int) -> int:
        return sum(self.words[part][4 * beat + w] << 32 * w for w in range(4))


class Port(ABC):
    """A requester: offers payloads from `payload()` with probability `rate`, counts refusals, keeps stream rules."""

    def __init__(self, dut: Any, name: str, memory: Memory, *, rate: float = 1.0, limit: int | None = None):
        self.name, self.memory, self.rate, self.left = name, memory, rate, limit
        self.valid = getattr(dut, f"{name}__req__valid")
        self.ready = getattr(dut, f"{name}__req__ready")
        self.payload_pin = getattr(dut, f"{name}__req__payload")
        self.payload: int | None = None
        self.accepted = self.waited = self.worst = self.refused = 0
        self.valid.value = 0

    @abstractmethod
    def offer(self) -> int:
        """A new request, as the payload's bits."""

    def drive(self) -> None:
        if self.payload is None and self.left != 0 and random.random() < self.rate:
            self.payload = self.offer()
            self.payload_pin.value = self.payload
            if self.left is not None:
                self.left -= 1
        self.valid.value = int(self.payload is not None)

    def taken(self) -> int | None:
        """The payload accepted at this cycle's rising edge, if any."""
        if self.payload is None:
            return None
        if not int(self.ready.value):
            self.waited += 1
            self.refused += 1
            self.worst = max(self.worst, self.waited)
            return None
        payload, self.payload, self.waited = self.payload, None, 0
        self.accepted += 1
        return payload


class Reader(Port):
    """A read port: checks that every answer comes after exactly `latency` cycles and holds exactly the expected bits."""

    latency = 0

    def __init__(
        self,
        dut: Any,
        name: str,
        memory: Memory,
        addresses: Addresses,
        *,
        rate: float = 1.0,
        limit: int | None = None,
    ):
        super().__init__(dut, name, memory, rate=rate, limit=limit)
        self.addresses = addresses
        self.rsp_valid, self.rsp = getattr(dut, f"{name}__rsp_valid"), getattr(dut, f"{name}__rsp")
        self.expected: deque[tuple[int, int, int]] = deque()
        self.answers = 0

    @abstractmethod
    def golden(self, payload: int) -> int:
        """What the read must give now."""

    def accept(self, cycle: int) -> None:
        payload = self.taken()
        if payload is not None:
            self.expected.append((cycle + self.latency, payload, self.golden(payload)))

    def check(self, cycle: int) -> None:
        due = bool(self.expected) and self.expected[0][0] == cycle
        assert int(self.rsp_valid.value) == int(due), f"{self.name}: rsp_valid is not {due} in cycle {cycle}"
        if due:
            _, payload, want = self.expected.popleft()
            got = int(self.rsp.value)
            assert got == want, f"{self.name}: request {payload:#x} gave {got:#x}, not {want:#x}"
            self.answers += 1


class LaneReader(Reader):
    latency = LANE_LATENCY

    def offer(self) -> int:
        return self.addresses() % self.memory.depth

    def golden(self, payload: int) -> int:
        return self.memory.lanes(payload)


class RowReader(Reader):
    latency = ROW_LATENCY

    def offer(self) -> int:
        part = random.randrange(self.memory.partitions)
        return self.addresses() % self.memory.depth // 4 | part << (self.memory.depth // 4 - 1).bit_length()

    def golden(self, payload: int) -> int:
        bits = (self.memory.depth // 4 - 1).bit_length()
        return self.memory.row(payload >> bits, payload & (1 << bits) - 1)


def random_mask(bits: int) -> int:
    """All ones, nothing, or any bits."""
    return random.choice([(1 << bits) - 1, 0, random.getrandbits(bits), random.getrandbits(bits)])


class Writer(Port):
    def __init__(
        self,
        dut: Any,
        name: str,
        memory: Memory,
        addresses: Addresses,
        *,
        rate: float = 1.0,
        limit: int | None = None,
    ):
        super().__init__(dut, name, memory, rate=rate, limit=limit)
        self.addresses = addresses

    @abstractmethod
    def apply(self, payload: int) -> None:
        """Do the write."""

    def accept(self, cycle: int) -> None:
        payload = self.taken()
        if payload is not None:
            self.apply(payload)


class LaneWriter(Writer):
    def offer(self) -> int:
        lanes = self.memory.partitions
        addr = self.addresses() % self.memory.depth
        return self.pack(addr, random_mask(4), random_mask(lanes), random.getrandbits(32 * lanes))

    def pack(self, addr: int, mask: int, lanes: int, data: int) -> int:
        bits = (self.memory.depth - 1).bit_length()
        return addr | mask << bits | lanes << bits + 4 | data << bits + 4 + self.memory.partitions

    def apply(self, payload: int) -> None:
        n, bits = self.memory.partitions, (self.memory.depth - 1).bit_length()
        addr, mask = payload & (1 << bits) - 1, payload >> bits & 15
        lanes, data = payload >> bits + 4 & (1 << n) - 1, payload >> bits + 4 + n
        for p in range(n):
            if lanes >> p & 1:
                self.memory.write(p, addr, data >> 32 * p & 0xFFFFFFFF, mask)


class RowWriter(Writer):
    def offer(self) -> int:
        part = random.randrange(self.memory.partitions)
        return self.pack(
            self.addresses() % self.memory.depth // 4, part, random_mask(16), random.getrandbits(128)
        )

    def _bits(self) -> tuple[int, int]:
        return (self.memory.depth // 4 - 1).bit_length(), (self.memory.partitions - 1).bit_length()

    def pack(self, beat: int, part: int, strobe: int, data: int) -> int:
        addr, parts = self._bits()
        return beat | part << addr | strobe << addr + parts | data << addr + parts + 16

    def apply(self, payload: int) -> None:
        addr, parts = self._bits()
        beat, part = payload & (1 << addr) - 1, payload >> addr & (1 << parts) - 1
        strobe, data = payload >> addr + parts & 0xFFFF, payload >> addr + parts + 16
        for w in range(4):
            self.memory.write(part, 4 * beat + w, data >> 32 * w & 0xFFFFFFFF, strobe >> 4 * w & 15)


class Script:
    """Addresses one after the other: `start`, then steps of `step`."""

    def __init__(self, start: int, step: int = 1):
        self.next, self.step = start, step

    def __call__(self) -> int:
        addr, self.next = self.next, self.next + self.step
        return addr


def uniform(depth: int) -> Addresses:
    return lambda: random.randrange(depth)


def hot_spot(depth: int, words: int = 3) -> Addresses:
    """A few words that everybody wants."""
    base = random.Random(7).randrange(depth)
    return lambda: base + random.choice([0, 1, 8][:words])


class Bench:
    """Steps the design and all ports; owns the clock."""

    def __init__(self, dut: Any, memory: Memory):
        self.dut, self.memory = dut, memory
        self.readers: list[Reader] = []
        self.writers: list[Writer] = []
        self.cycles = 0
        self.each_cycle: list[Callable[[int], None]] = []
        """Called with everything settled, after the readers' and before the writers' acceptance."""
        self.each_drive: list[Callable[[int], None]] = []

    async def start(self) -> None:
        Clock(self.dut.clk, 10, unit="ns", impl="gpi").start()
        cocotb.log.info("seed %d", cocotb.RANDOM_SEED)
        self.dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def cycle(self) -> None:
        await FallingEdge(self.dut.clk)
        for port in (*self.readers, *self.writers):
            port.drive()
        for call in self.each_drive:
            call(self.cycles)
        await ReadOnly()
        for reader in self.readers:
            reader.check(self.cycles)
            reader.accept(self.cycles)
        for call in self.each_cycle:
            call(self.cycles)
        for writer in self.writers:
            writer.accept(self.cycles)
        self.cycles += 1

    async def run(self, cycles: int) -> None:
        for _ in range(cycles):
            await self.cycle()

    async def drain(self, most: int = 2000) -> None:
        """No new requests; wait until all are accepted and answered."""
        ports = (*self.readers, *self.writers)
        for port in ports:
            port.left = 0
        for _ in range(most):
            if all(p.payload is None for p in ports) and not any(r.expected for r in self.readers):
                return
            await self.cycle()
        raise AssertionError("ports did not drain")

    async def fill(self, name: str = "row_write") -> None:
        """Write the whole memory with random words, through the row write port alone."""
        everything = [(p, b) for p in range(self.memory.partitions) for b in range(self.memory.depth // 4)]
        filler = RowWriter(self.dut, name, self.memory, lambda: 0, limit=len(everything))
        payloads = iter([filler.pack(b, p, 0xFFFF, random.getrandbits(128)) for p, b in everything])
        filler.offer = lambda: next(payloads)  # type: ignore[method-assign]
        saved, self.readers, self.writers = (self.readers, self.writers), [], [filler]
        while filler.left or filler.payload is not None:
            await self.cycle()
        self.readers, self.writers = saved
        await FallingEdge(self.dut.clk)
        filler.valid.value = 0
