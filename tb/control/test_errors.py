"""Error unit: the first error stays, the watchdog counts only what it should."""

import pytest

from models.isa import ErrorCode
from rtl.control.errors import ErrorConfig, ErrorUnit
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = ErrorConfig(sources=4, waiters=3)


def _first(ctx, dut):
    return tuple(ctx.get(getattr(dut.first, n)) for n in ("code", "engine", "index", "addr"))


def test_first_error_stays_until_clear():
    dut = ErrorUnit(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        kept = None
        for _ in range(600):
            errors = {}
            for k in range(CONFIG.sources):
                valid = random.random() < 0.1
                item = (
                    random.randint(1, 8),
                    random.randrange(3),
                    random.getrandbits(32),
                    random.getrandbits(64),
                )
                ctx.set(getattr(dut, f"error{k}_valid"), valid)
                for name, value in zip(("code", "engine", "index", "addr"), item, strict=True):
                    ctx.set(getattr(getattr(dut, f"error{k}"), name), value)
                if valid:
                    errors[k] = item
            clear = random.random() < 0.1
            ctx.set(dut.clear, clear)
            assert ctx.get(dut.failed) == (kept is not None)
            assert _first(ctx, dut) == (kept or (0, 0, 0, 0))
            if clear:
                kept = None
            elif kept is None and errors:
                kept = errors[min(errors)]
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_watchdog(limit):
    dut = ErrorUnit(CONFIG, tiles=TileLibrary(inline=True))

    async def bench(ctx):
        ctx.set(dut.limit, limit)
        for k in range(3):
            ctx.set(getattr(dut, f"index{k}"), 100 + k)

        async def wait(cycles, waiting, progress):
            ctx.set(dut.waiting, waiting)
            ctx.set(dut.progress, progress)
            for _ in range(cycles):
                await ctx.tick()

        await wait(40, 0b000, 0)  # nobody waits
        await wait(40, 0b110, 1)  # somebody else gets on
        assert not ctx.get(dut.failed)
        if limit > 1:
            for _ in range(5):  # progress now and then
                await wait(limit - 1, 0b110, 0)
                await wait(1, 0b110, 1)
            assert not ctx.get(dut.failed)
        await wait(limit, 0b110, 0)
        assert not ctx.get(dut.failed)
        await wait(2, 0b110, 0)
        if limit == 0:
            await wait(100, 0b110, 0)
            assert not ctx.get(dut.failed)
        else:
            assert _first(ctx, dut) == (ErrorCode.WATCHDOG, 1, 101, 0)
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            assert not ctx.get(dut.failed)

    simulate(dut, bench)


@pytest.mark.parametrize(("waiting", "progress"), [(0b000, 0), (0b010, 1)])
def test_watchdog_lets_go_at_the_last_moment(waiting, progress):
    """A wait that ends in the very cycle in which the time is up is no error."""
    dut = ErrorUnit(CONFIG, tiles=TileLibrary(inline=True))
    limit = 5

    async def bench(ctx):
        ctx.set(dut.limit, limit)
        ctx.set(dut.waiting, 0b010)
        for _ in range(limit):
            await ctx.tick()
        ctx.set(dut.waiting, waiting)
        ctx.set(dut.progress, progress)
        await ctx.tick()
        assert not ctx.get(dut.failed)
        ctx.set(dut.waiting, 0b010)
        ctx.set(dut.progress, 0)
        for _ in range(limit):
            await ctx.tick()
        assert not ctx.get(dut.failed), "and counts from the start again"
        await ctx.tick()
        assert ctx.get(dut.failed)

    simulate(dut, bench)


def test_bad_configuration():
    with pytest.raises(ValueError, match="sources and waiters must be at least 1"):
        ErrorConfig(sources=0, waiters=1)
