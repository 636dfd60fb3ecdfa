"""Delay lines, single and chained."""

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.lib.delay import Delay, DelayConfig, delayed
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


class Chain(wiring.Component):
    """`delayed` of any number of cycles."""

    def __init__(self, width, cycles):
        self.cycles = cycles
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(delayed(m, TileLibrary(inline=True), "line", self.i, self.cycles))
        return m


@pytest.mark.parametrize(("width", "cycles"), [(1, 1), (8, 2), (33, 3), (5, 17)])
@pytest.mark.parametrize("chain", [False, True])
def test_what_goes_in_comes_out(width, cycles, chain):
    if chain:
        dut = Chain(width, cycles)
    else:
        dut = Delay(DelayConfig(width=width, cycles=cycles), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        sent = []
        for n in range(100):
            sent.append(random.getrandbits(width))
            ctx.set(dut.i, sent[-1])
            if n >= cycles:
                assert ctx.get(dut.o) == sent[n - cycles]
            await ctx.tick()

    simulate(dut, bench)


def test_no_delay_is_the_value_itself():
    m = Module()
    m._MustUse__silence = True
    value = object()
    assert delayed(m, TileLibrary(inline=True), "none", value, 0) is value


@pytest.mark.parametrize(("key", "value"), [("width", 0), ("cycles", 0)])
def test_bad_configuration(key, value):
    with pytest.raises(ValueError, match=f"{key} must be at least 1, not {value}"):
        DelayConfig(**{"width": 4, "cycles": 4, key: value})
