"""TensorEngine between a bench's SBUF and a PSUM that adds, against the functional model."""

import random
from collections import deque
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models import array, encoding
from models.access import row
from models.encoding import Instruction, encode
from models.fault import Fault
from models.formats import DType, dtype_bytes
from models.isa import Engine, ErrorCode, Flag, Opcode, Space
from rtl.interfaces import psum_addr_bits
from rtl.memory.psum import PSUM_HAZARD
from rtl.tensor.engine import READERS
from sim.runner import params
from tb.lib.lane_memory import LaneMemory, LanePorts
from tb.tensor.instructions import CONFIG, Generator, P, new_core, random_update

BITS = psum_addr_bits(CONFIG)


class Harness:
    """Issues words; runs the model instruction by instruction; applies columns to PSUM as they come."""

    def __init__(self, dut: Any):
        self.dut = dut
        self.core = new_core()
        self.sbuf = LaneMemory(P, CONFIG.sbuf.bytes_per_partition)
        self.ports = LanePorts(dut, dict.fromkeys(READERS, self.sbuf), {})
        self.psum = np.zeros((P, 1 << BITS), dtype=np.uint32)
        self.queue: deque[bytes] = deque()
        self.sent: deque[tuple[bytes, int, int]] = deque()
        """Word, index, and how many columns PSUM must have shown as done when its update comes."""
        self.index = self.cycles = 0
        self.offered = False
        self.issue_rate = self.update_rate = 1.0
        self.pause_rate = 0.0
        self.recent: deque[tuple[int, int]] = deque()
        self.dones: deque[int] = deque()
        self.done_count = self.promised = 0
        self.updates = 0
        self.columns: list[int] = []
        self.fault: tuple[int, int, int, int] | None = None

    async def start(self) -> None:
        dut = self.dut
        Clock(dut.clk, 10, unit="ns", impl="gpi").start()
        cocotb.log.info("seed %d", cocotb.RANDOM_SEED)
        for pin in (
            "ctl__issue__valid",
            "ctl__update__ready",
            "ctl__clear",
            "accumulate__done",
            "accumulate__pause",
        ):
            getattr(dut, pin).value = 0
        dut.rst.value = 1
        for _ in range(3):
            self.ports.drive()
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        self.fill()

    def fill(self) -> None:
        """Operand memory: all patterns, or numbers whose sums are finite; scales near 1 more often than not."""
        raw = np.frombuffer(random.randbytes(self.sbuf.data.size), dtype=np.uint8).reshape(
            self.sbuf.data.shape
        )
        tame = np.where(raw & 1, raw & 0x8F | 0x30, raw & 0xBF)
        self.sbuf.data[:] = tame if random.random() < 0.7 else raw
        self.psum[:] = np.random.default_rng(random.getrandbits(32)).integers(
            0, 1 << 32, self.psum.shape, dtype=np.uint64
        )
        nan = (self.psum & 0x7FFFFFFF) > 0x7F800000
        self.psum[nan] = 0x7FC00000
        self.core.sbuf[:] = self.sbuf.data
        self.core.psum[:] = self.psum.view(np.uint8).reshape(P, -1)

    async def cycle(self, *, clear: bool = False) -> None:
        dut = self.dut
        await FallingEdge(dut.clk)
        self.ports.drive()
        if not self.offered and self.queue and random.random() < self.issue_rate:
            self.offered = True
            word = int.from_bytes(self.queue[0], "little")
            dut.ctl__issue__payload.value = word | self.index << 1024
        dut.ctl__issue__valid.value = int(self.offered)
        ready = int(random.random() < self.update_rate)
        dut.ctl__update__ready.value = ready
        dut.ctl__clear.value = int(clear)
        dut.accumulate__pause.value = int(random.random() < self.pause_rate)
        done = bool(self.dones) and self.dones[0] <= self.cycles
        dut.accumulate__done.value = int(done)
        if done:
            self.dones.popleft()
        await ReadOnly()
        assert not self.sent or self.fault is not None or int(dut.ctl__busy.value), "not busy"
        if int(dut.columns.value):
            self.columns.append(self.cycles)
        if int(dut.accumulate__valid.value):
            self.column(str(dut.accumulate__column.value))
        if int(dut.ctl__update__valid.value) and ready and not clear:
            self.update(int(dut.ctl__update__payload.value))
        self.done_count += done
        if int(dut.ctl__error_valid.value):
            assert self.fault is None, "a second fault"
            e = int(dut.ctl__error.value)
            self.fault = (e & 255, e >> 8 & 255, e >> 16 & 0xFFFFFFFF, e >> 48)
        if self.offered and int(dut.ctl__issue__ready.value) and not clear:
            self.accept()
        self.ports.settle()
        self.cycles += 1

    def accept(self) -> None:
        word = self.queue.popleft()
        if word[0] in (Opcode.MATMUL, Opcode.TRANSPOSE):
            ap = encoding.raw_ap(word, "dst")
            self.promised += ap["count0"] * ap["count1"] * ap["count2"] * ap["count3"]
        self.sent.append((word, self.index, self.promised))
        self.index, self.offered = self.index + 1, False

    def column(self, bits: str) -> None:
        head = int(bits[32 * P :], 2)
        addr, add, lanes = head & (1 << BITS) - 1, head >> BITS & 1, head >> BITS + 5
        mask = sum(0xFF << 8 * i for i in range(4) if head >> BITS + 1 + i & 1)
        assert mask == 0xFFFFFFFF or not add
        # Array columns that never held weights are unknown in Icarus, and nobody may take them.
        words = [bits[32 * (P - 1 - i) : 32 * (P - i)] for i in range(P)]
        data = np.array([int(w, 2) if lanes >> i & 1 else 0 for i, w in enumerate(words)], dtype=np.uint32)
        while self.recent and self.recent[0][0] <= self.cycles - PSUM_HAZARD:
            self.recent.popleft()
        assert not (add and any(a == addr for _, a in self.recent)), f"hazard at PSUM word {addr}"
        self.recent.append((self.cycles, addr))
        new = data.view(np.float32)
        if add:
            new = array.accumulate(self.psum[:, addr].copy().view(np.float32), new)
        for lane in range(P):
            if lanes >> lane & 1:
                kept = int(self.psum[lane, addr]) & ~mask
                self.psum[lane, addr] = kept | int(new.view(np.uint32)[lane]) & mask
        self.dones.append(self.cycles + PSUM_HAZARD)

    def update(self, payload: int) -> None:
        word, _, promised = self.sent.popleft()
        raw = encoding.raw_fields(word)
        assert (
            payload == raw["update_mode"] | raw["update_sem"] << 2 | (raw["update_value"] & 0xFFFFFFFF) << 10
        )
        assert self.done_count >= promised, "an update before the last column was done"
        self.execute(word)
        self.updates += 1

    def execute(self, word: bytes) -> None:
        self.core.execute(Engine.TENSOR, word)

    async def finish(self, most: int = 30000) -> None:
        for _ in range(most):
            if self.fault is not None or not (self.queue or self.sent):
                return
            await self.cycle()
        raise AssertionError(
            f"stuck with {len(self.queue)} queued and {len(self.sent)} sent instructions, fault {self.fault}"
        )

    async def compare(self) -> None:
        for _ in range(4 * P + 20):
            await self.cycle()
        want = self.core.psum.view(np.uint32).reshape(P, -1)
        wrong = np.argwhere(want != self.psum)
        assert not wrong.size, (
            f"PSUM{wrong[0].tolist()}: {self.psum[tuple(wrong[0])]:08x}, not {want[tuple(wrong[0])]:08x}"
        )

    def weather(self) -> None:
        self.ports.weather(random.choice([1.0, 1.0, 0.8, 0.4]), random.choice([0, 0, 3]))
        self.issue_rate, self.update_rate = random.choice([1.0, 0.4]), random.choice([1.0, 0.3])
        self.pause_rate = random.choice([0.0, 0.0, 0.1, 1.0])


