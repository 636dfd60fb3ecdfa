"""VectorEngine between bench memories, stepped cycle by cycle beside the functional model."""

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from numpy.typing import NDArray

from models import encoding
from models.access import AccessPattern
from models.formats import DType
from models.isa import Engine, ErrorCode, Opcode
from models.xorwow import seeded
from tb.lib.lane_memory import LaneMemory, LanePorts
from tb.vector.instructions import Prefix, block_of, execute, new_core, range_faults, read_first, results
from tb.vector.operands import CONFIG, random_contents

U8 = NDArray[np.uint8]
MAX_OVERHEAD = 25
"""Cycles that an instruction may take beside one for each element."""


class Harness:
    """Issues words, checks every update, fault and memory state.

    `sent` are instructions that were accepted and have given neither update nor fault. After a fault or a clear the model takes over
    the memory that the engine has left, once it has been found to be one that the instruction can leave.
    """

    def __init__(self, dut: Any):
        self.dut = dut
        self.sbuf = LaneMemory(CONFIG.partitions, CONFIG.sbuf.bytes_per_partition)
        self.psum = LaneMemory(CONFIG.partitions, CONFIG.psum.bytes_per_partition)
        spaces = {"sbuf": self.sbuf, "psum": self.psum}
        self.ports = LanePorts(
            dut,
            {f"{name}{i}": memory for name, memory in spaces.items() for i in range(2)},
            {f"{name}_w": memory for name, memory in spaces.items()},
        )
        self.core, self.prefix = new_core(), new_core(Prefix)
        self.cleared = self.core.accumulators, self.core.random
        """The model's accumulators and random states at the last clear, before they were forgotten."""
        self.queue: deque[bytes] = deque()
        self.sent: deque[tuple[bytes, int]] = deque()
        self.offered: int | None = None
        self.index = self.cycle_count = 0
        self.issue_rate = self.update_rate = 1.0
        self.update_refused: int | None = None
        self.updates: list[int] = []
        """Cycle of each update."""
        self.faults: list[ErrorCode] = []
        self.dead = False
        self.calm = 0
        """Cycles with nothing sent and nothing on its way at the memories."""

    # --- cycles ----------------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Clock, reset, contents."""
        Clock(self.dut.clk, 10, unit="ns", impl="gpi").start()
        cocotb.log.info("seed %d", cocotb.RANDOM_SEED)
        for pin in (self.dut.ctl__issue__valid, self.dut.ctl__update__ready, self.dut.ctl__clear):
            pin.value = 0
        self.dut.rst.value = 1
        for _ in range(3):
            self.ports.drive()
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.fill()
        await self._wake()

    async def _wake(self) -> None:
        """One instruction that leaves all memories, unobserved, and a clear.

        Icarus evaluates a combinational block when one of its inputs changes for the first time; the walkers' range checks look at
        address bits that change for nothing else.
        """
        dut = self.dut
        away = AccessPattern(1 << 31, DType.UINT8, ((1, 2),))
        aps = {"dst": away, "src0": away, "src1": away}
        word = encoding.encode(encoding.Instruction(Opcode.TENSOR_TENSOR, {"parts": 1}, aps))
        dut.ctl__issue__payload.value = int.from_bytes(word, "little")
        for cycle in range(30):
            dut.ctl__issue__valid.value = int(cycle == 0)
            dut.ctl__clear.value = int(cycle == 20)
            self.ports.drive()
            await FallingEdge(dut.clk)

    def fill(self) -> None:
        """New contents, in both memories and in the model; only while nothing runs."""
        for memory in (self.sbuf, self.psum):
            memory.data[:] = random_contents(memory.data.shape)
        self.adopt()

    def adopt(self) -> None:
        """The model's memory becomes what the engine has left."""
        self.core.sbuf[:], self.core.psum[:] = self.sbuf.data, self.psum.data

    async def cycle(self, *, clear: bool = False) -> None:
        """One clock cycle."""
        dut = self.dut
        await FallingEdge(dut.clk)
        self.ports.drive()
        if self.offered is None and self.queue and random.random() < self.issue_rate:
            word = int.from_bytes(self.queue[0], "little")
            self.offered = word | self.index << 1024 | int(Engine.VECTOR) << 1056
            dut.ctl__issue__payload.value = self.offered
        dut.ctl__issue__valid.value = int(self.offered is not None)
        update_ready = int(random.random() < self.update_rate)
        dut.ctl__update__ready.value = update_ready
        dut.ctl__clear.value = int(clear)
        await ReadOnly()
        self._observe(update_ready, clear)
        self.ports.settle()
        if clear:
            self.dead, self.calm = False, 0
            self.cleared = self.core.accumulators.copy(), self.core.random.copy()
            self.core.accumulators[:] = 0
            self.core.random[:] = seeded(0, CONFIG.partitions)
            self.update_refused = None
        self.cycle_count += 1

    def _observe(self, update_ready: int, clear: bool) -> None:
        dut = self.dut
        if self.sent and not self.dead:
            assert int(dut.ctl__busy.value) == 1, "not busy with an instruction under way"
        elif (
            self.calm > 2
        ):  # a clear may find a read on its way to a port: it comes there a cycle later, and is answered
            assert int(dut.ctl__busy.value) == 0, "busy with nothing to do"
        self.calm = self.calm + 1 if self.ports.quiet and (self.dead or not self.sent) else 0
        if int(dut.ctl__update__valid.value):
            self._update(int(dut.ctl__update__payload.value), update_ready)
        else:
            assert self.update_refused is None or clear or self.dead, "an update was withdrawn"
        was_dead = self.dead
        if int(dut.ctl__error_valid.value):
            assert not self.dead, "a second fault"
            self._fault(int(dut.ctl__error.value))
        if self.offered is not None and int(dut.ctl__issue__ready.value):
            assert not was_dead, "an instruction was accepted after a fault"
            self.sent.append((self.queue.popleft(), self.index))
            self.index, self.offered = self.index + 1, None

    def _update(self, payload: int, ready: int) -> None:
        assert not self.dead, "an update after a fault"
        assert self.sent, "an update of nothing"
        assert self.update_refused in (None, payload), "a waiting update changed"
        word, _ = self.sent[0]
        raw = encoding.raw_fields(word)
        want = raw["update_mode"] | raw["update_sem"] << 2 | (raw["update_value"] & 0xFFFFFFFF) << 10
        assert payload == want, f"update {payload:#x}, not {want:#x}"
        if self.update_refused is None:  # the first cycle in which its effects must be visible
            fault = execute(self.core, word)
            assert fault is None, f"an update instead of {fault}"
            self.compare(word)
        self.update_refused = None if ready else payload
        if ready:
            self.sent.popleft()
            self.updates.append(self.cycle_count)

    def _fault(self, error: int) -> None:
        code, engine, index, addr = error & 255, error >> 8 & 255, error >> 16 & 0xFFFFFFFF, error >> 48
        assert self.sent, "a fault of nothing"
        word, want_index = self.sent[0]
        assert (engine, index) == (int(Engine.VECTOR), want_index)
        before = self.core.sbuf.copy(), self.core.psum.copy()
        fault = execute(self.core, word)
        self.core.sbuf[:], self.core.psum[:] = before
        assert fault is not None, f"fault {code} of a legal instruction"
        if fault.code == ErrorCode.ILLEGAL_FIELD:
            assert (code, addr) == (ErrorCode.ILLEGAL_FIELD, 0)
        else:
            assert (code, addr) in range_faults(word), f"fault {code} at {addr:#x}, {range_faults(word)}"
        self.faults.append(ErrorCode(code))
        self.dead = True

    # --- memory ----------------------------------------------------------------------------------------------
    def compare(self, word: bytes) -> None:
        """The whole memory is the model's."""
        for name, mine, model in (
            ("sbuf", self.sbuf.data, self.core.sbuf),
            ("psum", self.psum.data, self.core.psum),
        ):
            if not np.array_equal(mine, model):
                at = np.argwhere(mine != model)[0].tolist()
                text = f"{name}{at} is {mine[tuple(at)]:#x}, not {model[tuple(at)]:#x}"
                raise AssertionError(f"{text} after {describe(word)}")

    def left_by_prefix(self, word: bytes, *, cleared: bool = False) -> int:
        """How many elements of an instruction that was stopped have been written. Fails when memory is none of those states.

        `cleared`: by a clear, which has changed more than memory.
        """
        sums, states = self.cleared if cleared else (self.core.accumulators, self.core.random)
        faults = range_faults(word)
        dst_size = results(word)
        most = min([dst_size, *faults.values()])
        for limit in range(most + 1):
            self.prefix.sbuf[:], self.prefix.psum[:] = self.core.sbuf, self.core.psum
            self.prefix.accumulators[:], self.prefix.random[:] = sums, states
            self.prefix.limit, self.prefix.results = limit, dst_size  # type: ignore[attr-defined]
            self.prefix.whole, self.prefix.block = read_first(word), block_of(word)  # type: ignore[attr-defined]
            if limit:
                assert execute(self.prefix, word) is None
            if np.array_equal(self.prefix.sbuf, self.sbuf.data) and np.array_equal(
                self.prefix.psum, self.psum.data
            ):
                return limit
        raise AssertionError(f"memory is not what a part of {describe(word)} leaves")

    # --- stories ---------------------------------------------------------------------------------------------
    def weather(self) -> None:
        """Other rates of everything outside."""
        self.ports.weather(random.choice([1.0, 1.0, 0.8, 0.5, 0.2]), random.choice([0, 0, 3]))
        self.issue_rate, self.update_rate = random.choice([1.0, 1.0, 0.3]), random.choice([1.0, 0.3])

    async def finish(self, most: int = 20000) -> None:
        """Until all queued instructions have given their updates, or one its fault."""
        for _ in range(most):
            if self.dead or not (self.queue or self.sent or self.offered is not None):
                return
            await self.cycle()
        raise AssertionError("did not finish")

    async def drain(self) -> None:
        """After a fault: until all is quiet; nothing may happen any more, however long one waits."""
        for _ in range(60):
            await self.cycle()
        self.ports.weather(1.0)
        for _ in range(20):
            await self.cycle()
        assert self.ports.quiet

    async def clear(self) -> None:
        """Clear, and forget what was under way."""
        await self.cycle(clear=True)
        self.sent.clear()
        self.queue.clear()
        if self.offered is not None:  # the sequencer forgets it, too
            self.offered = None


def describe(word: bytes) -> str:
    """An instruction for a person."""
    instr = encoding.raw_fields(word)
    small = {k: instr[k] for k in ("opcode", "parts", "op0", "op1", "flags", "imm0", "imm1")}
    return f"{small}, {[encoding.raw_ap(word, n) for n in ('dst', 'src0', 'src1')]}"
