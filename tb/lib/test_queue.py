"""Queue: order, capacity, rate, clear."""

from collections import deque

import pytest

from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


@pytest.mark.parametrize("depth", [2, 3, 8])
@pytest.mark.parametrize(("push", "pop"), [(1.0, 1.0), (0.5, 0.9), (0.9, 0.3)])
def test_order_and_capacity(depth, push, pop):
    dut = Queue(QueueConfig(width=16, depth=depth), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        held: deque[int] = deque()
        offered, taken, full = None, 0, 0
        for _ in range(600):
            clear = random.random() < 0.01
            if offered is None and random.random() < push:
                offered = random.getrandbits(16)
            ready = random.random() < pop
            ctx.set(dut.i.valid, offered is not None)
            ctx.set(dut.i.payload, offered or 0)
            ctx.set(dut.o.ready, ready)
            ctx.set(dut.clear, clear)
            assert ctx.get(dut.level) == len(held)
            if ctx.get(dut.o.valid):
                assert ctx.get(dut.o.payload) == held[0]
                if ready:
                    held.popleft()
                    taken += 1
            if len(held) == depth and not ready:
                full += 1
            if ctx.get(dut.i.ready) and offered is not None:
                held.append(offered)
                offered = None
            assert len(held) <= depth
            if clear:
                held.clear()
            await ctx.tick()
        assert taken > 100
        if push > pop:
            assert full > 10

    simulate(dut, bench)


def test_one_a_cycle():
    dut = Queue(QueueConfig(width=8, depth=4), tiles=TileLibrary(inline=True))

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        got = []
        for n in range(50):
            ctx.set(dut.i.payload, n)
            assert ctx.get(dut.i.ready)
            if ctx.get(dut.o.valid):
                got.append(ctx.get(dut.o.payload))
            await ctx.tick()
        assert got == list(range(48))

    simulate(dut, bench)


@pytest.mark.parametrize(("key", "value", "least"), [("width", 0, 1), ("depth", 1, 2)])
def test_bad_configuration(key, value, least):
    with pytest.raises(ValueError, match=f"{key} must be at least {least}, not {value}"):
        QueueConfig(**{"width": 4, "depth": 4, key: value})
