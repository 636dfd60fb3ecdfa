"""A core's registers and semaphore windows from the host's side."""

from typing import Any

import pytest
from amaranth import Signal
from amaranth.hdl import Fragment

from models import registers
from models.config import find
from models.isa import Engine, UpdateMode
from models.registers import CORE
from rtl.control.registers import COUNTERS, CoreRegisters, counter_offsets
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = find("nano")


async def _access(ctx, dut, write, addr, data=0, strobe=15):
    """One access; returns (data, error)."""
    req, rsp = dut.control.req, dut.control.rsp
    for name, value in (("write", write), ("addr", addr), ("data", data), ("strb", strobe)):
        ctx.set(getattr(req.payload, name), value)
    ctx.set(req.valid, 1)
    while not ctx.get(req.ready):
        await ctx.tick()
    await ctx.tick()
    ctx.set(req.valid, 0)
    ctx.set(rsp.ready, 1)
    for _ in range(50):
        if ctx.get(rsp.valid):
            out = ctx.get(rsp.payload.data), ctx.get(rsp.payload.error)
            await ctx.tick()
            ctx.set(rsp.ready, 0)
            return out
        await ctx.tick()
    raise AssertionError("no answer")


def _dut():
    return CoreRegisters(CONFIG, tiles=TileLibrary(inline=True))


def test_every_register():
    dut = _dut()
    random = rng()

    async def bench(ctx):
        state = {f"INDEX_{e.name}": random.getrandbits(32) for e in Engine}
        for e in Engine:
            ctx.set(dut.index[e], state[f"INDEX_{e.name}"])
        first = {
            "ERR_CODE": 4,
            "ERR_ENGINE": 1,
            "ERR_INDEX": 77,
            "ERR_ADDR_LO": 0x89ABCDEF,
            "ERR_ADDR_HI": 0x1234567,
        }
        for name, value in zip(("code", "engine", "index"), (4, 1, 77), strict=True):
            ctx.set(getattr(dut.first, name), value)
        ctx.set(dut.first.addr, 0x1234567 << 32 | 0x89ABCDEF)
        state |= first
        counters = {half for name in COUNTERS for half in counter_offsets(name)}
        for r in registers.CORE_REGISTERS:
            if r.access == "rw":
                value = random.getrandbits(32)
                assert await _access(ctx, dut, 1, r.offset, value) == (0, 0), r.name
                assert await _access(ctx, dut, 1, r.offset, ~value & 0xFFFFFFFF, 7) == (0, 1), (
                    "three bytes of a word"
                )
                state[r.name] = value
        for r in registers.CORE_REGISTERS:
            if r.access == "ro":
                assert (await _access(ctx, dut, 1, r.offset, 1))[1] == 1, f"{r.name} is read-only"
            got = await _access(ctx, dut, 0, r.offset)
            assert got[1] == 0, r.name
            if r.offset in counters or r.name == "STATUS":
                continue
            assert got[0] == state.get(r.name, 0), r.name
        for e in Engine:
            assert (
                ctx.get(dut.program[e]) == state[f"PROGRAM_HI_{e.name}"] << 32 | state[f"PROGRAM_LO_{e.name}"]
            )
        assert ctx.get(dut.watchdog) == state["WATCHDOG"]
        known = {r.offset for r in registers.CORE_REGISTERS}
        for addr in (
            0x24,
            0x90 + 4,
            0xF0,
            0xFFC,
            0x5000,
            0x1000 + 4 * CONFIG.core.semaphores,
            0x1002,
            0x2001,
        ):
            assert addr not in known
            assert await _access(ctx, dut, 0, addr) == (0, 1), f"{addr:#x}"
            assert await _access(ctx, dut, 1, addr, 1) == (0, 1), f"{addr:#x}"

    simulate(dut, bench)


def test_start_clear_status():
    dut = _dut()

    async def bench(ctx):
        pulses = []

        async def ring(name, value):
            task = []
            req = dut.control.req
            for n, v in (("write", 1), ("addr", CORE[name]), ("data", value), ("strb", 15)):
                ctx.set(getattr(req.payload, n), v)
            ctx.set(req.valid, 1)
            ctx.set(dut.control.rsp.ready, 1)
            for _ in range(6):
                task.append(tuple(ctx.get(s) for s in (dut.start, dut.clear, dut.clear_semaphores)))
                accepted = ctx.get(req.ready)
                await ctx.tick()
                if accepted:
                    ctx.set(req.valid, 0)
            ctx.set(dut.control.rsp.ready, 0)
            return [t for t in task if any(t)]

        ctx.set(dut.running, 0b010)
        assert await ring("DOORBELL", 0b111) == [(0b101, 0, 0)], "a running engine is not started again"
        ctx.set(dut.failed, 1)
        assert await ring("DOORBELL", 0b111) == []
        assert await ring("CLEAR", 0b001) == [(0, 1, 0)]
        assert await ring("CLEAR", 0b100) == [(0, 0, 1)]
        ctx.set(dut.failed, 0)
        assert not pulses

        async def status():
            return (await _access(ctx, dut, 0, CORE["STATUS"]))[0]

        assert await status() == 0b010
        ctx.set(dut.dma_busy, 1)
        ctx.set(dut.busy, 1)
        assert await status() == 0b010 | 1 << 8
        ctx.set(dut.running, 0)
        ctx.set(dut.dma_busy, 0)
        ctx.set(dut.busy, 0)
        assert await status() == 0, "CLEAR forgot that something had been started"
        assert await ring("DOORBELL", 0b001) == [(0b001, 0, 0)]
        assert await status() == 1 << 17
        ctx.set(dut.failed, 1)
        assert await status() == 1 << 16

    simulate(dut, bench)


