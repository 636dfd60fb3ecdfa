"""Groups: rows of several groups share work as one tall array does; the block scale of a group reaches all its rows."""

import numpy as np
import pytest

from models import array
from models.formats import MX_ROWS, DType
from rtl.array.group import GROUP_LATENCY, ArrayGroup
from rtl.array.row import PSUM_LATENCY, ArrayConfig
from rtl.pe.operand import PeConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

P = 8
CONFIG = ArrayConfig(partitions=P, pe=PeConfig(formats=(DType.E2M1X4,)))


@pytest.mark.parametrize("scales", [(127, 127), (100, 140), (0, 254), (255, 127)])
def test_block_scale(scales):
    dut = ArrayGroup(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()
    weights = np.array([[random.getrandbits(16) for _ in range(P)] for _ in range(MX_ROWS)], dtype=np.uint32)
    moving = np.array([[random.getrandbits(16)] for _ in range(MX_ROWS)], dtype=np.uint32)
    s_scale, m_scale = (np.full((1, n), s, dtype=np.uint8) for s, n in zip(scales, (P, 1), strict=True))
    want = array.matmul(weights, moving, DType.E2M1X4, DType.E2M1X4, s_scale, m_scale).view(np.uint32)[:, 0]

    async def bench(ctx):
        for name in ("dtype", "load_dtype"):
            ctx.set(getattr(dut.control, name), DType.E2M1X4.value)
        for column in range(P):
            ctx.set(dut.control.load, 1)
            ctx.set(dut.control.load_index, column)
            ctx.set(dut.load_scale, scales[0])
            for r in range(MX_ROWS):
                ctx.set(dut.load_words[r], int(weights[r, column]))
            await ctx.tick()
        ctx.set(dut.control.load, 0)
        ctx.set(dut.load_scale, 255)
        ctx.set(dut.control.rows, MX_ROWS)
        ctx.set(dut.control.swap, 1)
        ctx.set(dut.scale, scales[1])
        for r in range(MX_ROWS):
            ctx.set(dut.words[r], int(moving[r, 0]))
        await ctx.tick()
        ctx.set(dut.control.rows, 0)
        ctx.set(dut.control.swap, 0)
        ctx.set(dut.scale, 255)
        got = [0] * P
        for t in range(1, PSUM_LATENCY + GROUP_LATENCY + P):
            column = t - PSUM_LATENCY - GROUP_LATENCY
            if 0 <= column < P:
                got[column] = ctx.get(dut.psum_out[column])
            await ctx.tick()
        assert got == want.tolist()

    simulate(dut, bench)
