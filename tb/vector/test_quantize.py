"""Quantizer: scales of blocks, factors, words, for every offset of the scales in their quadrants."""

import numpy as np
import pytest

from models import cast, mx
from models.formats import E8M0_NAN, MX_PACK, MX_ROWS, PACKED, DType, MxRule
from rtl.tiles import TileLibrary
from rtl.vector.quantize import Quantizer, QuantizerConfig
from tb.lib.simulate import rng, simulate

SHAPES = [(8, 8), (16, 16), (64, 32)]


def _quantizer(partitions, quadrant):
    config = QuantizerConfig(partitions=partitions, quadrant=quadrant)
    return config, Quantizer(config, tiles=TileLibrary(inline=True))


def _place(config, group, offset):
    per = config.quadrant // MX_ROWS
    return group // per * config.quadrant + offset + group % per


@pytest.mark.parametrize(("partitions", "quadrant"), SHAPES)
def test_scales(partitions, quadrant):
    random = rng()
    config, dut = _quantizer(partitions, quadrant)

    async def bench(ctx):
        for _ in range(25):
            dtype, rule = random.choice(list(PACKED)), random.choice(list(MxRule))
            offset = random.choice([0, 4, 8, 12] if partitions >= 32 else [0])
            parts = MX_ROWS * random.randint(1, config.groups)
            style = random.choice([255, 254, 20, 3])
            exps = np.array([[random.randint(0, style) for _ in range(partitions)] for _ in range(MX_PACK)])
            for name, value in {"dtype": dtype, "nki": rule, "offset": offset, "parts": parts}.items():
                ctx.set(getattr(dut, name), int(value))
            for turn in range(MX_PACK):
                while random.random() < 0.3:  # a pause changes nothing
                    ctx.set(dut.enter, 0)
                    await ctx.tick()
                ctx.set(dut.enter, 1)
                ctx.set(dut.turn, turn)
                for lane in range(partitions):
                    ctx.set(dut.exps[lane], int(exps[turn, lane]))
                await ctx.tick()
            ctx.set(dut.enter, 0)
            skip = ctx.get(dut.skip)
            written = {}
            for group in range(parts // MX_ROWS):
                top = exps[:, MX_ROWS * group : MX_ROWS * (group + 1)].max()
                # a number of that exponent is its block's largest
                block = np.zeros(32, dtype=np.float32)
                block[0] = np.array([int(top) << 23], dtype=np.uint32).view(np.float32)[0]
                _, want = cast.quantize_mx(block, dtype, rule=rule.name.lower())
                lane = _place(config, group, offset)
                written[lane] = int(want)
                assert ctx.get(dut.scale[lane]) == int(want), (group, top)
            assert [lane for lane in range(partitions) if not skip >> lane & 1] == sorted(written)

    simulate(dut, bench)


@pytest.mark.parametrize(("partitions", "quadrant"), SHAPES)
def test_factors(partitions, quadrant):
    random = rng()
    config, dut = _quantizer(partitions, quadrant)

    async def bench(ctx):
        for _ in range(20):
            offset = random.choice([0, 4, 8, 12] if partitions >= 32 else [0])
            ctx.set(dut.offset, offset)
            codes = [
                random.choice([0, 1, 127, 253, 254, 255, random.randint(0, 255)]) for _ in range(partitions)
            ]
            for lane, code in enumerate(codes):
                ctx.set(dut.scale_in[lane], code | random.getrandbits(24) << 8)
            mine = np.array([codes[_place(config, g, offset)] for g in range(config.groups)], dtype=np.uint8)
            want = mx.factors(mine).view(np.uint32)
            for group, code in enumerate(mine):
                assert ctx.get(dut.blank) >> group & 1 == (code == E8M0_NAN)
                if code != E8M0_NAN:
                    assert ctx.get(dut.factor[group]) == want[group]

    simulate(dut, bench)


@pytest.mark.parametrize("dtype", list(PACKED), ids=lambda d: d.name)
def test_words(dtype):
    random = rng()
    _, dut = _quantizer(8, 8)

    async def bench(ctx):
        ctx.set(dut.dtype, int(dtype))
        for _ in range(20):
            codes = np.array(
                [[random.getrandbits(PACKED[dtype].width) for _ in range(MX_PACK)] for _ in range(8)]
            )
            for n in range(MX_PACK):
                while random.random() < 0.3:
                    ctx.set(dut.leave, 0)
                    ctx.set(dut.raws[0], random.getrandbits(8))
                    await ctx.tick()
                ctx.set(dut.leave, 1)
                for lane in range(8):
                    ctx.set(dut.raws[lane], int(codes[lane, n]))
                if n == MX_PACK - 1:
                    got = [ctx.get(dut.word[lane]) for lane in range(8)]
                    assert got == cast.pack_x4(dtype, codes).tolist()
                await ctx.tick()

    simulate(dut, bench)


def test_configuration():
    with pytest.raises(ValueError, match="quadrant must be a multiple of 8, not 12"):
        QuantizerConfig(partitions=24, quadrant=12)
    with pytest.raises(ValueError, match="partitions must be a multiple of quadrant, not 48"):
        QuantizerConfig(partitions=48, quadrant=32)
    assert DType.E2M1X4 in PACKED
