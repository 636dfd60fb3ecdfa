"""GpsimdLane against the functional model: casts, numbers, comparisons, slots, one element a cycle."""

import random as module_random

import numpy as np

from models import cast
from models.formats import DType, dtype_bytes
from models.fp import COMPARISONS
from models.gpsimd import WORDS, compare_with_zero
from rtl.gpsimd.gather import SLOTS
from rtl.gpsimd.lane import LATENCY, VALUE_LATENCY, GpsimdLane
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate
from tb.vector.operands import READABLE, WRITABLE, fp32_bits


def one(value):
    return np.array([value], dtype=np.uint32)


def element(random, dtype):
    """A raw element, zero-extended."""
    bits = fp32_bits() if dtype == DType.FP32 else random.getrandbits(32)
    return bits & (1 << 8 * dtype_bytes(dtype)) - 1


def run(held, inputs, outputs):
    """Drive rows of inputs one a cycle; outputs are (port, latency, wanted)."""
    dut = GpsimdLane(None, tiles=TileLibrary(inline=True))

    async def bench(ctx):
        for name, value in held.items():
            ctx.set(dut.held[name], value)
        for cycle in range(len(inputs) + LATENCY):
            if cycle < len(inputs):
                for port, value in inputs[cycle].items():
                    ctx.set(getattr(dut, port), value)
            for port, latency, wanted in outputs:
                n = cycle - latency
                if 0 <= n < len(wanted):
                    assert ctx.get(getattr(dut, port)) == wanted[n], (port, n)
            await ctx.tick()

    simulate(dut, bench)


def test_numbers_and_their_casts():
    random = rng()
    module_random.seed(random.getrandbits(32))
    for dtype in WRITABLE:
        saturate, copy = random.getrandbits(1), dtype in WORDS
        rows, want = [], []
        for _ in range(40):
            total = random.choice([random.getrandbits(32), random.randint(-300, 300) & 0xFFFFFFFF])
            offset = random.getrandbits(32)
            rows.append({"number": (total - offset) & 0xFFFFFFFF, "offset": offset})
            value = one(total)
            if not copy:
                value = cast.encode(dtype, cast.decode(DType.INT32, value), saturate=bool(saturate))
            want.append(int(value[0]))
        held = {"iota": 1, "copy": copy, "o_dtype": dtype.value, "saturate": saturate}
        run(held, rows, [("o", LATENCY, want)])


def test_comparisons_choose():
    random = rng()
    module_random.seed(random.getrandbits(32))
    for op in COMPARISONS:
        s_type, d_type, rest = random.choice(READABLE), random.choice(WRITABLE), fp32_bits()
        rows, want, values = [], [], []
        for _ in range(40):
            number, raw = (
                random.choice([0, 1, -1, 1 << 31, random.getrandbits(32)]) & 0xFFFFFFFF,
                element(random, s_type),
            )
            rows.append({"number": number, "raw": raw})
            value = cast.decode(s_type, one(raw))
            values.append(int(value.view(np.uint32)[0]))
            chosen = np.where(compare_with_zero(op, one(number)), value, one(rest).view(np.float32))
            want.append(int(cast.encode(d_type, chosen, saturate=True)[0]))
        held = {
            "choose": 1,
            "op": op.value,
            "rest": rest,
            "dtype": s_type.value,
            "o_dtype": d_type.value,
            "saturate": 1,
        }
        run(held, rows, [("o", LATENCY, want), ("value", VALUE_LATENCY, values)])


def test_slots_catch_what_they_name():
    random = rng()
    dut = GpsimdLane(None, tiles=TileLibrary(inline=True))

    async def bench(ctx):
        for _ in range(20):
            size = random.randint(1, 30)
            source = [random.getrandbits(32) for _ in range(size)]
            indices = [
                random.choice([random.randrange(size), random.randrange(size), size, 0xFFFFFFFF])
                for _ in range(SLOTS)
            ]
            for name, value in {"gather": 1, "copy": 1, "limit": size}.items():
                ctx.set(dut.held[name], value)
            ctx.set(dut.catch.put, 1)
            for slot, index in enumerate(indices):
                ctx.set(dut.catch.slot, slot)
                ctx.set(dut.index, index)
                await ctx.tick()
                assert ctx.get(dut.bad) == (index >= size)
                assert ctx.get(dut.seen) == index
            ctx.set(dut.catch.put, 0)
            await ctx.tick()
            assert not ctx.get(dut.bad)
            for number, raw in enumerate(source):
                ctx.set(dut.catch.number, number)
                ctx.set(dut.raw, raw)
                ctx.set(dut.catch.take, 1)
                await ctx.tick()
                ctx.set(dut.catch.take, 0)
                if random.random() < 0.3:
                    ctx.set(dut.raw, random.getrandbits(32))
                    await ctx.tick()
            for cycle in range(SLOTS + LATENCY):
                ctx.set(dut.catch.slot, min(cycle, SLOTS - 1))
                slot = cycle - LATENCY
                if slot >= 0 and indices[slot] < size:
                    assert ctx.get(dut.o) == source[indices[slot]]
                await ctx.tick()

    simulate(dut, bench)
