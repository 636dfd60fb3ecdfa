"""GpsimdEngine against the functional model: memory at every update, faults, clears, cycles."""

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models import encoding
from models.fault import Fault
from models.gpsimd import GPSIMD_OPS
from models.isa import Engine, ErrorCode, Opcode
from models.machine import Core
from sim.runner import params
from tb.gpsimd.instructions import APS, illegal, plant, random_instruction
from tb.lib.lane_memory import LaneMemory, LanePorts
from tb.vector.instructions import new_core
from tb.vector.mistakes import put_ap
from tb.vector.operands import CONFIG, random_contents

OTHERS = tuple(o for o in GPSIMD_OPS if o != Opcode.LOCAL_GATHER)
"""Opcodes that take any contents."""


def run(core: Core, word: bytes) -> None:
    """One instruction on the model."""
    core.execute(Engine.GPSIMD, word)


class Bench:
    """Issues words, steps the engine, runs the functional model at each update."""

    def __init__(self, dut: Any):
        self.dut = dut
        self.memory = LaneMemory(CONFIG.partitions, CONFIG.sbuf.bytes_per_partition)
        self.ports = LanePorts(dut, {"sbuf": self.memory}, {"sbuf_w": self.memory})
        self.core: Core = new_core()
        self.queue: deque[bytes] = deque()
        self.sent: deque[tuple[bytes, int]] = deque()
        self.offered: int | None = None
        self.index = self.cycles = self.updates = 0
        self.fault: tuple[int, int, int, int] | None = None
        self.update_rate = 1.0

    async def start(self) -> None:
        """Clock, reset, contents."""
        Clock(self.dut.clk, 10, unit="ns", impl="gpi").start()
        for pin in (self.dut.ctl__issue__valid, self.dut.ctl__update__ready, self.dut.ctl__clear):
            pin.value = 0
        self.dut.rst.value = 1
        for _ in range(3):
            self.ports.drive()
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.fill()

    def fill(self) -> None:
        """New contents everywhere."""
        self.memory.data[:] = random_contents(self.memory.data.shape)
        self.adopt()

    def adopt(self) -> None:
        """The model takes what the engine left."""
        self.core.sbuf[:] = self.memory.data

    def enqueue(self, *words: bytes, wrong: bool = False) -> None:
        """Instructions to be issued, the first of them with indices, which nothing before it can change."""
        if words[0][0] == Opcode.LOCAL_GATHER:
            plant(words[0], self.memory.data, wrong=wrong)
            self.adopt()
        self.queue.extend(words)

    def weather(self) -> None:
        """Other rates of grants, answers and updates."""
        self.ports.weather(random.choice([1.0, 0.7, 0.3]), random.choice([0, 3]))
        self.update_rate = random.choice([1.0, 0.4])

    async def cycle(self, *, clear: bool = False) -> None:
        """One clock cycle."""
        dut = self.dut
        await FallingEdge(dut.clk)
        self.ports.drive()
        if self.offered is None and self.queue and random.random() < 0.7:
            self.offered = (
                int.from_bytes(self.queue[0], "little") | self.index << 1024 | int(Engine.GPSIMD) << 1056
            )
            dut.ctl__issue__payload.value = self.offered
        dut.ctl__issue__valid.value = int(self.offered is not None)
        ready = int(random.random() < self.update_rate)
        dut.ctl__update__ready.value = ready
        dut.ctl__clear.value = int(clear)
        await ReadOnly()
        if self.sent and self.fault is None:
            assert int(dut.ctl__busy.value), "not busy with an instruction under way"
        if int(dut.ctl__update__valid.value) and ready and not clear:
            self.update(int(dut.ctl__update__payload.value))
        if int(dut.ctl__error_valid.value):
            assert self.fault is None, "a second fault"
            e = int(dut.ctl__error.value)
            self.fault = (e & 255, e >> 8 & 255, e >> 16 & 0xFFFFFFFF, e >> 48)
        if self.offered is not None and int(dut.ctl__issue__ready.value) and not clear:
            self.sent.append((self.queue.popleft(), self.index))
            self.index, self.offered = self.index + 1, None
        self.ports.settle()
        self.cycles += 1

    def update(self, payload: int) -> None:
        """The oldest instruction is done: memory and update are the model's."""
        word, _ = self.sent.popleft()
        raw = encoding.raw_fields(word)
        want = raw["update_mode"] | raw["update_sem"] << 2 | (raw["update_value"] & 0xFFFFFFFF) << 10
        assert payload == want, f"update {payload:#x}, not {want:#x}"
        run(self.core, word)
        wrong = np.argwhere(self.memory.data != self.core.sbuf)
        assert not wrong.size, f"sbuf{wrong[0].tolist()} after {encoding.decode(word)}"
        self.updates += 1

    async def finish(self, most: int = 60000) -> None:
        """Until nothing is left, or a fault."""
        for _ in range(most):
            if self.fault is not None or not (self.queue or self.sent):
                return
            await self.cycle()
        raise AssertionError(f"stuck with {len(self.sent)} instructions")

    async def clear(self) -> None:
        """Clear, then let writes that wait go."""
        await self.cycle(clear=True)
        self.sent.clear()
        self.queue.clear()
        self.offered, self.fault = None, None
        while not self.ports.quiet:
            await self.cycle()
        self.adopt()


