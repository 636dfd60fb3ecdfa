"""Lane reader and lane writer between a bench's memories and streams."""

import os
import random
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models.access import AccessPattern, row
from models.formats import DType, dtype_bytes
from models.isa import Space
from sim.runner import params
from tb.access.patterns import packed, random_pattern, start
from tb.lib.lane_memory import LaneMemory, LanePorts

P = 8
SPACES = {"sbuf": Space.SBUF, "psum": Space.PSUM}


class Bench:
    """Memories behind the ports that the configuration has."""

    def __init__(self, dut: Any, direction: str):
        self.dut = dut
        self.memories = {n: LaneMemory(P, 4 << bits) for n, bits in params()["spaces"].items()}
        for memory in self.memories.values():
            memory.data[:] = np.frombuffer(random.randbytes(memory.data.size), dtype=np.uint8).reshape(
                memory.data.shape
            )
        self.ports = LanePorts(dut, *((self.memories, {}) if direction == "read" else ({}, self.memories)))
        dut.start__valid.value = 0
        dut.clear.value = 0

    async def begin(self) -> None:
        Clock(self.dut.clk, 10, unit="ns", impl="gpi").start()
        self.dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    def pattern(self, inside: bool = True, most: int = 60) -> AccessPattern:
        name = random.choice(list(self.memories))
        limit = self.memories[name].data.shape[1]
        part = random.choice(range(0, P, P // 4))
        return random_pattern(random, limit, space=SPACES[name], parts=part, most=most, inside=inside)  # type: ignore[arg-type]

    def memory(self, pattern: AccessPattern) -> LaneMemory:
        return self.memories["sbuf" if pattern.space == Space.SBUF else "psum"]

    def bad(self, pattern: AccessPattern) -> int | None:
        """Position of the first element outside its partition."""
        limit = self.memory(pattern).data.shape[1]
        for n, a in enumerate(pattern.addresses().tolist()):
            if a < 0 or a + dtype_bytes(pattern.dtype) > limit:
                return n
        return None

    def element(self, pattern: AccessPattern, address: int, lane: int) -> int:
        memory, size = self.memory(pattern).data, dtype_bytes(pattern.dtype)
        return int.from_bytes(memory[(pattern.part + lane) % P, address : address + size].tobytes(), "little")


class Reading(Bench):
    """Checks items as they come."""

    def __init__(self, dut: Any):
        super().__init__(dut, "read")
        self.todo: list[AccessPattern] = []
        self.expected: list[tuple[list[int], bool]] = []
        self.fault: int | None = None
        self.dead = False
        self.rate = 1.0
        self.items = 0
        self.cycles = 0

    def accept(self, pattern: AccessPattern) -> None:
        addresses, bad = pattern.addresses().tolist(), self.bad(pattern)
        for n, a in enumerate(addresses[:bad]):
            self.expected.append(
                ([self.element(pattern, a, lane) for lane in range(P)], n == len(addresses) - 1)
            )
        if bad is not None:
            self.fault = addresses[bad] % (1 << 32)

    async def cycle(self, *, clear: bool = False) -> None:
        dut = self.dut
        await FallingEdge(dut.clk)
        dut.clear.value = int(clear)
        dut.start__valid.value = int(bool(self.todo))
        if self.todo:
            dut.start__payload.value = start(self.todo[0])
        ready = random.random() < self.rate
        dut.out__ready.value = int(ready)
        self.ports.drive()
        await ReadOnly()
        if self.todo and int(dut.start__ready.value) and not clear:
            self.accept(self.todo.pop(0))
        if int(dut.error_valid.value):
            assert self.fault is not None, "a fault that should not be"
            assert not self.dead
            assert int(dut.error_addr.value) == self.fault
            self.fault, self.dead = None, True
        if int(dut.out__valid.value):
            want, last = self.expected[0]
            payload = int(dut.out__payload.value)
            got = [payload >> 32 * lane & 0xFFFFFFFF for lane in range(P)]
            assert (got, bool(payload >> 32 * P)) == (want, last)
            if ready:
                self.expected.pop(0)
                self.items += 1
        self.ports.settle()
        self.cycles += 1

    async def finish(self, most: int = 4000) -> None:
        for _ in range(most):
            settled = self.dead or int(self.dut.idle.value)
            if not self.todo and not self.expected and self.fault is None and settled:
                return
            await self.cycle()
        raise AssertionError(
            f"stuck: {len(self.todo)} patterns, {len(self.expected)} items, fault {self.fault}"
        )

    async def drop(self) -> None:
        """Clear, and wait until what was asked for has come back."""
        self.expected, self.fault, kept = [], None, self.todo
        self.todo = []
        await self.cycle(clear=True)
        self.expected, self.fault, self.dead = [], None, False
        await self.finish()
        self.todo = kept


@cocotb.test(skip=os.environ.get("TESELA_PARAMS", "").find('"read"') < 0)
async def reads(dut: Any) -> None:
    """Random patterns, grants, answers and takers; faults; every item exact."""
    bench = Reading(dut)
    await bench.begin()
    for rate, jitter, taker in ((1.0, 0, 1.0), (0.5, 3, 0.7), (0.9, 0, 0.3)):
        bench.ports.weather(rate, jitter)
        bench.rate = taker
        bench.todo = [bench.pattern() for _ in range(50)]
        await bench.finish()
        for _ in range(8):
            pattern = bench.pattern(inside=False)
            bench.todo = [pattern]
            faulty = bench.bad(pattern) is not None
            await bench.finish()
            if faulty:
                assert not int(dut.start__ready.value)
                await bench.drop()
    assert bench.items > 500


@cocotb.test(skip=os.environ.get("TESELA_PARAMS", "").find('"read"') < 0)
async def reads_are_dropped_by_clear(dut: Any) -> None:
    """Clear at any moment, with answers still on their way; then the next pattern is right."""
    bench = Reading(dut)
    await bench.begin()
    bench.ports.weather(0.6, 4)
    for _ in range(40):
        bench.todo = [bench.pattern() for _ in range(3)]
        for _ in range(random.randrange(25)):
            await bench.cycle()
        bench.todo = []
        await bench.drop()
    bench.todo = [bench.pattern()]
    await bench.finish()


@cocotb.test(skip=os.environ.get("TESELA_PARAMS", "").find('"read"') < 0)
async def reads_at_full_rate(dut: Any) -> None:
    """One element a cycle, the next pattern right behind; a word is read once for all its elements."""
    bench = Reading(dut)
    await bench.begin()
    name = next(iter(bench.memories))
    for dtype in (DType.FP32, DType.BF16, DType.E4M3):
        size = dtype_bytes(dtype)
        bench.todo = [row(0, dtype, 40, space=SPACES[name]), row(64, dtype, 40, space=SPACES[name])]
        first, before = bench.cycles, bench.ports.reads[0].accepted
        await bench.finish()
        assert bench.cycles - first <= 80 + 10
        assert bench.ports.reads[0].accepted - before == 2 * 40 * size // 4
    bench.todo = [row(12, DType.FP32, 8, stride=0, space=SPACES[name])]
    before = bench.ports.reads[0].accepted
    await bench.finish()
    assert bench.ports.reads[0].accepted - before == 1


class Writing(Bench):
    """Applies patterns to a copy of the memories."""

    def __init__(self, dut: Any):
        super().__init__(dut, "write")
        self.rate = 1.0
        self.copies = {n: m.data.copy() for n, m in self.memories.items()}
        self.cycles = 0

    async def write(self, pattern: AccessPattern, parts: int, *, give_up_after: int | None = None) -> None:
        dut = self.dut
        addresses, bad = pattern.addresses().tolist(), self.bad(pattern)
        items = [[random.getrandbits(32) for _ in range(P)] for _ in addresses]
        skips = [random.choice([0, 0, (1 << P) - 1, random.getrandbits(P)]) for _ in addresses]
        name = "sbuf" if pattern.space == Space.SBUF else "psum"
        size = dtype_bytes(pattern.dtype)
        started = sent = 0
        done = fault = False
        for n in range(4000):
            await FallingEdge(dut.clk)
            if n == give_up_after:
                dut.clear.value = 1
                dut.start__valid.value = dut.data__valid.value = 0
                self.ports.drive()
                await ReadOnly()
                self.ports.settle()
                await FallingEdge(dut.clk)
                dut.clear.value = 0
                self.ports.drive()
                await ReadOnly()
                self.ports.settle()
                while not int(dut.idle.value):
                    await FallingEdge(dut.clk)
                    self.ports.drive()
                    await ReadOnly()
                    self.ports.settle()
                self.copies = {k: m.data.copy() for k, m in self.memories.items()}
                return
            dut.start__valid.value = int(not started)
            dut.start__payload.value = packed(pattern) | (size.bit_length() - 1) << 256 | parts << 258
            valid = sent < len(items) and random.random() < self.rate
            dut.data__valid.value = int(valid)
            if valid:
                dut.data__payload.value = sum(v << 32 * i for i, v in enumerate(items[sent]))
                dut.skip.value = skips[sent]
            self.ports.drive()
            await ReadOnly()
            assert not (done and int(dut.done.value)), "done comes once"
            done = done or bool(int(dut.done.value))
            if int(dut.error_valid.value):
                assert bad is not None
                assert int(dut.error_addr.value) == addresses[bad] % (1 << 32)
                fault = True
            if valid and int(dut.data__ready.value):
                for lane in (i for i in range(parts) if not skips[sent] >> i & 1):
                    at = self.copies[name][(pattern.part + lane) % P]
                    at[addresses[sent] : addresses[sent] + size] = np.frombuffer(
                        items[sent][lane].to_bytes(4, "little")[:size], dtype=np.uint8
                    )
                sent += 1
            if not started and int(dut.start__ready.value):
                started = 1
            self.ports.settle()
            self.cycles += 1
            if done or (
                fault
                and self.ports.quiet
                and int(dut.data__ready.value) == 0
                and n > 20
                and sent == (bad or 0)
            ):
                break
        else:
            raise AssertionError("stuck")
        assert done == (bad is None)
        assert sent == (len(items) if bad is None else bad)

    async def check(self) -> None:
        for _ in range(6):
            await FallingEdge(self.dut.clk)
            self.dut.data__valid.value = 0
            self.dut.start__valid.value = 0
            self.ports.drive()
            await ReadOnly()
            self.ports.settle()
        for name, memory in self.memories.items():
            assert np.array_equal(memory.data, self.copies[name]), name


@cocotb.test(skip=os.environ.get("TESELA_PARAMS", "").find('"write"') < 0)
async def writes(dut: Any) -> None:
    """Random patterns, lanes, grants and gaps: the whole memory is what a copy is."""
    bench = Writing(dut)
    await bench.begin()
    for rate, giver in ((1.0, 1.0), (0.5, 0.7), (0.9, 0.3)):
        bench.ports.weather(rate)
        bench.rate = giver
        for _ in range(40):
            await bench.write(bench.pattern(), random.randint(1, P))
        await bench.check()
        for _ in range(6):
            pattern = bench.pattern(inside=False, most=30)
            await bench.write(pattern, P)
            await bench.check()
            if bench.bad(pattern) is not None:
                await bench.write(bench.pattern(), 1, give_up_after=0)
        await bench.check()


@cocotb.test(skip=os.environ.get("TESELA_PARAMS", "").find('"write"') < 0)
async def writes_are_dropped_by_clear(dut: Any) -> None:
    """Clear at any moment; what comes then is right."""
    bench = Writing(dut)
    await bench.begin()
    bench.ports.weather(0.5)
    for _ in range(30):
        await bench.write(bench.pattern(most=60), P, give_up_after=random.randrange(1, 12))
        await bench.write(bench.pattern(most=10), random.randint(1, P))
        await bench.check()


@cocotb.test(skip=os.environ.get("TESELA_PARAMS", "").find('"write"') < 0)
async def writes_at_full_rate(dut: Any) -> None:
    """One element a cycle."""
    bench = Writing(dut)
    await bench.begin()
    name = next(iter(bench.memories))
    first = bench.cycles
    await bench.write(row(0, DType.BF16, 100, space=SPACES[name]), P)
    assert bench.cycles - first <= 100 + 5
    await bench.check()
