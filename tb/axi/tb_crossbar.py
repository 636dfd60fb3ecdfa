"""MemoryCrossbar between random requesters and AXI memories: data, order, errors, protocol, rate."""

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer

from sim.runner import params
from tb.lib.axi_memory import BEAT, AxiMemory

PAGE = 4096


class Requester:
    """One reader or writer: random bursts within its own pages, answers checked in order."""

    def __init__(self, bench: "Bench", kind: str, number: int):
        self.bench, self.kind, self.prefix = bench, kind, f"{kind}{number}"
        self.rate, self.left = 1.0, 0
        self.offered: tuple[int, int] | None = None
        self.expected: deque[tuple[int, bool, bool]] = deque()
        self.data: deque[tuple[int, int, int]] = deque()  # address, value, strobe
        self.shown = False
        self.answers: deque[bool] = deque()
        self.done = self.beats = 0
        self.pages: list[int] = []
        for pin in (
            ("req__valid", "rsp__ready") if kind == "reader" else ("req__valid", "data__valid", "done__ready")
        ):
            self.pin(pin).value = 0

    def pin(self, name: str) -> Any:
        return getattr(self.bench.dut, f"{self.prefix}__{name}")

    def drive(self) -> None:
        if self.offered is None and self.left and random.random() < self.rate:
            beats = random.choice([1, 2, 8, 16, random.randint(1, 64)])
            addr = random.choice(self.pages) * PAGE + BEAT * random.randint(0, PAGE // BEAT - beats)
            self.offered, self.left = (addr, beats), self.left - 1
        self.pin("req__valid").value = int(self.offered is not None)
        if self.offered:
            self.pin("req__payload").value = self.offered[0] | self.offered[1] << 40
        self.ready = int(random.random() < self.rate)
        if self.kind == "reader":
            self.pin("rsp__ready").value = self.ready
        else:
            self.pin("done__ready").value = self.ready
            self.shown = self.shown or (bool(self.data) and random.random() < self.rate)
            self.pin("data__valid").value = int(self.shown)
            if self.shown:
                self.pin("data__payload").value = self.data[0][1] | self.data[0][2] << 128

    def settle(self) -> None:
        bench = self.bench
        if self.kind == "reader":
            if int(self.pin("rsp__valid").value) and self.ready:
                payload = int(self.pin("rsp__payload").value)
                addr, last, error = self.expected.popleft()
                want = int.from_bytes(bench.image[addr : addr + BEAT].tobytes(), "little")
                assert payload & (1 << 128) - 1 == want, f"{self.prefix}: beat at {addr:#x}"
                assert payload >> 128 == (int(error) | int(last) << 1)
                self.beats += 1
                self.done += last
        else:
            if self.shown and int(self.pin("data__ready").value):
                self.shown = False
                addr, value, strobe = self.data.popleft()
                if addr // PAGE not in bench.bad:
                    raw = value.to_bytes(BEAT, "little")
                    for i in range(BEAT):
                        if strobe >> i & 1:
                            bench.image[addr + i] = raw[i]
                self.beats += 1
            if int(self.pin("done__valid").value) and self.ready:
                assert int(self.pin("done__payload").value) == int(self.answers.popleft()), self.prefix
                self.done += 1
        if self.offered and int(self.pin("req__ready").value):
            addr, beats = self.offered
            self.offered = None
            bad = addr // PAGE in bench.bad
            for i in range(beats):
                if self.kind == "reader":
                    self.expected.append((addr + BEAT * i, i == beats - 1, bad))
                else:
                    self.data.append(
                        (
                            addr + BEAT * i,
                            random.getrandbits(128),
                            random.choice([0xFFFF, random.getrandbits(16)]),
                        )
                    )
            if self.kind == "writer":
                self.answers.append(bad)

    @property
    def quiet(self) -> bool:
        return not (self.left or self.offered or self.expected or self.data or self.answers)


class Bench:
    """All ports; `image` is the memory as seen through the interleaving."""

    def __init__(self, dut: Any):
        self.dut = dut
        p = params()
        self.channels = p["channels"]
        self.image = np.frombuffer(random.randbytes(p["bytes"]), dtype=np.uint8).copy()
        self.bad: set[int] = set()
        ids = max(p["readers"], p["writers"])
        self.memories = [
            AxiMemory(dut, f"m_axi_mem{c}", p["bytes"] // self.channels, ids=ids)
            for c in range(self.channels)
        ]
        self.requesters = [Requester(self, "reader", i) for i in range(p["readers"])]
        self.requesters += [Requester(self, "writer", i) for i in range(p["writers"])]
        pages = list(range(p["bytes"] // PAGE))
        readable = pages[: len(pages) // 2]
        for r in self.requesters:
            r.pages = readable
        writers = [r for r in self.requesters if r.kind == "writer"]
        for i, w in enumerate(
            writers
        ):  # each its own pages, so that the order between writers does not matter
            w.pages = pages[len(pages) // 2 :][i :: len(writers)]
        self.cycles = 0

    async def start(self) -> None:
        Clock(self.dut.clk, 10, unit="ns", impl="gpi").start()
        cocotb.log.info("seed %d", cocotb.RANDOM_SEED)
        self.dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.spread()

    def spread(self) -> None:
        for page in range(self.image.size // PAGE):
            memory, local = self.memories[page % self.channels], page // self.channels
            memory.data[local * PAGE : (local + 1) * PAGE] = self.image[page * PAGE : (page + 1) * PAGE]
            if page in self.bad:
                memory.bad_pages.add(local)

    def gather(self) -> np.ndarray:
        out = np.zeros_like(self.image)
        for page in range(self.image.size // PAGE):
            local = page // self.channels
            out[page * PAGE : (page + 1) * PAGE] = self.memories[page % self.channels].data[
                local * PAGE : (local + 1) * PAGE
            ]
        return out

    async def cycle(self) -> None:
        await FallingEdge(self.dut.clk)
        for port in (*self.requesters, *self.memories):
            port.drive()
        if any(m.together for m in self.memories):
            await Timer(1, unit="ns")
            for memory in self.memories:
                memory.react()
        await ReadOnly()
        for port in (*self.requesters, *self.memories):
            port.settle()
        self.cycles += 1

    async def finish(self, most: int = 40000) -> None:
        for _ in range(most):
            if all(r.quiet for r in self.requesters):
                return
            await self.cycle()
        raise AssertionError(f"stuck: {[r.prefix for r in self.requesters if not r.quiet]}")


@cocotb.test()
async def random_traffic(dut: Any) -> None:
    """All ports at once under changing weather; every beat, every answer, the whole memory."""
    bench = Bench(dut)
    await bench.start()
    for _ in range(params()["rounds"]):
        for r in bench.requesters:
            r.rate, r.left = random.choice([1.0, 0.6, 0.2]), 12
        for memory in bench.memories:
            memory.rate, memory.latency = random.choice([1.0, 0.5, 0.2]), random.choice([1, 4, 20])
        await bench.finish()
        assert np.array_equal(bench.gather(), bench.image)
    assert all(r.done == 12 * params()["rounds"] for r in bench.requesters)


@cocotb.test()
async def errors_reach_their_requester(dut: Any) -> None:
    """Pages that answer SLVERR, read and written: exactly their bursts carry the error."""
    bench = Bench(dut)
    last = bench.image.size // PAGE - 1
    bench.bad = {0, last}
    await bench.start()
    for r in bench.requesters:
        r.left, r.rate = 10, 0.8
        r.pages = [r.pages[0], r.pages[-1], 0 if r.kind == "reader" else last]
    await bench.finish()
    assert np.array_equal(bench.gather(), bench.image)


@cocotb.test()
async def slave_that_wants_both(dut: Any) -> None:
    """Field report A18: AWREADY and WREADY only when AWVALID and WVALID are high."""
    bench = Bench(dut)
    await bench.start()
    for memory in bench.memories:
        memory.together, memory.rate = True, 0.7
    for r in bench.requesters:
        r.left = 10 if r.kind == "writer" else 0
    await bench.finish()
    assert np.array_equal(bench.gather(), bench.image)


@cocotb.test()
async def slow_taker_holds_nobody_for_good(dut: Any) -> None:
    """One reader takes a beat in fifty cycles; the others and it come to an end."""
    bench = Bench(dut)
    await bench.start()
    for r in bench.requesters:
        r.left = 6
    bench.requesters[0].rate = 0.02
    bench.requesters[0].left = 2
    await bench.finish()


@cocotb.test()
async def one_beat_a_cycle(dut: Any) -> None:
    """One reader, bursts of 64 beats in one channel's pages, memory latency 20: 0.95 beats a cycle; the same for a writer."""
    bench = Bench(dut)
    await bench.start()
    for memory in bench.memories:
        memory.rate, memory.latency = 1.0, 20
    for r in (bench.requesters[0], bench.requesters[-1]):
        r.pages = [r.pages[0]]
        start, before = bench.cycles, r.beats
        bursts = [r.pages[0] * PAGE + 1024 * (i % 4) for i in range(24)]
        while bursts or not r.quiet:
            if r.offered is None and bursts:
                r.offered = (bursts.pop(0), 64)
            await bench.cycle()
        assert (r.beats - before) / (bench.cycles - start) >= 0.95, (
            f"{r.prefix}: {r.beats - before} in {bench.cycles - start}"
        )
