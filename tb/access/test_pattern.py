"""Address walker against models.access."""

import pytest

from models.access import AccessPattern, row
from models.formats import DType, dtype_bytes
from models.isa import Space
from rtl.access.pattern import PatternWalker, WalkerConfig
from rtl.tiles import TileLibrary
from tb.access.patterns import random_pattern, start
from tb.lib.simulate import rng, simulate

CONFIGS = [
    WalkerConfig(sbuf_bytes=1024, psum_bytes=None),
    WalkerConfig(sbuf_bytes=None, psum_bytes=512),
    WalkerConfig(sbuf_bytes=1024, psum_bytes=256),
]


def _limit(config: WalkerConfig, space: Space) -> int | None:
    return config.sbuf_bytes if space == Space.SBUF else config.psum_bytes


def _put(ctx, dut, pattern: AccessPattern) -> None:
    ctx.set(dut.start.valid, 1)
    ctx.set(dut.start.payload.as_value(), start(pattern))


@pytest.mark.parametrize("config", CONFIGS, ids=["sbuf", "psum", "both"])
@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_walks_like_the_model(config, rate):
    dut = PatternWalker(config, tiles=TileLibrary(inline=True))
    random = rng()
    spaces = [s for s in Space if _limit(config, s)]

    async def bench(ctx):
        for _ in range(60):
            space = random.choice(spaces)
            limit = _limit(config, space)
            pattern = random_pattern(random, limit, space=space, inside=random.random() < 0.8)
            _put(ctx, dut, pattern)
            assert ctx.get(dut.start.ready)
            await ctx.tick()
            ctx.set(dut.start.valid, 0)
            addresses = [int(a) for a in pattern.addresses()]
            size = dtype_bytes(pattern.dtype)
            bad = next((n for n, a in enumerate(addresses) if a < 0 or a + size > limit), None)
            good = addresses if bad is None else addresses[:bad]
            n = 0
            while n < len(good):
                ready = random.random() < rate
                ctx.set(dut.out.ready, ready)
                assert ctx.get(dut.out.valid)
                assert not ctx.get(dut.error_valid)
                assert ctx.get(dut.out.payload.addr) == good[n]
                assert ctx.get(dut.out.payload.first) == (n == 0)
                assert ctx.get(dut.out.payload.last) == (n == len(addresses) - 1)
                n += ready
                await ctx.tick()
            ctx.set(dut.out.ready, 1)
            assert not ctx.get(dut.out.valid)
            assert ctx.get(dut.error_valid) == (bad is not None)
            if bad is not None:
                assert ctx.get(dut.error_addr) == addresses[bad] % (1 << 32)
                await ctx.tick()
                assert not ctx.get(dut.error_valid), "one cycle"
                assert not ctx.get(dut.start.ready)
                ctx.set(dut.clear, 1)
                await ctx.tick()
                ctx.set(dut.clear, 0)
            assert ctx.get(dut.idle)

    simulate(dut, bench)


def test_no_cycle_between_patterns_and_clear_in_the_middle():
    dut = PatternWalker(CONFIGS[0], tiles=TileLibrary(inline=True))

    async def bench(ctx):
        ctx.set(dut.out.ready, 1)
        seen = []
        todo = [row(64 * i, DType.FP32, 5) for i in range(4)]
        want = [int(a) for p in todo for a in p.addresses()]
        while len(seen) < len(want):
            if todo:
                _put(ctx, dut, todo[0])
            else:
                ctx.set(dut.start.valid, 0)
            assert ctx.get(dut.out.valid) == (len(todo) < 4)
            if ctx.get(dut.out.valid):
                seen.append(ctx.get(dut.out.payload.addr))
            if todo and ctx.get(dut.start.ready):
                todo.pop(0)
            await ctx.tick()
        assert seen == want
        _put(ctx, dut, row(0, DType.FP32, 5))
        await ctx.tick()
        ctx.set(dut.start.valid, 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        assert not ctx.get(dut.out.valid)
        assert ctx.get(dut.idle)

    simulate(dut, bench)


def test_strides_of_the_field_report():
    """Field report A17: size 8, stride 2, outer sizes 1: elements 0, 2, .. 14; stride 0: element 0 eight times."""
    dut = PatternWalker(CONFIGS[0], tiles=TileLibrary(inline=True))

    async def bench(ctx):
        ctx.set(dut.out.ready, 1)
        for stride in (2, 0):
            _put(ctx, dut, AccessPattern(0, DType.FP32, ((1, 1), (1, 1), (1, 1), (stride, 8))))
            await ctx.tick()
            ctx.set(dut.start.valid, 0)
            got = []
            while ctx.get(dut.out.valid):
                got.append(ctx.get(dut.out.payload.addr) // 4)
                await ctx.tick()
            assert got == [stride * i for i in range(8)]

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sbuf_bytes": 100, "psum_bytes": None}, "sbuf_bytes must be a power of two from 16, not 100"),
        ({"sbuf_bytes": None, "psum_bytes": 8}, "psum_bytes must be a power of two from 16, not 8"),
        ({"sbuf_bytes": None, "psum_bytes": None}, "must not both be None"),
    ],
)
def test_bad_configuration(change, text):
    with pytest.raises(ValueError, match=text):
        WalkerConfig(**change)
