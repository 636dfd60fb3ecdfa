"""RandomUnit: words, states and thresholds are the model's, whatever comes when."""

import numpy as np

from models.xorwow import ALL, FRACTION, ROUNDS, WORDS, draw, seeded, threshold
from rtl.tiles import TileLibrary
from rtl.vector.xorwow import RandomConfig, RandomUnit
from tb.lib.simulate import rng, simulate

LANES = 4


def unit() -> RandomUnit:
    return RandomUnit(RandomConfig(partitions=LANES), tiles=TileLibrary(inline=True))


async def settle(ctx, dut) -> int:
    """Cycles until nothing is being seeded."""
    cycles = 0
    while ctx.get(dut.busy):
        assert not ctx.get(dut.open)
        await ctx.tick()
        cycles += 1
    return cycles


def lanes(ctx, dut, port) -> list[int]:
    return [ctx.get(getattr(dut, port)[i]) for i in range(LANES)]


def test_draws_stores_loads_and_seeds():
    random, dut = rng(), unit()

    async def bench(ctx):
        ctx.set(dut.on, 1)
        assert await settle(ctx, dut) == ROUNDS + 1
        state = seeded(0, LANES)
        for _ in range(60):
            kind, parts = (
                random.choice(["draw", "draw", "store", "load", "seed", "clear"]),
                random.randint(1, LANES),
            )
            ctx.set(dut.parts, parts)
            for name in ("draws", "store", "load"):
                ctx.set(getattr(dut, name), int(name.startswith(kind)))
            ctx.set(dut.whole, 1)
            if kind == "seed":
                ctx.set(dut.start, 1)
                await ctx.tick()
                ctx.set(dut.start, 0)
                seed = random.getrandbits(32)
                ctx.set(dut.seed, seed)
                assert await settle(ctx, dut) == ROUNDS + 2
                state[:parts] = seeded(seed, LANES)[:parts]
            if kind == "clear":
                # in the middle of another seed, of which nothing stays
                ctx.set(dut.start, int(random.random() < 0.5))
                await ctx.tick().repeat(random.randint(1, ROUNDS))
                ctx.set(dut.start, 0)
                ctx.set(dut.clear, 1)
                await ctx.tick()
                ctx.set(dut.clear, 0)
                assert await settle(ctx, dut) == ROUNDS + 1
                state = seeded(0, LANES)
            done, count = 0, {"draw": random.randint(1, 40), "store": WORDS, "load": WORDS}.get(kind, 0)
            want = draw(state[:parts].copy(), count)
            new = np.array(
                [[random.getrandbits(32) for _ in range(count)] for _ in range(LANES)], dtype=np.uint32
            )
            while done < count:
                enters = random.random() < 0.6
                ctx.set(dut.element, int(enters))
                for i in range(LANES):
                    ctx.set(dut.new[i], int(new[i, done]))
                if enters:
                    got = lanes(ctx, dut, "o")[:parts]
                    if kind == "draw":
                        assert got == want[:, done].tolist()
                    if kind == "store":
                        assert got == state[:parts, done].tolist()
                    done += 1
                await ctx.tick()
            ctx.set(dut.element, 0)
            if kind == "draw":
                draw(state[:parts], count)
            if kind == "load":
                state[:parts] = new[:parts]

    simulate(dut, bench)


def test_floats_and_thresholds():
    random, dut = rng(), unit()

    async def bench(ctx):
        ctx.set(dut.on, 1)
        ctx.set(dut.parts, LANES)
        await settle(ctx, dut)
        state = seeded(0, LANES)
        codes = [0, 1, 0x7FFFFF, 0x800000, 0x2F000000, 0x2F800000, 0x2F800001, 0x30000001, ALL - 1, ALL]
        codes += [random.randrange(0x38000000, ALL) for _ in range(60)]
        for code in codes:
            bits = random.choice([0, 1, FRACTION, random.randint(0, FRACTION)])
            ctx.set(dut.probability, code)
            ctx.set(dut.bits, bits)
            await ctx.tick()
            ctx.set(dut.draws, 1)
            ctx.set(dut.element, 1)
            word = draw(state, 1)[:, 0].astype(np.int64)
            step = 1 << (FRACTION - bits)
            assert lanes(ctx, dut, "o") == ((word >> 32 - FRACTION) // step * step).tolist()
            kept = [n for n in range(LANES) if word[n] >= threshold(code)]
            assert ctx.get(dut.keep) == sum(1 << n for n in kept)
            await ctx.tick()
            ctx.set(dut.element, 0)

    simulate(dut, bench)


def test_thresholds_at_a_word():
    """Probabilities whose 2^32-fold is the very word, one more, and a part between."""
    dut = unit()

    async def bench(ctx):
        ctx.set(dut.on, 1)
        ctx.set(dut.parts, LANES)
        ctx.set(dut.draws, 1)
        ctx.set(dut.load, 0)
        await settle(ctx, dut)
        state = seeded(0, LANES)
        for word in draw(state, 200).T:
            near = np.float32(word[0] / 2.0**32).view(np.uint32)
            for code in (int(near) - 1, int(near), int(near) + 1):
                ctx.set(dut.probability, code)
                await ctx.tick()
                keeps = ctx.get(dut.keep)
                exact = float(np.uint32(code).view(np.float32)) * 2.0**32
                assert keeps == sum(int(float(w) >= exact) << n for n, w in enumerate(word))
            ctx.set(dut.element, 1)
            await ctx.tick()
            ctx.set(dut.element, 0)

    simulate(dut, bench)
