"""SumControl and LaneSums together against models.fp: sums at full pace, totals, clears."""

import numpy as np
from amaranth import Module
from amaranth.lib import wiring

from models import fp
from models.fp import PARTIALS
from models.isa import AluOp
from rtl.scalar.sums import READ_LATENCY, LaneSums, SumControl, SumsConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CORNERS = (0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x7F7FFFFF, 0x3F800000)


class Both(wiring.Component):
    """A lane under its control."""

    def __init__(self):
        tiles = TileLibrary(inline=True)
        self.control, self.lane = SumControl(SumsConfig(), tiles=tiles), LaneSums(SumsConfig(), tiles=tiles)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.control, m.submodules.lane = self.control, self.lane
        m.d.comb += self.lane.ctl.eq(self.control.o)
        return m


async def _pulse(ctx, *ports):
    for port in ports:
        ctx.set(port, 1)
    await ctx.tick()
    for port in ports:
        ctx.set(port, 0)


def _value(r):
    style = r.random()
    return r.choice(CORNERS) if style < 0.1 else int(np.float32(r.gauss(0, 100)).view(np.uint32))


def test_sums_and_totals():
    r = rng()
    sums = np.zeros((1, PARTIALS), dtype=np.float32)

    async def bench(ctx):
        control, lane = dut.control, dut.lane

        async def total():
            negate = r.getrandbits(1)
            ctx.set(control.negate, negate)
            await _pulse(ctx, control.read)
            await ctx.tick().repeat(READ_LATENCY - 1)
            assert ctx.get(control.o.show)
            want = int(fp.reduce(AluOp.ADD, sums).view(np.uint32)[0]) ^ negate << 31
            assert ctx.get(lane.o) == want

        await total()
        for _ in range(60):
            on, fresh, mine = r.random() < 0.8, r.random() < 0.4, r.random() < 0.8
            ctx.set(control.on, on)
            ctx.set(control.fresh, on and fresh)
            ctx.set(lane.mine, mine)
            await _pulse(ctx, control.start)
            values = [_value(r) for _ in range(r.choice((0, 1, 3, 4, 5, 17)))]
            for value in values:
                while r.random() < 0.2:
                    await ctx.tick()
                ctx.set(lane.x, value)
                await _pulse(ctx, control.enters)
                ctx.set(lane.x, r.getrandbits(32))
            await ctx.tick().repeat(2)
            if on and mine:
                if fresh:
                    sums[:] = fp.identity(AluOp.ADD)
                fp.accumulate(AluOp.ADD, np.array([values], dtype=np.uint32).view(np.float32), sums)
            if r.random() < 0.1:
                ctx.set(lane.mine, 1)
                await _pulse(ctx, control.clear)
                sums[:] = 0
            await total()

    dut = Both()
    simulate(dut, bench)


def test_clear_forgets_what_is_under_way():
    async def bench(ctx):
        control, lane = dut.control, dut.lane
        for port in (control.on, lane.mine):
            ctx.set(port, 1)
        await _pulse(ctx, control.start)
        ctx.set(lane.x, 0x3F800000)
        await _pulse(ctx, control.enters)
        await _pulse(ctx, control.read)
        await _pulse(ctx, control.clear)
        for _ in range(READ_LATENCY + 3):
            assert not ctx.get(control.o.show)
            assert not ctx.get(control.o.put)
            await ctx.tick()
        await _pulse(ctx, control.read)
        await ctx.tick().repeat(READ_LATENCY - 1)
        assert ctx.get(control.o.show)
        assert ctx.get(lane.o) == 0

    dut = Both()
    simulate(dut, bench)
