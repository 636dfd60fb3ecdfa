"""Shuffle: what leaves in which lane is the model's, whatever comes when; two instructions follow each other without a trace."""

import numpy as np
import pytest

from models.moves import MASK, STAYS, mask_field, shuffled, transposed
from rtl.tiles import TileLibrary
from rtl.vector.shuffle import SHUFFLE_LATENCY, TRANSPOSE_LATENCY, Shuffle, ShuffleConfig
from tb.lib.simulate import rng, simulate

SHAPES = [(8, 8), (16, 8), (8, 2), (32, 32)]


def lanes_of(value, count):
    """The 32-bit words of a flat value."""
    return [value >> 32 * n & 0xFFFFFFFF for n in range(count)]


async def run(ctx, dut, random, columns, *, transpose, mask, rate, most=10**6):
    """(results, cycles) of one instruction whose elements are the columns of `columns`; stopped after `most` cycles."""
    p, count = dut.config.partitions, columns.shape[1]
    beyond = random.getrandbits(8 * (MASK.size - len(mask)))
    ctx.set(dut.mask, mask_field(mask) | beyond << 8 * len(mask))
    for name in ("element", "last", "room", "shuffle", "transpose"):
        ctx.set(getattr(dut, name), 0)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    ctx.set(dut.shuffle, int(not transpose))
    ctx.set(dut.transpose, int(transpose))
    due, got, at, cycles = [], [], 0, 0
    late = TRANSPOSE_LATENCY if transpose else SHUFFLE_LATENCY
    while len(got) < count and cycles < most:
        room = random.random() < rate
        enters = at < count and room and random.random() < rate
        column = columns[:, at] if enters else [random.getrandbits(32) for _ in range(p)]
        ctx.set(dut.i.as_value(), sum(int(word) << 32 * n for n, word in enumerate(column)))
        ctx.set(dut.room, int(room))
        ctx.set(dut.element, int(enters))
        ctx.set(dut.last, int(at == count - 1))
        due = [d - 1 for d in due]
        if due and due[0] == 0:
            got.append(lanes_of(ctx.get(dut.o.as_value()), p))
            due.pop(0)
        if ctx.get(dut.result) if transpose else enters:
            assert room
            due.append(late)
        at += enters
        cycles += 1
        await ctx.tick()
    return got, cycles


@pytest.mark.parametrize("rate", [1.0, 0.6])
@pytest.mark.parametrize(("partitions", "quadrant"), SHAPES)
def test_moves(partitions, quadrant, rate):
    random = rng()
    dut = Shuffle(ShuffleConfig(partitions=partitions, quadrant=quadrant), tiles=TileLibrary(inline=True))

    async def bench(ctx):
        for n in range(8):
            transpose = bool(n % 4)
            count = quadrant * random.randint(1, 4) if transpose else random.randint(1, 30)
            x = np.array([[random.getrandbits(32) for _ in range(count)] for _ in range(partitions)])
            mask = [random.choice([random.randrange(quadrant), STAYS]) for _ in range(quadrant)]
            story = {"transpose": transpose, "mask": mask, "rate": rate}
            if random.random() < 0.4:  # one that is stopped leaves nothing behind
                await run(ctx, dut, random, x, **story, most=random.randint(1, 2 * count))
            got, cycles = await run(ctx, dut, random, x, **story)
            result = np.array(got).T
            if transpose:
                assert np.array_equal(result, transposed(x, quadrant))
                assert ctx.get(dut.stays) == 0
                if rate == 1.0:
                    assert cycles == count + quadrant + TRANSPOSE_LATENCY
                continue
            want, written = shuffled(x, mask)
            assert np.array_equal(result[written], want[written])
            assert ctx.get(dut.stays) == sum(int(not w) << lane for lane, w in enumerate(written))
            if rate == 1.0:
                assert cycles == count + SHUFFLE_LATENCY

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("partitions", "quadrant", "message"),
    [
        (8, 6, "quadrant must be a power of two from 2 to 32, not 6"),
        (64, 64, "quadrant must be a power of two from 2 to 32, not 64"),
        (12, 8, "partitions must be a multiple of quadrant, not 12"),
    ],
)
def test_refusals(partitions, quadrant, message):
    with pytest.raises(ValueError, match=message):
        ShuffleConfig(partitions=partitions, quadrant=quadrant)
