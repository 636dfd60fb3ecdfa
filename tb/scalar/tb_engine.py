"""ScalarEngine against the functional model: memory at every update, faults, clears, cycles."""

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models import encoding
from models.fault import Fault
from models.formats import DType
from models.functions import ActFunc, library
from models.isa import AluOp, Engine, ErrorCode, Flag, Opcode
from models.machine import Core
from models.scalar import SCALAR_OPS
from rtl.scalar.lane import SLOTS
from sim.runner import params
from tb.lib.lane_memory import LaneMemory, LanePorts
from tb.vector.instructions import new_core
from tb.vector.mistakes import put_ap, put_small
from tb.vector.operands import (
    CONFIG,
    READABLE,
    SIZES,
    WRITABLE,
    fp32_bits,
    other_source,
    random_contents,
    random_pattern,
    random_update,
)

OVERHEAD = 45
"""Cycles that an instruction may take beside its steps, where memories grant at once."""


def random_instruction(function: ActFunc | None = None, size: int | None = None) -> bytes:
    """A legal instruction with all its accesses in range; source apart from the destination, or exactly in place."""
    if function is None and size is None and random.random() < 0.2:
        return read_accumulator()
    parts = random.randint(1, CONFIG.partitions)
    n = random.choice(SIZES) if size is None else size
    f = random.choice(list(ActFunc)) if function is None else function
    d_type, s_type = random.choice(WRITABLE), random.choice(READABLE)
    if random.random() < 0.6:
        d_type, s_type = (random.choice([DType.FP32, DType.BF16, DType.FP16]) for _ in range(2))
    in_place = random.random() < 0.2 and s_type in WRITABLE
    dst = random_pattern(n, s_type if in_place else d_type, parts, distinct=in_place)
    aps = {"dst": dst, "src0": dst if in_place else other_source(n, s_type, parts, dst)}
    tame = random.random() < 0.5
    fields = {
        "parts": parts,
        "op0": f.value,
        "flags": random.choice([0, int(Flag.SATURATE)])
        | random.choice([0, int(Flag.ACCUMULATE), int(Flag.ACCUMULATE | Flag.FRESH)]),
        "imm0": 0x3F800000 if tame else fp32_bits(),
        "imm1": 0x80000000 if tame else fp32_bits(),
    }
    if random.random() < 0.4:
        fields["flags"] |= int(Flag.SRC1_SCALAR)
        aps["src1"] = other_source(1, DType.FP32, parts, dst)
    return encoding.encode(encoding.Instruction(Opcode.ACTIVATE, fields | random_update(), aps))


def read_accumulator() -> bytes:
    """A legal READ_ACCUMULATOR."""
    parts = random.randint(1, CONFIG.partitions)
    flags = random.choice([0, int(Flag.SATURATE)]) | random.choice([0, int(Flag.NEGATE)])
    dtype = random.choice([DType.FP32, DType.FP32, random.choice(WRITABLE)])
    fields = {"parts": parts, "op0": AluOp.ADD.value, "flags": flags}
    aps = {"dst": random_pattern(1, dtype, parts)}
    return encoding.encode(encoding.Instruction(Opcode.READ_ACCUMULATOR, fields | random_update(), aps))


def used_aps(word: bytes) -> list[str]:
    """Names of the patterns that an instruction uses."""
    raw = encoding.raw_fields(word)
    if raw["opcode"] == Opcode.READ_ACCUMULATOR:
        return ["dst"]
    return ["dst", "src0"] + ["src1"] * bool(raw["flags"] & Flag.SRC1_SCALAR)


def run(core: Core, word: bytes) -> None:
    """One instruction on a model core. Raises Fault."""
    core.execute(Engine.SCALAR, word)


def illegal(word: bytes) -> bytes:
    """The instruction with one field that is not allowed."""
    p = CONFIG.partitions
    raw = encoding.raw_fields(word)
    ap = random.choice(used_aps(word))
    recall, flags = raw["opcode"] == Opcode.READ_ACCUMULATOR, raw["flags"]
    wrong = [f for f in (1 << n for n in range(8)) if not f & SCALAR_OPS[Opcode(raw["opcode"])]]
    if not recall and not flags & Flag.ACCUMULATE:
        wrong.append(int(Flag.FRESH))
    other = [op.value for op in AluOp if op != AluOp.ADD] if recall else [max(ActFunc) + 1]
    packed = DType.E4M3X4.value
    return random.choice(
        [
            lambda: put_small(word, "parts", random.choice([0, p + 1, 255])),
            lambda: put_small(word, "op0", random.choice([*other, 128, 255])),
            lambda: put_small(word, "flags", flags | random.choice(wrong)),
            lambda: put_small(word, "op1", random.randint(1, 255)) if recall else put_small(word, "parts", 0),
            lambda: put_ap(word, ap, "space", random.choice([2, 3, 255])),
            lambda: put_ap(word, ap, "dtype", random.choice([packed, 100, 255])),
            lambda: put_ap(word, ap, "part", 1),
            lambda: (
                put_ap(word, "dst", "count0", encoding.raw_ap(word, "dst")["count0"] + 1)
                if encoding.ap_from_raw(encoding.raw_ap(word, "dst")).size
                else put_small(word, "parts", 0)
            ),
        ]
    )()


