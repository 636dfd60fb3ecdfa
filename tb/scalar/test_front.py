"""ScalarFront against the functional model's field rules, its timing, and clear."""

import random

from models import encoding
from models.fault import Fault
from models.isa import Opcode
from rtl.access.size import LATENCY
from rtl.scalar.front import ScalarFront
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate
from tb.scalar.tb_engine import illegal, random_instruction, run
from tb.vector.instructions import Judge, LegalError, new_core
from tb.vector.operands import CONFIG


def test_legal_or_not_as_the_model_says():
    random.seed(rng().getrandbits(32))
    judge = new_core(Judge)
    seen = set()

    async def bench(ctx):
        ctx.set(dut.checked.ready, 1)
        for n in range(600):
            word = random_instruction()
            word = illegal(word) if n % 2 else word
            try:
                run(judge, word)
                raise AssertionError("no access")
            except LegalError:
                want = 1
            except Fault:
                want = 0
            ctx.set(dut.issue.payload.as_value(), int.from_bytes(word, "little"))
            ctx.set(dut.issue.valid, 1)
            assert ctx.get(dut.issue.ready)
            await ctx.tick()
            ctx.set(dut.issue.valid, 0)
            waited = 0
            while not ctx.get(dut.checked.valid):
                await ctx.tick()
                waited += 1
            assert waited == LATENCY
            assert ctx.get(dut.checked.payload.legal) == want, f"{word.hex()}"
            if want:
                recall = encoding.raw_fields(word)["opcode"] == Opcode.READ_ACCUMULATOR
                assert ctx.get(dut.checked.payload.recall) == recall
                size = encoding.ap_from_raw(encoding.raw_ap(word, "src0")).size
                assert recall or ctx.get(dut.checked.payload.count) == size
            seen.add(want)
            await ctx.tick()
        ctx.set(dut.issue.valid, 1)
        await ctx.tick()
        ctx.set(dut.issue.valid, 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        assert ctx.get(dut.idle)
        assert not ctx.get(dut.checked.valid)

    dut = ScalarFront(CONFIG, tiles=TileLibrary(inline=True))
    simulate(dut, bench)
    assert seen == {0, 1}
