"""DmaEngine between bench memories, against the functional model."""

import random
from collections import deque
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models import addressing, encoding
from models.config import MemoryConfig, find
from models.encoding import Instruction, encode
from models.fault import Fault
from models.isa import Engine, ErrorCode, Opcode, Space, UpdateMode
from models.machine import Machine
from sim.runner import params
from tb.lib.burst_memory import BurstMemory, BurstReadPort, BurstWritePort, RowReadPort, RowWritePort

CONFIG = replace(find("nano"), memory=MemoryConfig(bytes=1 << 16))
CORE, CHIP = 0, 5
LIMITS = {
    "memory": CONFIG.memory.bytes,
    "sbuf": CONFIG.sbuf.bytes_per_partition,
    "psum": CONFIG.psum.bytes_per_partition,
}
STRIDES = {"sbuf": addressing.SBUF_PARTITION_STRIDE, "psum": addressing.PSUM_PARTITION_STRIDE}


class Harness:
    """Issues DMA instructions; the model runs each when its update or fault comes."""

    def __init__(self, dut: Any):
        self.dut = dut
        self.machine = Machine(CONFIG, chip_id=CHIP)
        self.core = self.machine.cores[0]
        self.memory = BurstMemory(CONFIG.memory.bytes)
        self.sbuf, self.psum = self.core.sbuf.copy(), self.core.psum.copy()
        self.read, self.write = (
            BurstReadPort(dut, "read", self.memory),
            BurstWritePort(dut, "write", self.memory),
        )
        rows = [("sbuf", self.sbuf), ("psum", self.psum)]
        self.ports: list[Any] = [self.read, self.write]
        self.ports += [RowReadPort(dut, f"{n}_read", d) for n, d in rows]
        self.ports += [RowWritePort(dut, f"{n}_write", d) for n, d in rows]
        self.queue: deque[bytes] = deque()
        self.sent: deque[tuple[bytes, int, int]] = deque()
        self.offered: tuple[int, int] | None = None
        self.index = self.cycles = self.updates = 0
        self.update_rate = 1.0
        self.fault: tuple[int, int, int, int] | None = None
        self.check_each = True

    async def start(self) -> None:
        dut = self.dut
        Clock(dut.clk, 10, unit="ns", impl="gpi").start()
        cocotb.log.info("seed %d", cocotb.RANDOM_SEED)
        for pin in ("ctl__issue__valid", "ctl__issue__payload", "ctl__update__ready", "ctl__clear"):
            getattr(dut, pin).value = 0
        dut.core_index.value, dut.chip_id.value = CORE, CHIP
        dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        self.fill()

    def fill(self) -> None:
        rng = np.random.default_rng(random.getrandbits(32))
        for mine, model in (
            (self.memory.data, self.machine.memory),
            (self.sbuf, self.core.sbuf),
            (self.psum, self.core.psum),
        ):
            mine[:] = rng.integers(0, 256, mine.shape, dtype=np.uint8)
            model[:] = mine

    def weather(self) -> None:
        for port in self.ports:
            port.rate = random.choice([1.0, 1.0, 0.7, 0.3])
        self.read.latency, self.write.latency = random.choice([1, 5, 20]), random.choice([1, 5, 20])
        self.update_rate = random.choice([1.0, 0.4])

    async def cycle(self, *, clear: bool = False) -> None:
        dut = self.dut
        await FallingEdge(dut.clk)
        for port in self.ports:
            port.drive()
        if self.offered is None and self.queue:
            engine = random.choice(list(Engine))
            self.offered = (self.index, int(engine))
            word = int.from_bytes(self.queue[0], "little")
            dut.ctl__issue__payload.value = word | self.index << 1024 | int(engine) << 1056
        dut.ctl__issue__valid.value = int(self.offered is not None)
        ready = int(random.random() < self.update_rate)
        dut.ctl__update__ready.value = ready
        dut.ctl__clear.value = int(clear)
        await ReadOnly()
        assert not self.sent or self.fault is not None or int(dut.ctl__busy.value), "not busy"
        for port in self.ports:
            port.settle()
        if int(dut.ctl__update__valid.value) and ready and not clear:
            word, _, _ = self.sent.popleft()
            raw = encoding.raw_fields(word)
            want = raw["update_mode"] | raw["update_sem"] << 2 | (raw["update_value"] & 0xFFFFFFFF) << 10
            assert int(dut.ctl__update__payload.value) == want
            self.core._dma(raw)
            self.updates += 1
            if self.check_each:
                self.compare()
        if int(dut.ctl__error_valid.value):
            assert self.fault is None, "a second fault"
            e = int(dut.ctl__error.value)
            self.fault = (e & 255, e >> 8 & 255, e >> 16 & 0xFFFFFFFF, e >> 48)
        if self.offered is not None and int(dut.ctl__issue__ready.value) and not clear:
            self.sent.append((self.queue.popleft(), *self.offered))
            self.index, self.offered = self.index + 1, None
        self.cycles += 1

    async def finish(self, most: int = 60000) -> None:
        for _ in range(most):
            if self.fault is not None or not (self.queue or self.sent):
                return
            await self.cycle()
        raise AssertionError(f"stuck with {len(self.queue)} queued and {len(self.sent)} sent")

    async def settle(self) -> None:
        """After a fault or a clear: the bus runs out, then nothing is busy."""
        for _ in range(20000):
            await self.cycle()
            if not int(self.dut.ctl__busy.value) and all(p.quiet for p in self.ports):
                return
        raise AssertionError("busy long after")

    def compare(self) -> None:
        for name, mine, model in (
            ("memory", self.memory.data, self.machine.memory),
            ("sbuf", self.sbuf, self.core.sbuf),
            ("psum", self.psum, self.core.psum),
        ):
            if not np.array_equal(mine, model):
                at = np.argwhere(mine != model)
                raise AssertionError(
                    f"{name}: {len(at)} bytes differ from {at[0].tolist()} to {at[-1].tolist()}"
                )

    def adopt(self) -> None:
        self.machine.memory[:], self.core.sbuf[:], self.core.psum[:] = self.memory.data, self.sbuf, self.psum