@cocotb.test()
async def random_batches(dut: Any) -> None:
    """Loads and matmuls of all formats and shapes under changing weather; PSUM is the model's after each batch."""
    bench = Harness(dut)
    await bench.start()
    generator = Generator()
    for _ in range(params()["batches"]):
        bench.weather()
        bench.fill()
        bench.queue.extend(generator.batch(random.choice([2, 6, 14])))
        await bench.finish()
        assert bench.fault is None, bench.fault
        await bench.compare()
        assert not int(dut.ctl__busy.value)
    assert bench.updates > params()["batches"]


def _illegal_transpose(generator: Generator) -> bytes:
    """A TRANSPOSE of a wrong shape, type, place, or into a partition that is not there."""
    word = bytearray(generator.transpose())
    k, m = word[16], word[17]
    changes = [
        (16, 0),
        (16, P + 1),
        (16, 1 + k % P),
        (17, 1 + m % P),
        (17, P + 1),
        (20, 1),
        (32 + 4, 0),
        (64 + 4, 1),
        (32 + 5, 15),
        (64 + 5, 15),
        (32 + 5, int(DType.BF16 if dtype_bytes(DType(word[37])) != 2 else DType.INT32)),
        (64 + 6, 1),
        (32 + 6, 1),
        (32 + 6, P),
        (32 + 30, k + 1),
    ]
    at, value = random.choice(changes)
    word[at] = value
    return bytes(word)


