"""EccBank in random traffic on few words: data, errors and their kind, exactly, with injected flips of one and two bits."""

from models import ecc
from rtl.memory.ecc_bank import EccBank, Tend
from rtl.memory.sram import SramConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate
from tb.memory.ecc_words import Words

DEPTH = 4


def test_random_traffic() -> None:
    dut = EccBank(SramConfig(depth=DEPTH), tiles=TileLibrary(inline=True))
    r = rng()
    counts = {"corrected": 0, "bad": 0, "partial": 0}

    async def bench(ctx):
        words, held = Words(), 0
        for cycle in range(20000):
            raddr, waddr = r.randrange(DEPTH), r.randrange(DEPTH)
            ren, wen, data = r.random() < 0.7, r.choice([0, 0, 15, r.randrange(16)]), r.getrandbits(32)
            op = r.choice([Tend.NOTHING] * 6 + [Tend.SCRUB, Tend.FLIP, Tend.CLEAR])
            if op != Tend.NOTHING:
                wen = 0
            if op in (Tend.SCRUB, Tend.FLIP) or wen not in (0, 15):
                ren, raddr = True, waddr
            if held == 0:
                flips = 0
                for _ in range(r.choice([1, 1, 2])):
                    flips |= 1 << r.randrange(ecc.CODE_BITS)
                ctx.set(dut.flips, flips)
            held = 2 if op == Tend.FLIP else max(0, held - 1)
            for name, value in (
                ("raddr", raddr),
                ("ren", ren),
                ("waddr", waddr),
                ("wen", wen),
                ("wdata", data),
                ("tend", op),
            ):
                ctx.set(getattr(dut, name), value)
            want = words.read(raddr, cycle)
            words.write(waddr, cycle, data, wen)
            counts["partial"] += wen not in (0, 15)
            if op == Tend.SCRUB:
                words.scrub(waddr, cycle)
            elif op == Tend.FLIP:
                words.flip(waddr, cycle, flips)
            elif op == Tend.CLEAR:
                words.write(waddr, cycle, 0, 15)
            await ctx.tick()
            assert ctx.get(dut.corrected) == (ren and want.corrected)
            assert ctx.get(dut.bad) == (ren and want.bad)
            if ren:
                assert ctx.get(dut.rdata) == want.data
                counts["corrected"] += want.corrected
                counts["bad"] += want.bad
                if want.bad or want.corrected:
                    assert ctx.get(dut.syndrome) == want.syndrome

    simulate(dut, bench)
    assert min(counts.values()) > 200, counts
