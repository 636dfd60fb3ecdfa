"""ScalarLanes: each lane has its own element, bias and result. (What a lane does: test_lane, test_sequencer.)"""

import numpy as np

from models.formats import DType
from models.microcode import constant
from rtl.scalar.lane import LATENCY
from rtl.scalar.lanes import GROUP, ScalarLanes, ScalarLanesConfig
from rtl.scalar.wide import wide_bits
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


def _packed(values):
    return sum(int(np.float32(v).view(np.uint32)) << 32 * i for i, v in enumerate(values))


def test_own_words():
    r = rng()
    x, biases = ([float(r.randint(-1000, 1000)) for _ in range(GROUP)] for _ in range(2))

    async def bench(ctx):
        ctx.set(dut.scale.as_value(), wide_bits(constant(2)))
        ctx.set(dut.bias, int(np.float32(7).view(np.uint32)))
        ctx.set(dut.biases, _packed(biases))
        ctx.set(dut.raw, _packed(x))
        for port in (dut.dtype, dut.o_dtype):
            ctx.set(port, DType.FP32.value)
        for own in (0, 1):
            ctx.set(dut.own_bias, own)
            await ctx.tick()
            ctx.set(dut.step.valid, 1)
            ctx.set(dut.step.load, 1)
            await ctx.tick()
            ctx.set(dut.step.valid, 0)
            await ctx.tick().repeat(LATENCY - 1)
            want = [2 * v + (b if own else 7) for v, b in zip(x, biases, strict=True)]
            assert ctx.get(dut.o) == _packed(want)

    dut = ScalarLanes(ScalarLanesConfig(), tiles=TileLibrary(inline=True))
    simulate(dut, bench)