def _illegal(generator: Generator) -> bytes:
    """An instruction that one field makes illegal."""
    if random.random() < 0.3:
        return _illegal_transpose(generator)
    word = bytearray(generator.load() if random.random() < 0.4 else generator.matmul(5))
    is_matmul = word[0] == Opcode.MATMUL
    changes = [
        (16, 0),
        (16, P + 1),
        (17, 0),
        (17, P + 1),
        (20, 2),
        (20, word[20] ^ 128),
        (64 + 5, int(DType.FP32)),
        (64 + 5, 200),
        (64 + 4, 1),
        (64 + 30, 9),
    ]
    if generator.double:
        changes += [
            (96 + 4, 1),
            (96 + 5, int(DType.E4M3 if word[96 + 5] == DType.E5M2 else DType.E5M2)),
            (96 + 6, 1),
            (96 + 6, P),
            (96 + 30, 9),
            (64 + 5, int(random.choice([DType.BF16, DType.E4M3X4]))),
        ]
    if is_matmul:
        changes += [
            (32 + 5, int(DType.BF16)),
            (32 + 4, 0),
            (32 + 6, 1),
            (32, word[32] | 1),
            (32 + 30, 7),
            (16, 1 + word[16] % P),
        ]
    at, value = random.choice(changes)
    word[at] = value
    return bytes(word)


@cocotb.test()
async def faults(dut: Any) -> None:
    """Illegal fields and accesses out of range among legal instructions: the right fault, nothing after it, then a clear and on again."""
    bench = Harness(dut)
    await bench.start()
    generator = Generator()
    kinds = set()
    for n in range(params()["batches"]):
        bench.weather()
        bench.fill()
        first = generator.batch(random.choice([1, 2, 5]))
        if n % 2:
            wrong = _illegal(generator)
        elif random.random() < 0.3:
            source, target = row(64, DType.FP32, 5), row(0, DType.FP32, 3, space=Space.PSUM)
            if random.random() < 0.5:
                source = row(CONFIG.sbuf.bytes_per_partition - 8, DType.FP32, 5)
            else:
                target = row(CONFIG.psum.bytes_per_partition - 4, DType.FP32, 3, space=Space.PSUM)
            fields = {"parts": 3, "cols": 5}
            wrong = encode(Instruction(Opcode.TRANSPOSE, fields, {"src0": source, "dst": target}))
        elif random.random() < 0.3:
            last = CONFIG.sbuf.bytes_per_partition
            near, far = row(0, DType.E4M3, 5), row(last - random.randrange(5), DType.E5M2, 5)
            fields = {"parts": 3, "cols": 5, "flags": Flag.DOUBLE_ROW}
            load = Instruction(Opcode.LOAD_STATIONARY, fields, {"src0": near, "src1": near})
            aps = {"src0": near, "src1": replace(far, dtype=DType.E4M3)}
            spoilt = Instruction(Opcode.LOAD_STATIONARY, fields, aps)
            if random.random() < 0.5:
                first.append(encode(load))
                aps = {"src0": replace(near, dtype=DType.E5M2), "src1": far}
                spoilt = Instruction(
                    Opcode.MATMUL, fields, {**aps, "dst": row(0, DType.FP32, 5, space=Space.PSUM)}
                )
            wrong = encode(spoilt)
        elif random.random() < 0.5:
            far = row(CONFIG.sbuf.bytes_per_partition - 8, DType.BF16, 5 + random.randrange(20))
            generator.k, generator.m, generator.dtype, generator.double = 3, 5, DType.BF16, False
            load = encode(
                Instruction(Opcode.LOAD_STATIONARY, {"parts": 3, "cols": 5}, {"src0": row(0, DType.BF16, 5)})
            )
            dst = row(0, DType.FP32, far.size, space=Space.PSUM)
            first.append(load)
            wrong = encode(Instruction(Opcode.MATMUL, {"parts": 3, "cols": 5}, {"src0": far, "dst": dst}))
        else:
            generator.k, generator.m, generator.dtype, generator.double = 3, 5, DType.BF16, False
            load = encode(
                Instruction(Opcode.LOAD_STATIONARY, {"parts": 3, "cols": 5}, {"src0": row(0, DType.BF16, 5)})
            )
            dst = row(CONFIG.psum.bytes_per_partition - 12, DType.FP32, 9, space=Space.PSUM)
            first.append(load)
            wrong = encode(
                Instruction(
                    Opcode.MATMUL, {"parts": 3, "cols": 5}, {"src0": row(0, DType.BF16, 9), "dst": dst}
                )
            )
        bench.queue.extend([*first, wrong, generator.load()])
        bad_index = bench.index + len(first)
        await bench.finish()
        try:
            for word, _, _ in list(bench.sent):
                bench.execute(word)
        except Fault as fault:
            want: tuple[int, int] | None = (int(fault.code), fault.addr)
        else:
            want = None
        if want is None:  # the change made another legal instruction
            assert bench.fault is None
        else:
            assert bench.fault is not None, "no fault"
            code, engine, index, addr = bench.fault
            assert (code, engine, index, addr) == (want[0], int(Engine.TENSOR), bad_index, want[1])
            kinds.add(ErrorCode(code))
        bench.queue.clear()
        for _ in range(5 * P + 60):
            await bench.cycle()
        assert not int(dut.ctl__busy.value), "busy after a fault"
        bench.offered = False
        await bench.cycle(clear=True)
        bench.sent.clear()
        bench.fault = None
        bench.core = new_core()
        bench.promised = bench.done_count
    assert {ErrorCode.ILLEGAL_FIELD, ErrorCode.SBUF_RANGE, ErrorCode.PSUM_RANGE} <= kinds
    bench.fill()
    bench.queue.extend(generator.batch(8))
    await bench.finish()
    assert bench.fault is None
    await bench.compare()