def dma(src: int, dst: int, row_bytes: int, rows: int, src_stride: int, dst_stride: int) -> bytes:
    """An instruction word with a random update."""
    fields = {
        "src": src,
        "dst": dst,
        "row_bytes": row_bytes,
        "rows": rows,
        "src_stride": src_stride,
        "dst_stride": dst_stride,
    }
    update = {
        "update_mode": random.choice(list(UpdateMode)),
        "update_sem": random.randrange(64),
        "update_value": random.randrange(-9, 99),
    }
    return encode(Instruction(Opcode.DMA, fields | update))


def side(kind: str, row_bytes: int, rows: int, band: int) -> tuple[int, int]:
    """(address of row 0, stride): rows of `row_bytes` in one half (`band`) of a memory, so that source and target never overlap."""
    chip = random.choice([addressing.CHIP_LOCAL, CHIP]) << addressing.CHIP_SHIFT
    if kind == "memory":
        low, high = band * LIMITS[kind] // 2, (band + 1) * LIMITS[kind] // 2
        room = (high - low - row_bytes) // max(1, rows - 1)
        stride = random.choice([row_bytes, row_bytes + 3, random.randint(0, max(0, room))])
        stride = min(stride, room)
        first = random.randint(low, high - row_bytes - stride * (rows - 1))
        if random.random() < 0.3 and rows > 1:
            first, stride = first + stride * (rows - 1), -stride
        return chip | addressing.UNIT_MEMORY << addressing.UNIT_SHIFT | first, stride
    space = Space.SBUF if kind == "sbuf" else Space.PSUM
    low, high = band * LIMITS[kind] // 2, (band + 1) * LIMITS[kind] // 2
    start = random.randint(low, high - row_bytes)
    part = random.randint(0, CONFIG.partitions - rows)
    stride = STRIDES[kind]
    if random.random() < 0.3 and rows > 1:
        part, stride = part + rows - 1, -stride
    address = addressing.core_address(CORE, space, part, start)
    return address & ~(0xFFFF << addressing.CHIP_SHIFT) | chip, stride