def test_counters():
    dut = _dut()
    random = rng()

    async def bench(ctx):
        want = dict.fromkeys(COUNTERS, 0)
        runs = 0
        for _ in range(300):
            tick = random.getrandbits(len(COUNTERS) - 1)
            run = random.random() < 0.9
            ctx.set(dut.count, tick)
            ctx.set(dut.busy, run)
            await ctx.tick()
            for i, name in enumerate(COUNTERS[1:]):
                want[name] += tick >> i & 1
            runs = runs + 1 if run and runs else 1 if run else 0
            want["CYCLES"] = runs if run else want["CYCLES"]
        ctx.set(dut.count, 0)
        ctx.set(dut.busy, 0)
        for name in COUNTERS:
            low, high = counter_offsets(name)
            assert (await _access(ctx, dut, 0, low))[0] == want[name], name
            assert await _access(ctx, dut, 0, high) == (0, 0)
        await _access(ctx, dut, 1, CORE["CLEAR"], 2)
        for name in COUNTERS:
            assert await _access(ctx, dut, 0, counter_offsets(name)[0]) == (0, 0)

    simulate(dut, bench)


def _registers_inside(fragment: Any) -> dict[str, Signal]:
    """Signals that a design drives, by name: a counter takes years to carry by itself."""
    found = {
        signal.name: signal
        for statements in fragment.statements.values()
        for statement in statements
        for signal in statement._lhs_signals()
    }
    for inner, *_ in fragment.subfragments:
        found |= _registers_inside(inner)
    return found


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_reads_as_one_number(name):
    """The high word belongs to the low word read before it, however much later it is asked for."""
    dut = _dut()
    random = rng()
    fragment = Fragment.get(dut, None)
    counter = _registers_inside(fragment)[f"counter_{name.lower()}"]

    async def bench(ctx):
        low, high = counter_offsets(name)
        ctx.set(dut.count, (1 << len(COUNTERS) - 1) - 1)
        ctx.set(dut.busy, 1)
        await ctx.tick()
        await ctx.tick()
        crossed = 0
        for _ in range(60):
            top = random.randrange(1 << 20)
            before = (top << 32) + (1 << 32) - random.randrange(1, 12)
            ctx.set(counter, before)
            first = (await _access(ctx, dut, 0, low))[0]
            after = ctx.get(counter)
            for _ in range(random.randrange(12)):
                await ctx.tick()
            if random.random() < 0.5:  # another access, or another counter's low word, changes nothing
                other = random.choice([n for n in COUNTERS if n != name])
                await _access(ctx, dut, 0, random.choice([CORE["STATUS"], counter_offsets(other)[0]]))
            second = (await _access(ctx, dut, 0, high))[0]
            assert before <= second << 32 | first <= after
            crossed += ctx.get(counter) >> 32 != second
        assert crossed > 5, "a carry between the two reads"

    simulate(fragment, bench)


def test_semaphore_windows():
    dut = _dut()
    random = rng()

    async def bench(ctx):
        windows = [
            (registers.SEM_SET, UpdateMode.SET),
            (registers.SEM_ADD, UpdateMode.ADD),
            (registers.SEM_SUB, UpdateMode.SUB),
        ]
        for _ in range(40):
            window, mode = random.choice(windows)
            sem, value = random.randrange(CONFIG.core.semaphores), random.getrandbits(32)
            ctx.set(dut.sem_value, -5)
            for base in (registers.SEM_READ, window):
                assert await _access(ctx, dut, 0, base + 4 * sem) == (0xFFFFFFFB, 0)
                assert ctx.get(dut.sem) == sem
            req = dut.control.req
            for n, v in (("write", 1), ("addr", window + 4 * sem), ("data", value), ("strb", 15)):
                ctx.set(getattr(req.payload, n), v)
            ctx.set(req.valid, 1)
            await ctx.tick()
            ctx.set(req.valid, 0)
            for _ in range(random.randrange(4)):
                assert ctx.get(dut.update.valid), "the operation waits for the semaphores"
                assert not ctx.get(dut.control.rsp.valid)
                await ctx.tick()
            ctx.set(dut.update.ready, 1)
            assert ctx.get(dut.update.payload.mode) == mode
            assert ctx.get(dut.update.payload.sem) == sem
            assert ctx.get(dut.update.payload.value) & 0xFFFFFFFF == value
            await ctx.tick()
            ctx.set(dut.update.ready, 0)
            ctx.set(dut.control.rsp.ready, 1)
            assert ctx.get(dut.control.rsp.valid)
            assert not ctx.get(dut.control.rsp.payload.error)
            assert not ctx.get(dut.update.valid), "once"
            await ctx.tick()
            ctx.set(dut.control.rsp.ready, 0)
        assert await _access(ctx, dut, 1, registers.SEM_READ, 1) == (0, 1)
        assert await _access(ctx, dut, 1, registers.SEM_SET, 1, 3) == (0, 1)

    simulate(dut, bench)
