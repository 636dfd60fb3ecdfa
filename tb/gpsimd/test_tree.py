"""ReduceTree and its levels against the functional model: order, identities, pace, clears."""

import numpy as np
import pytest

from models.gpsimd import REDUCING, tree
from rtl.gpsimd.tree import PACE, ReduceTree, TreeConfig, TreeLevel
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


def numbers(random, count):
    corners = (0, 1 << 31, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x7F7FFFFF, 0xFF7FFFFF)
    bits = [
        random.choice(corners)
        if random.random() < 0.2
        else random.getrandbits(1) << 31 | random.randint(110, 140) << 23 | random.getrandbits(23)
        for _ in range(count)
    ]
    return np.array(bits, dtype=np.uint32)


def packed(words):
    return int.from_bytes(words.astype("<u4").tobytes(), "little")


def drive(dut, random, op, cases, check, latency):
    """Cases at any distance from PACE on; each result comes exactly `latency` cycles later."""

    async def bench(ctx):
        due, at, n, cycle = {}, 0, 0, 0
        ctx.set(dut.op, op.value)
        while n < len(cases) or due:
            valid = n < len(cases) and cycle >= at
            ctx.set(dut.valid, valid)
            ctx.set(dut.data.as_value(), packed(cases[n]) if valid else random.getrandbits(64))
            assert ctx.get(dut.o_valid) == (cycle in due)
            if cycle in due:
                check(ctx, cases[due.pop(cycle)])
            if valid:
                due[cycle + latency] = n
                n, at = n + 1, cycle + PACE + random.choice([0, 0, 1, 5])
            await ctx.tick()
            cycle += 1
        # a clear with one under way
        ctx.set(dut.valid, 1)
        await ctx.tick()
        ctx.set(dut.valid, 0)
        for _ in range(random.randrange(latency - 1)):
            await ctx.tick()
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for _ in range(latency + 2):
            assert not ctx.get(dut.o_valid)
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("op", REDUCING, ids=lambda o: o.name)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_tree(lanes, op):
    random, config = rng(), TreeConfig(lanes=lanes)
    dut = ReduceTree(config, tiles=TileLibrary(inline=True))

    def check(ctx, case):
        want = tree(op, case.view(np.float32)[:, None], lanes).view(np.uint32)[0]
        assert ctx.get(dut.o) == want

    drive(dut, random, op, [numbers(random, lanes) for _ in range(12)], check, config.latency)


@pytest.mark.parametrize("lanes", [2, 4, 32])
def test_level(lanes):
    random, config = rng(), TreeConfig(lanes=lanes)
    dut = TreeLevel(config, tiles=TileLibrary(inline=True))
    op = random.choice(REDUCING)

    def check(ctx, case):
        pairs = case.view(np.float32).reshape(-1, 2).T
        assert ctx.get(dut.o.as_value()) == packed(tree(op, pairs, 2).view(np.uint32))

    drive(dut, random, op, [numbers(random, lanes) for _ in range(10)], check, config.level_latency)


def test_bad_configuration():
    with pytest.raises(ValueError, match="lanes must be a power of two from 2, not 12"):
        TreeConfig(lanes=12)
