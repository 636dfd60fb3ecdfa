"""GatherControl: every group's indices, one walk, what they caught; stalls and clears."""

from rtl.gpsimd.gather import SLOTS, GatherControl
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


def wanted(count: int, size: int) -> list[tuple]:
    """What happens, in order."""
    out: list[tuple] = []
    for first in range(0, count, SLOTS):
        group = min(SLOTS, count - first)
        out += [("put", slot) for slot in range(group)]
        out.append(("walk",))
        out += [("take", n) for n in range(size)]
        out += [("get", slot) for slot in range(group)]
    return out


def test_groups_in_order():
    random = rng()
    dut = GatherControl(None, tiles=TileLibrary(inline=True))

    async def run(ctx, count, size, most, rate):
        """Events of a gather, at most so many cycles of it."""
        seen: list[tuple] = []
        left = 0
        ctx.set(dut.start, 1)
        ctx.set(dut.count, count)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for _ in range(most):
            there, walks, indices, room = (random.random() < rate for _ in range(4))
            ctx.set(dut.index_valid, indices)
            ctx.set(dut.walk_ready, walks)
            ctx.set(dut.element_valid, there and left > 0)
            ctx.set(dut.element_last, left == 1)
            ctx.set(dut.room, room)
            ready = ctx.get(dut.index_ready), ctx.get(dut.element_ready)
            if ctx.get(dut.put):
                seen.append(("put", ctx.get(dut.slot)))
                assert indices
                assert ready[0]
            if ctx.get(dut.walk_valid) and walks:
                seen.append(("walk",))
                left = size
            if ctx.get(dut.take):
                seen.append(("take", ctx.get(dut.number)))
                assert ready[1]
                left -= 1
            if ctx.get(dut.get):
                seen.append(("get", ctx.get(dut.slot)))
                assert room
            await ctx.tick()
        return seen

    async def bench(ctx):
        for n in range(60):
            count, size = random.choice([0, 1, 7, 8, 9, 16, 30]), random.choice([1, 2, 5, 20])
            rate = random.choice([1.0, 0.5])
            if n % 3 == 2:
                seen = await run(ctx, count, size, random.randrange(60), rate)
                assert seen == wanted(count, size)[: len(seen)]
                ctx.set(dut.clear, 1)
                assert not ctx.get(dut.put) | ctx.get(dut.take) | ctx.get(dut.get) | ctx.get(dut.walk_valid)
                await ctx.tick()
                ctx.set(dut.clear, 0)
            else:
                want = wanted(count, size)
                assert await run(ctx, count, size, 8 * len(want) + 60, rate) == want

    simulate(dut, bench)