@cocotb.test()
async def cleared_at_any_moment(dut: Any) -> None:
    """A clear in the middle of anything: quiet soon, then a batch that is right."""
    bench = Harness(dut)
    await bench.start()
    generator = Generator()
    for _ in range(params()["batches"] // 2):
        bench.weather()
        bench.queue.extend(generator.batch(8))
        for _ in range(random.randrange(150)):
            await bench.cycle()
        bench.queue.clear()
        bench.offered = False
        await bench.cycle(clear=True)
        bench.sent.clear()
        for _ in range(200):
            await bench.cycle()
            if not int(dut.ctl__busy.value) and not bench.dones:
                break
        else:
            raise AssertionError("busy long after a clear")
        bench.core, bench.promised, bench.fault = new_core(), bench.done_count, None
        bench.fill()
        bench.queue.extend(generator.batch(5))
        await bench.finish()
        await bench.compare()


@cocotb.test()
async def steady_state(dut: Any) -> None:
    """K-tiles of a GEMM with operands in SBUF: one column a cycle, also of double rows, and a few cycles between matmuls, loads hidden."""
    bench = Harness(dut)
    await bench.start()
    n, tiles = CONFIG.psum.bank_bytes // 4, 6
    others: list[tuple[DType, DType | None]] = [
        (DType.BF16, None),
        (DType.E4M3X4, DType.E8M0),
        (DType.E4M3, DType.E4M3),
    ]
    for dtype, other in others:
        scale = {"src1": row(4096, other, P)} if other is not None else {}
        moving_scale = {"src1": row(4096, other, n)} if other is not None else {}
        for i in range(tiles):
            fields = {"parts": P, "cols": P, "flags": int(Flag.DOUBLE_ROW) if other == dtype else 0}
            bench.queue.append(
                encode(Instruction(Opcode.LOAD_STATIONARY, fields, {"src0": row(64 * i, dtype, P), **scale}))
            )
            dst = row(0, DType.FP32, n, space=Space.PSUM)
            aps = {"src0": row(1024, dtype, n), "dst": dst, **moving_scale}
            bench.queue.append(
                encode(
                    Instruction(
                        Opcode.MATMUL,
                        {**fields, "flags": fields["flags"] | int(i > 0)} | random_update(),
                        aps,
                    )
                )
            )
        bench.columns.clear()
        await bench.finish()
        await bench.compare()
        took = bench.columns[-1] - bench.columns[0] + 1
        assert len(bench.columns) == tiles * n
        assert tiles * n / took >= 0.97, f"{dtype.name}: {tiles * n} columns in {took} cycles"
