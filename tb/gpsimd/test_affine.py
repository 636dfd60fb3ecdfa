"""AffineWalker against the functional model."""

import random as module_random

from models.encoding import Instruction, encode
from models.gpsimd import affine
from models.isa import AP_BYTES, AP_OFFSETS, Opcode
from rtl.gpsimd.affine import AffineWalker
from rtl.tiles import TileLibrary
from tb.gpsimd.instructions import numbers
from tb.lib.simulate import rng, simulate


def test_numbers_as_the_model_says():
    module_random.seed(rng().getrandbits(32))
    dut = AffineWalker(None, tiles=TileLibrary(inline=True))

    async def bench(ctx):
        for n in range(150):
            pattern = numbers(module_random.choice([1, 2, 5, 12, 24, 36]))
            word = encode(Instruction(Opcode.IOTA, aps={"src1": pattern}))
            ctx.set(dut.ap.as_value(), int.from_bytes(word[AP_OFFSETS["src1"] :][:AP_BYTES], "little"))
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            want = affine(pattern, 1, 0)[0].tolist()
            # a start may come while a pattern is under way
            for value in want[: len(want) // 2 if n % 4 == 0 else None]:
                while module_random.random() < 0.3:
                    assert ctx.get(dut.value) == value
                    await ctx.tick()
                assert ctx.get(dut.value) == value, pattern
                ctx.set(dut.next, 1)
                await ctx.tick()
                ctx.set(dut.next, 0)

    simulate(dut, bench)