@cocotb.test()
async def random_instructions(dut: Any) -> None:
    """Every opcode, then any, back to back under changing weather."""
    bench = Bench(dut)
    await bench.start()
    total = max(params()["instructions"], 1)
    for i in range(total):
        bench.weather()
        if random.random() < 0.3:
            bench.fill()
        behind = random.choice([0, 0, 2])
        bench.enqueue(
            random_instruction(GPSIMD_OPS[i % len(GPSIMD_OPS)]),
            *(random_instruction(kinds=OTHERS) for _ in range(behind)),
        )
        await bench.finish()
        assert bench.fault is None, f"fault {bench.fault}"
    assert bench.updates >= total


@cocotb.test()
async def faults(dut: Any) -> None:
    """Illegal fields, accesses and indices out of range: the model's error, then a clear and on again."""
    bench = Bench(dut)
    await bench.start()
    seen = set()
    for n in range(max(params()["instructions"], 6)):
        bench.weather()
        bench.fill()
        before = [random_instruction(kinds=OTHERS, size=4)] if n % 3 == 0 else []
        if n % 3 == 0:
            word = illegal(random_instruction())
        elif n % 3 == 1:
            word = random_instruction(size=random.choice([1, 5, 12, 24]))
            if word[0] == Opcode.LOCAL_GATHER:
                plant(word, bench.memory.data)
            ap = random.choice(APS[Opcode(word[0])])
            word = put_ap(word, ap, "addr", random.choice([1 << 20, (1 << 32) - 8]))
        else:
            word = random_instruction(Opcode.LOCAL_GATHER, random.choice([1, 5, 12, 24]))
            plant(word, bench.memory.data, wrong=True)
        bench.adopt()
        try:
            run(bench.core, word)
            continue  # no index became a wrong one, or a value is allowed after all
        except Fault as fault:
            want = fault
        bench.adopt()
        bench.queue.extend([*before, word, random_instruction(), random_instruction()])
        index = bench.index + len(before)
        done = bench.updates
        await bench.finish()
        assert bench.fault is not None
        assert bench.updates == done + len(before)
        code, engine, at, addr = bench.fault
        assert (code, engine, at) == (want.code, Engine.GPSIMD, index), encoding.decode(word)
        assert addr == want.addr & 0xFFFFFFFF
        seen.add(code)
        for _ in range(20):
            await bench.cycle()
        await bench.clear()
        bench.enqueue(random_instruction())
        await bench.finish()
        assert bench.fault is None
    assert seen == {ErrorCode.ILLEGAL_FIELD, ErrorCode.SBUF_RANGE, ErrorCode.INDEX_RANGE}


@cocotb.test()
async def clears(dut: Any) -> None:
    """A clear at any moment: nothing is left over for the next instruction."""
    bench = Bench(dut)
    await bench.start()
    for _ in range(max(params()["instructions"], 3)):
        bench.weather()
        bench.fill()
        bench.enqueue(random_instruction(), *(random_instruction(kinds=OTHERS) for _ in range(2)))
        for _ in range(random.choice([random.randint(0, 12), random.randint(0, 60), random.randint(0, 400)])):
            await bench.cycle()
        await bench.clear()
        bench.enqueue(random_instruction(), random_instruction(kinds=OTHERS))
        await bench.finish()
        assert bench.fault is None
