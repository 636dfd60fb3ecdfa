"""MicroSequencer and ScalarLane together: every function, bit for bit, in batches, with elements that come late."""

import numpy as np
import pytest

from models import cast
from models.formats import DType
from models.functions import SLOPED, ActFunc, activate, evaluate, library
from models.microcode import constant
from models.wide import from_fp32
from rtl.scalar import lane as lane_rtl
from rtl.scalar.lane import SLOTS
from rtl.scalar.wide import wide_bits
from tb.lib.simulate import rng, simulate
from tb.scalar.pair import Pair
from tb.scalar.wides import bits

SPECIAL = (
    0x0,
    0x80000000,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0x1,
    0x80000001,
    0x7F7FFFFF,
    0xFF7FFFFF,
    0x3F800000,
)


@pytest.mark.parametrize("function", list(ActFunc), ids=lambda f: f.name.lower())
def test_every_function(function):
    r = rng()
    count = r.randint(SLOTS + 1, 4 * SLOTS)
    codes = [
        r.choice((r.choice(SPECIAL), r.getrandbits(32), int(np.float32(r.gauss(0, 5)).view(np.uint32))))
        for _ in range(count)
    ]
    x = np.array(codes, dtype=np.uint32).view(np.float32)
    slope = np.float32(r.gauss(0, 2)) if function in SLOPED else None
    want = evaluate(function, x, slope).view(np.uint32)
    cycles = []

    async def bench(ctx):
        one, minus_zero = wide_bits(constant(1)), 0x80000000
        ctx.set(dut.lane.scale.as_value(), one)
        ctx.set(dut.lane.bias, minus_zero)
        ctx.set(dut.lane.dtype, DType.FP32.value)
        ctx.set(dut.lane.o_dtype, DType.FP32.value)
        ctx.set(dut.sequencer.function, function.value)
        ctx.set(dut.sequencer.count, count)
        given = np.array([0 if slope is None else slope], dtype=np.float32).view(np.uint32)
        ctx.set(dut.sequencer.parameter.as_value(), bits(from_fp32(given), 0))
        ctx.set(dut.sequencer.start, 1)
        await ctx.tick()
        ctx.set(dut.sequencer.start, 0)
        got, queue, under_way, now = [], list(codes), [], 0
        while len(got) < count:
            ctx.set(dut.sequencer.ready, int(bool(queue) and r.random() < 0.8))
            ctx.set(dut.lane.raw, queue[0] if queue else 0)
            taken = ctx.get(dut.sequencer.take)
            if ctx.get(dut.sequencer.last):
                under_way.append(now + lane_rtl.LATENCY)
            if under_way and under_way[0] == now:
                under_way.pop(0)
                got.append(ctx.get(dut.lane.o))
            if taken:
                queue.pop(0)
            await ctx.tick()
            now += 1
            assert now < 20000, f"{len(got)} of {count} results"
        cycles.append(now)
        for i in range(count):
            assert got[i] == want[i], f"{function.name}({codes[i]:08x}): {got[i]:08x}, not {want[i]:08x}"
        assert ctx.get(dut.sequencer.idle)

    dut = Pair()
    simulate(dut, bench)
    batches = -(-count // SLOTS)
    assert cycles[0] >= SLOTS * batches * len(library()[0][function])


def test_scale_bias_and_cast():
    r = rng()
    x = np.array([r.gauss(0, 3) for _ in range(2 * SLOTS)], dtype=np.float32)
    raw = cast.encode(DType.BF16, x, saturate=False)
    scale, bias = np.float32(1.7), np.float32(-0.3)
    want = cast.encode(
        DType.E4M3,
        activate(ActFunc.SILU, cast.decode(DType.BF16, raw), scale, np.full(x.shape, bias)),
        saturate=True,
    )

    async def bench(ctx):
        ctx.set(dut.lane.scale.as_value(), bits(from_fp32(np.array([scale]).view(np.uint32)), 0))
        ctx.set(dut.lane.bias, int(bias.view(np.uint32)))
        ctx.set(dut.lane.dtype, DType.BF16.value)
        ctx.set(dut.lane.o_dtype, DType.E4M3.value)
        ctx.set(dut.lane.saturate, 1)
        ctx.set(dut.sequencer.function, ActFunc.SILU.value)
        ctx.set(dut.sequencer.count, x.size)
        ctx.set(dut.sequencer.start, 1)
        await ctx.tick()
        ctx.set(dut.sequencer.start, 0)
        ctx.set(dut.sequencer.ready, 1)
        sent, got, under_way, now = 0, [], [], 0
        while len(got) < x.size:
            ctx.set(dut.lane.raw, int(raw[min(sent, x.size - 1)]))
            sent += ctx.get(dut.sequencer.take)
            if ctx.get(dut.sequencer.last):
                under_way.append(now + lane_rtl.LATENCY)
            if under_way and under_way[0] == now:
                under_way.pop(0)
                got.append(ctx.get(dut.lane.o))
            await ctx.tick()
            now += 1
        assert got == want.tolist()

    dut = Pair()
    simulate(dut, bench)


def test_clear_and_nothing():
    async def bench(ctx):
        ctx.set(dut.sequencer.function, ActFunc.EXP.value)
        ctx.set(dut.sequencer.count, 0)
        ctx.set(dut.sequencer.start, 1)
        await ctx.tick()
        assert ctx.get(dut.sequencer.idle), "nothing to do"
        ctx.set(dut.sequencer.count, 20)
        await ctx.tick()
        ctx.set(dut.sequencer.start, 0)
        ctx.set(dut.sequencer.ready, 1)
        await ctx.tick().repeat(30)
        assert not ctx.get(dut.sequencer.idle)
        ctx.set(dut.sequencer.clear, 1)
        await ctx.tick()
        ctx.set(dut.sequencer.clear, 0)
        assert ctx.get(dut.sequencer.idle)
        for _ in range(40):
            assert not ctx.get(dut.sequencer.last)
            assert not ctx.get(dut.sequencer.take)
            await ctx.tick()

    dut = Pair()
    simulate(dut, bench)
