"""Pattern sizes against Python's integers."""

import pytest

from rtl.access.size import LATENCY, PatternSize, SizeConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_products_saturate_and_zero_wins(bits):
    dut = PatternSize(SizeConfig(bits=bits), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        for n in range(300):
            counts = [
                random.choice(
                    [0 if random.random() < 0.2 else 1, 1, 2, 7, 255, 65535, random.randrange(65536)]
                )
                for _ in range(4)
            ]
            if n % 5 == 0:  # a start that is overtaken by the next one
                ctx.set(dut.start, 1)
                for i in range(4):
                    ctx.set(dut.counts[i], random.randrange(65536))
                await ctx.tick()
            ctx.set(dut.start, 1)
            for i, count in enumerate(counts):
                ctx.set(dut.counts[i], count)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for _ in range(LATENCY - 1):
                await ctx.tick()
            product = counts[0] * counts[1] * counts[2] * counts[3]
            assert ctx.get(dut.size) == min(product, (1 << bits) - 1), counts
            if random.random() < 0.5:
                await ctx.tick()
                assert ctx.get(dut.size) == min(product, (1 << bits) - 1)

    simulate(dut, bench)


def test_bad_configuration():
    with pytest.raises(ValueError, match="bits must be at least 16, not 8"):
        SizeConfig(bits=8)
