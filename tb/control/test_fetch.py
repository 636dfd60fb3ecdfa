"""Instruction fetch from a memory that answers late, with errors, and is stopped at any moment."""

from collections import deque

import pytest

from models.isa import INSTR_BYTES
from rtl.control.fetch import BEATS, FetchConfig, InstructionFetch
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

MEMORY = 1 << 14
CONFIG = FetchConfig(prefetch=3, keep=8, memory_bytes=MEMORY)
CHIP = 7


class Memory:
    """Answers bursts; every instruction is its own number. `bad`: numbers that come with an error."""

    def __init__(self, ctx, dut, random, rate):
        self.ctx, self.dut, self.random, self.rate = ctx, dut, random, rate
        self.bursts = deque()
        self.bad = set()
        self.cycle = self.most = self.asked = 0

    async def step(self):
        """Drive, and move on one cycle; call after everything else is set."""
        ctx, read = self.ctx, self.dut.read
        grant = self.random.random() < self.rate
        due = bool(self.bursts) and self.bursts[0][0] <= self.cycle and self.random.random() < self.rate
        ctx.set(read.req.ready, grant)
        ctx.set(read.rsp.valid, due)
        if due:
            _, number, beat = self.bursts[0]
            ctx.set(read.rsp.payload.data, number << 8 | beat)
            ctx.set(read.rsp.payload.last, beat == BEATS - 1)
            ctx.set(read.rsp.payload.error, number in self.bad and beat == 2)
        if grant and ctx.get(read.req.valid):
            addr = ctx.get(read.req.payload.addr)
            assert addr % INSTR_BYTES == 0
            assert addr + INSTR_BYTES <= MEMORY
            assert ctx.get(read.req.payload.beats) == BEATS
            self.asked += 1
            self.bursts.append((self.cycle + self.random.choice([1, 10]), addr // INSTR_BYTES, 0))
            self.most = max(self.most, len(self.bursts))
        if due and ctx.get(read.rsp.ready):
            when, number, beat = self.bursts.popleft()
            if beat + 1 < BEATS:
                self.bursts.appendleft((when, number, beat + 1))
        await ctx.tick()
        self.cycle += 1


def _want(number):
    return sum((number << 8 | beat) << 128 * beat for beat in range(BEATS))


async def _start(ctx, dut, memory, address):
    ctx.set(dut.start, 1)
    ctx.set(dut.address, address)
    await memory.step()
    ctx.set(dut.start, 0)


async def _take(ctx, dut, memory, random, most=400):
    """The next item: (word, error), or None when none comes."""
    for _ in range(most):
        ready = random.random() < 0.5
        ctx.set(dut.out.ready, ready)
        if ready and ctx.get(dut.out.valid):
            item = ctx.get(dut.out.payload.instr.as_value()), ctx.get(dut.out.payload.error)
            await memory.step()
            ctx.set(dut.out.ready, 0)
            return item
        await memory.step()
    return None


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_streams_until_the_end_of_memory(rate):
    dut = InstructionFetch(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        memory = Memory(ctx, dut, random, rate)
        ctx.set(dut.chip_id, CHIP)
        for chip in (0xFFFF, CHIP):
            first = MEMORY // INSTR_BYTES - 9
            await _start(ctx, dut, memory, chip << 48 | 1 << 40 | first * INSTR_BYTES)
            for n in range(9):
                assert await _take(ctx, dut, memory, random) == (_want(first + n), 0)
            item = await _take(ctx, dut, memory, random)
            assert item is not None
            assert item[1] == 1, "beyond memory"
            assert await _take(ctx, dut, memory, random, 60) is None, "nothing after an error"
            ctx.set(dut.stop, 1)
            await memory.step()
            ctx.set(dut.stop, 0)
        assert memory.most <= CONFIG.prefetch

    simulate(dut, bench)


@pytest.mark.parametrize(
    "address",
    [
        1 << 40 | 64,
        0xFFFF << 48 | 1 << 40 | 1,
        8 << 48 | 1 << 40,
        0xFFFF << 48 | 16 << 40,
        0xFFFF << 48 | 1 << 40 | MEMORY,
    ],
)
def test_addresses_that_are_nothing(address):
    dut = InstructionFetch(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        memory = Memory(ctx, dut, random, 1.0)
        ctx.set(dut.chip_id, CHIP)
        await _start(ctx, dut, memory, address)
        item = await _take(ctx, dut, memory, random)
        assert item is not None
        assert item[1] == 1
        assert memory.cycle < 400
        assert memory.most == 0, "no burst for it"

    simulate(dut, bench)


def test_bus_error_and_stop_at_any_moment():
    dut = InstructionFetch(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        memory = Memory(ctx, dut, random, 0.7)
        for n in range(60):
            first = random.randrange(100)
            memory.bad = {first + 2} if n % 3 == 0 else set()
            await _start(ctx, dut, memory, 0xFFFF << 48 | 1 << 40 | first * INSTR_BYTES)
            for i in range(random.randrange(6)):
                item = await _take(ctx, dut, memory, random)
                if first + i in memory.bad:
                    assert item is not None
                    assert item[1] == 1
                    break
                assert item == (_want(first + i), 0)
            for _ in range(random.randrange(12)):
                await memory.step()
            ctx.set(dut.stop, 1)
            await memory.step()
            ctx.set(dut.stop, 0)
            assert not ctx.get(dut.out.valid)
        while not ctx.get(dut.idle):
            await memory.step()
        assert not memory.bursts

    simulate(dut, bench)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_jumps(rate):
    """Back, ahead, near, far, onto the end of memory, at any moment: the next item is the target."""
    dut = InstructionFetch(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()
    count = MEMORY // INSTR_BYTES

    async def bench(ctx):
        memory = Memory(ctx, dut, random, rate)
        first = 5
        await _start(ctx, dut, memory, 0xFFFF << 48 | 1 << 40 | first * INSTR_BYTES)
        at = 0
        memory.bad = {first + 40}
        for _ in range(400):
            for _ in range(random.randrange(7)):
                item = await _take(ctx, dut, memory, random)
                assert item is not None
                if first + at >= count or first + at in memory.bad:
                    assert item[1] == 1
                    break
                assert item == (_want(first + at), 0)
                at += 1
            for _ in range(random.choice([0, 0, 3, 40])):
                await memory.step()
            far = [0, 30, 38, count - first - 3, count - first, count + 50, (1 << 32) - 1]
            near = at + random.randrange(-8, 9)
            at = min(max(0, near), (1 << 32) - 1) if random.random() < 0.8 else random.choice(far)
            ctx.set(dut.jump, 1)
            ctx.set(dut.jump_to, at)
            await memory.step()
            ctx.set(dut.jump, 0)

    simulate(dut, bench)


def test_a_short_loop_needs_no_memory():
    """The turns of a loop that fits come from what is held, one instruction a cycle."""
    dut = InstructionFetch(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        memory = Memory(ctx, dut, random, 1.0)
        await _start(ctx, dut, memory, 0xFFFF << 48 | 1 << 40)
        for n in range(5):
            assert await _take(ctx, dut, memory, random) == (_want(n), 0)
        for _ in range(60):
            await memory.step()
        asked = memory.asked
        for _ in range(10):
            ctx.set(dut.jump, 1)
            ctx.set(dut.jump_to, 1)
            await memory.step()
            ctx.set(dut.jump, 0)
            ctx.set(dut.out.ready, 1)
            for n in range(1, 5):
                assert ctx.get(dut.out.valid)
                assert ctx.get(dut.out.payload.instr.as_value()) == _want(n)
                await memory.step()
            ctx.set(dut.out.ready, 0)
        assert memory.asked == asked

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"prefetch": 1}, "prefetch must be at least 2, not 1"),
        ({"keep": 4}, r"keep must be a power of two and at least twice prefetch \(4\), not 4"),
        ({"keep": 12}, "at least twice prefetch .*, not 12"),
        ({"memory_bytes": 100}, "memory_bytes must be a multiple of 128, not 100"),
    ],
)
def test_bad_configuration(change, text):
    with pytest.raises(ValueError, match=text):
        FetchConfig(**{"prefetch": 4, "keep": 8, "memory_bytes": MEMORY, **change})