class Bench:
    """Issues words, steps the engine, runs the functional model at each update."""

    def __init__(self, dut: Any):
        self.dut = dut
        self.memories = {
            "sbuf": LaneMemory(CONFIG.partitions, CONFIG.sbuf.bytes_per_partition),
            "psum": LaneMemory(CONFIG.partitions, CONFIG.psum.bytes_per_partition),
        }
        self.ports = LanePorts(dut, self.memories, {f"{n}_w": m for n, m in self.memories.items()})
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
        for memory in self.memories.values():
            memory.data[:] = random_contents(memory.data.shape)
        self.adopt()

    def adopt(self) -> None:
        """The model takes what the engine left."""
        self.core.sbuf[:], self.core.psum[:] = self.memories["sbuf"].data, self.memories["psum"].data

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
                int.from_bytes(self.queue[0], "little") | self.index << 1024 | int(Engine.SCALAR) << 1056
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
        for name, got in self.memories.items():
            wrong = np.argwhere(got.data != getattr(self.core, name))
            assert not wrong.size, f"{name}{wrong[0].tolist()} after {encoding.decode(word)}"
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
        self.core.scalar_accumulators[:] = 0
        self.sent.clear()
        self.queue.clear()
        self.offered, self.fault = None, None
        while not self.ports.quiet:
            await self.cycle()
        self.adopt()


@cocotb.test()
async def random_instructions(dut: Any) -> None:
    """Every function, then any, back to back under changing weather."""
    bench = Bench(dut)
    await bench.start()
    functions = list(ActFunc)
    total = max(params()["instructions"], 1)
    for i in range(total):
        bench.weather()
        if random.random() < 0.3:
            bench.fill()
        batch = random.choice([1, 1, 3])
        bench.queue.extend(random_instruction(functions[(i + k) % len(functions)]) for k in range(batch))
        await bench.finish()
        assert bench.fault is None, f"fault {bench.fault}"
    assert bench.updates >= total


@cocotb.test()
async def faults(dut: Any) -> None:
    """Illegal fields and accesses out of range: the model's error, then a clear and on again."""
    bench = Bench(dut)
    await bench.start()
    seen = set()
    for n in range(max(params()["instructions"] // 2, 4)):
        bench.weather()
        bench.fill()
        if n % 2:
            word = illegal(random_instruction())
        else:
            word = random_instruction(size=random.choice([1, 5, 12, 24]))
            word = word if random.random() < 0.8 else read_accumulator()
            word = put_ap(
                word, random.choice(used_aps(word)), "addr", random.choice([1 << 20, (1 << 32) - 8])
            )
        try:
            run(bench.core, word)
            raise AssertionError("the model takes it")
        except Fault as fault:
            want = fault
        bench.adopt()
        bench.queue.extend([random_instruction(size=4), word, random_instruction(), random_instruction()])
        index = bench.index + 1
        done = bench.updates
        await bench.finish()
        assert bench.fault is not None
        assert bench.updates == done + 1
        code, engine, at, addr = bench.fault
        assert (code, engine, at) == (want.code, Engine.SCALAR, index)
        if want.code != ErrorCode.ILLEGAL_FIELD:
            assert addr == want.addr & 0xFFFFFFFF
        seen.add(code)
        for _ in range(20):
            await bench.cycle()
        await bench.clear()
        bench.queue.extend([read_accumulator(), random_instruction(), read_accumulator()])
        await bench.finish()
        assert bench.fault is None
    assert ErrorCode.ILLEGAL_FIELD in seen
    assert len(seen) > 1


@cocotb.test()
async def clears(dut: Any) -> None:
    """A clear at any moment: nothing is left over for the next instruction, and the accumulators are +0."""
    bench = Bench(dut)
    await bench.start()
    for _ in range(max(params()["instructions"] // 2, 3)):
        bench.weather()
        bench.fill()
        bench.queue.extend(random_instruction() for _ in range(3))
        for _ in range(random.choice([random.randint(0, 12), random.randint(0, 60), random.randint(0, 400)])):
            await bench.cycle()
        await bench.clear()
        bench.queue.extend(
            [read_accumulator(), random_instruction(), random_instruction(), read_accumulator()]
        )
        await bench.finish()
        assert bench.fault is None


@cocotb.test()
async def accumulators(dut: Any) -> None:
    """Sums over instructions of changing partitions, each read at once: also what later instructions leave alone."""
    bench = Bench(dut)
    await bench.start()
    for _ in range(max(params()["instructions"] // 4, 2)):
        bench.weather()
        bench.fill()
        for _ in range(random.randint(2, 6)):
            word = random_instruction(
                random.choice([ActFunc.COPY, ActFunc.ABS, ActFunc.TANH]), random.choice(SIZES)
            )
            chosen = random.choice(
                [0, int(Flag.ACCUMULATE), int(Flag.ACCUMULATE), int(Flag.ACCUMULATE | Flag.FRESH)]
            )
            kept = encoding.raw_fields(word)["flags"] & int(Flag.SATURATE | Flag.SRC1_SCALAR)
            bench.queue.append(put_small(word, "flags", kept | chosen))
            bench.queue.append(read_accumulator())
        await bench.finish()
        assert bench.fault is None, f"fault {bench.fault}"


@cocotb.test()
async def cycles(dut: Any) -> None:
    """SLOTS elements in SLOTS * (1 + steps) cycles, and a fixed overhead."""
    bench = Bench(dut)
    await bench.start()
    for function in (ActFunc.COPY, ActFunc.EXP, ActFunc.TANH):
        for size in (8, 24, 30):
            while True:
                word = random_instruction(function, size)
                if len(library()[0][function]) > 3 or encoding.ap_from_raw(
                    encoding.raw_ap(word, "src0")
                ).dims[-1][0] in (0, 1):
                    break
            bench.queue.append(word)
            before = bench.cycles
            await bench.finish()
            took = bench.cycles - before
            steps = SLOTS * -(-size // SLOTS) * (1 + len(library()[0][function]))
            assert steps <= took <= steps + OVERHEAD + 8, (
                f"{function.name} of {size}: {took} cycles, {steps} of steps"
            )
