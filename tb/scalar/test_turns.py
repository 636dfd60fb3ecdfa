"""WideTurns against models.turns, a new operand every cycle."""

from models import turns
from models.microcode import Constant
from models.wide import SIG_BITS
from rtl.scalar.turns import LATENCY, WideTurns, WideTurnsConfig
from rtl.scalar.wide import wide_bits
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate
from tb.scalar.wides import bits, random_wide, wides

RUNS = 2500


def test_exact():
    r = rng()
    a = [random_wide(r) for _ in range(RUNS)]
    for i in range(0, RUNS, 2):
        sig = (1 << (SIG_BITS - 1)) | r.getrandbits(SIG_BITS - 1)
        a[i] = Constant(r.getrandbits(1), r.randint(turns.LEAST - 2, turns.MOST + 2), sig)
    # 16367173 * 2**72 is the FP32 number that is nearest to a multiple of pi / 2
    a[0] = Constant(0, 95, 16367173 << 8)
    whole = [r.getrandbits(1) for _ in range(RUNS)]
    numbers, rests = turns.quadrant(wides(a)), turns.turn(wides(a))

    async def bench(ctx):
        for i in range(RUNS + LATENCY):
            if i < RUNS:
                ctx.set(dut.a.as_value(), wide_bits(a[i]))
                ctx.set(dut.whole, whole[i])
            await ctx.tick()
            j = i - LATENCY + 1
            if 0 <= j < RUNS:
                want = bits(numbers if whole[j] else rests, j)
                got = ctx.get(dut.o.as_value())
                assert got == want, f"{a[j]} ({whole[j]}): {got:012x}, not {want:012x}"

    dut = WideTurns(WideTurnsConfig(), tiles=TileLibrary(inline=True))
    simulate(dut, bench)