def random_dma(kinds: tuple[str, str] | None = None, most: int = 300) -> bytes:
    """A legal instruction between any two memories, any alignment."""
    a, b = kinds or (random.choice(list(LIMITS)), random.choice(list(LIMITS)))
    rows = random.choice([0, 1, 1, 2, 3, CONFIG.partitions])
    row_bytes = random.choice([0, 1, 2, 15, 16, 17, 31, 64, random.randint(1, most)])
    row_bytes = min(row_bytes, LIMITS[a] // 2, LIMITS[b] // 2)
    bands = [0, 1] if random.random() < 0.5 else [1, 0]
    src, src_stride = side(a, row_bytes, max(1, rows), bands[0])
    dst, dst_stride = side(b, row_bytes, max(1, rows), bands[1])
    return dma(src, dst, row_bytes, rows, src_stride, dst_stride)


@cocotb.test()
async def every_pair_of_memories(dut: Any) -> None:
    """Random rows between all pairs, all alignments, under changing weather; all memories are compared at each update."""
    bench = Harness(dut)
    await bench.start()
    for _ in range(params()["rounds"]):
        bench.weather()
        bench.fill()
        bench.queue.extend(random_dma((a, b)) for a in LIMITS for b in LIMITS)
        await bench.finish()
        assert bench.fault is None, bench.fault
        await bench.settle()
        bench.compare()
    assert bench.updates == 9 * params()["rounds"]


@cocotb.test()
async def long_rows_and_page_edges(dut: Any) -> None:
    """Field report A15: rows that start, end and cross at 4 KiB; rows of several pages."""
    bench = Harness(dut)
    await bench.start()
    base = addressing.memory_address(0)
    for offset, count in ((0xFFC, 8), (0xFC0, 64), (0x001, 4096), (0xFFF, 2), (0x123, 9000)):
        for other in (0x8000, 0x8FFD):
            bench.weather()
            bench.queue.append(dma(base + offset, base + other, count, 1, 0, 0))
            bench.queue.append(dma(base + other, base + offset, count, 1, 0, 0))
    before = bench.read.count
    bench.queue.appendleft(dma(base + 0xFC0, base + 0x8000, 64, 1, 0, 0))
    while bench.updates == 0:
        await bench.cycle()
    assert bench.read.count - before == 1, "a row that ends exactly at 4 KiB is one burst"
    await bench.finish()
    assert bench.fault is None
    await bench.settle()
    bench.compare()


@cocotb.test()
async def nothing_to_do(dut: Any) -> None:
    """Field report A16: no bytes, no rows: no beats, one update; then a real one, misaligned."""
    bench = Harness(dut)
    await bench.start()
    base = addressing.memory_address(0)
    for row_bytes, rows in ((0, 1), (0, 0), (64, 0), (0, 5)):
        bench.queue.append(dma(base + 0x1000, base + 0x2000, row_bytes, rows, 0, 0))
        bench.queue.append(dma((1 << 64) - 1, 0, row_bytes, rows, 0, 0))  # not even looked at
    await bench.finish()
    assert bench.updates == 8
    assert bench.read.count == bench.write.count == 0
    bench.queue.append(dma(base + 0x1003, base + 0x2000, 64, 1, 0, 0))
    await bench.finish()
    bench.compare()


def _out_of_range() -> bytes:
    """Rows of which one leaves its memory, or addresses of nobody."""
    base, n = addressing.memory_address(0), 48
    good = base + 0x4000
    kind = random.randrange(8)
    if kind == 0:
        return dma(base + CONFIG.memory.bytes - 2 * n - 8, good, n, 4, n, n)
    if kind == 1:
        return dma(good, base + CONFIG.memory.bytes - n + 1, n, 1, 0, 0)
    if kind == 2:
        return dma(addressing.core_address(0, Space.SBUF, 6, 0), good, n, 4, STRIDES["sbuf"], n)
    if kind == 3:
        return dma(
            good, addressing.core_address(0, Space.PSUM, 0, LIMITS["psum"] - n + 1), n, 2, n, STRIDES["psum"]
        )
    if kind == 4:
        return dma(addressing.core_address(1, Space.SBUF, 0, 0), good, n, 1, 0, 0)
    if kind == 5:
        return dma(good & ~(0xFFFF << 48) | 6 << 48, good, n, 1, 0, 0)
    if kind == 6:
        return dma(good, 0xFFFF << 48 | 3 << 40, n, 1, 0, 0)
    return dma(good, base + 0x100, n, 6, -0x1200, n)


@cocotb.test()
async def out_of_range(dut: Any) -> None:
    """DMA_RANGE with the bad row's address; earlier rows are written; nothing until a clear; then on again."""
    bench = Harness(dut)
    await bench.start()
    for _ in range(params()["rounds"]):
        bench.weather()
        bench.fill()
        bench.queue.extend([random_dma(), _out_of_range(), random_dma()])
        await bench.finish()
        assert bench.fault is not None
        word, index, engine = bench.sent[0]
        try:
            bench.core._dma(encoding.raw_fields(word))
        except Fault as fault:
            want = (int(fault.code), engine, index, fault.addr)
        else:
            raise AssertionError("the model sees no fault")
        assert bench.fault == want
        assert bench.fault[0] == ErrorCode.DMA_RANGE
        await bench.settle()
        bench.compare()
        for _ in range(30):
            await bench.cycle()
        assert len(bench.sent) == 1, "accepted something after a fault"
        bench.queue.clear()
        bench.offered = None
        await bench.cycle(clear=True)
        bench.sent.clear()
        bench.fault = None


@cocotb.test()
async def bus_errors(dut: Any) -> None:
    """An error answer to a read or a write: BUS_ERROR with the row's address, nothing outside the target touched, then on again."""
    bench = Harness(dut)
    await bench.start()
    base = addressing.memory_address(0)
    for n in range(params()["rounds"]):
        bench.weather()
        bench.fill()
        bench.memory.bad_pages = {2}
        bad, good = base + 0x2000 + 16 * n, base + 0x9000
        src, dst = (bad, good) if n % 2 else (good, bad)
        bench.queue.append(dma(src, dst, 100, 3, 200, 200))
        await bench.finish()
        _, index, engine = bench.sent[0]
        assert bench.fault == (int(ErrorCode.BUS_ERROR), engine, index, bad)
        await bench.settle()
        touched = np.flatnonzero(bench.memory.data != bench.machine.memory)
        allowed = {dst - base + 200 * r + i for r in range(3) for i in range(100)}
        assert set(touched.tolist()) <= allowed
        await bench.cycle(clear=True)
        bench.sent.clear()
        bench.fault, bench.memory.bad_pages = None, set()
        bench.adopt()
        bench.queue.append(random_dma())
        await bench.finish()
        bench.compare()


@cocotb.test()
async def cleared_at_any_moment(dut: Any) -> None:
    """A clear in the middle: the bus runs out legally, busy until then; what follows is right."""
    bench = Harness(dut)
    await bench.start()
    bench.check_each = False
    for _ in range(params()["rounds"] * 2):
        bench.weather()
        bench.queue.extend(random_dma(most=4000 if random.random() < 0.2 else 300) for _ in range(2))
        for _ in range(random.randrange(120)):
            await bench.cycle()
        bench.queue.clear()
        bench.offered = None
        await bench.cycle(clear=True)
        bench.sent.clear()
        await bench.settle()
        bench.adopt()
        bench.queue.append(random_dma())
        await bench.finish()
        await bench.settle()
        bench.compare()


@cocotb.test()
async def rate(dut: Any) -> None:
    """16 rows of 1 KiB (two instructions of 8 partitions) from memory of latency 20 to SBUF: 0.85 beats a cycle or more."""
    bench = Harness(dut)
    await bench.start()
    for port in bench.ports:
        port.rate = 1.0
    bench.read.latency = 20
    base = addressing.memory_address(0)
    first = bench.cycles
    bench.queue.append(
        dma(base, addressing.core_address(0, Space.SBUF, 0, 0), 2048, 8, 2048, STRIDES["sbuf"])
    )
    await bench.finish()
    assert 1024 / (bench.cycles - first) >= 0.85, f"1024 beats in {bench.cycles - first} cycles"
    first = bench.cycles
    bench.queue.append(
        dma(addressing.core_address(0, Space.SBUF, 0, 0), base + 0x8000, 2048, 8, STRIDES["sbuf"], 2048)
    )
    await bench.finish()
    assert 1024 / (bench.cycles - first) >= 0.85, f"1024 beats in {bench.cycles - first} cycles"
