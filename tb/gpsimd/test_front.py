"""GpsimdFront against the functional model's field rules, its timing, and clear."""

import random

from models import encoding
from models.fault import Fault
from models.isa import Engine, Opcode
from rtl.access.size import LATENCY
from rtl.gpsimd.front import GpsimdFront
from rtl.tiles import TileLibrary
from tb.gpsimd.instructions import illegal, random_instruction
from tb.lib.simulate import rng, simulate
from tb.vector.instructions import Judge, LegalError, new_core
from tb.vector.mistakes import mutated
from tb.vector.operands import CONFIG

KINDS = {
    "iota": Opcode.IOTA,
    "choose": Opcode.AFFINE_SELECT,
    "gather": Opcode.LOCAL_GATHER,
    "reduce": Opcode.PARTITION_REDUCE,
}


def test_legal_or_not_as_the_model_says():
    random.seed(rng().getrandbits(32))
    judge = new_core(Judge)
    seen = set()

    async def bench(ctx):
        ctx.set(dut.checked.ready, 1)
        for n in range(900):
            word = random_instruction()
            word = (word, illegal(word), mutated(word))[n % 3]
            raw = encoding.raw_fields(word)
            opcode = Opcode(raw["opcode"])
            try:
                judge.execute(Engine.GPSIMD, word)
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
            checked = dut.checked.payload
            assert ctx.get(checked.legal) == want, f"{word.hex()}"
            if want:
                assert ctx.get(checked.count) == encoding.ap_from_raw(encoding.raw_ap(word, "dst")).size
                assert [k for k in KINDS if ctx.get(checked[k])] == [
                    k for k, o in KINDS.items() if o == opcode
                ]
            seen.add((opcode, want))
            await ctx.tick()
        ctx.set(dut.issue.valid, 1)
        await ctx.tick()
        ctx.set(dut.issue.valid, 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        assert ctx.get(dut.idle)
        assert not ctx.get(dut.checked.valid)

    dut = GpsimdFront(CONFIG, tiles=TileLibrary(inline=True))
    simulate(dut, bench)
    assert seen == {(o, w) for o in KINDS.values() for w in (0, 1)}
