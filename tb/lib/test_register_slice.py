"""RegisterSlice: order, capacity, rate, and registers on both sides."""

from collections import deque

import pytest

from rtl.lib.register_slice import RegisterSlice, SliceConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


@pytest.mark.parametrize(("push", "pop"), [(1.0, 1.0), (0.5, 0.9), (0.9, 0.3)])
def test_against_a_queue_of_two(push, pop):
    dut = RegisterSlice(SliceConfig(width=16), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        held: deque[int] = deque()
        offered, taken, full = None, 0, 0
        for _ in range(600):
            if offered is None and random.random() < push:
                offered = random.getrandbits(16)
            ready = random.random() < pop
            ctx.set(dut.i.valid, offered is not None)
            ctx.set(dut.i.payload, offered or 0)
            before = (ctx.get(dut.i.ready), ctx.get(dut.o.valid), ctx.get(dut.o.payload))
            ctx.set(dut.o.ready, ready)
            assert before == (ctx.get(dut.i.ready), ctx.get(dut.o.valid), ctx.get(dut.o.payload))
            assert before[:2] == (len(held) < 2, len(held) > 0)
            full += len(held) == 2
            if held:
                assert before[2] == held[0]
                if ready:
                    held.popleft()
                    taken += 1
            if before[0] and offered is not None:
                held.append(offered)
                offered = None
            await ctx.tick()
        assert taken > 100
        if push == pop:
            assert taken == 599
        if push > pop:
            assert full > 100

    simulate(dut, bench)


def test_bad_configuration():
    with pytest.raises(ValueError, match="width must be at least 1, not 0"):
        SliceConfig(width=0)
