"""WideFma against models.wide.fma, a new operand set every cycle."""

from models import wide
from models.microcode import Constant
from rtl.scalar.fma import LATENCY, WideFma, WideFmaConfig
from rtl.scalar.wide import wide_bits
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate
from tb.scalar.wides import bits, item, random_wide, wides

RUNS = 4000


def test_exact():
    r = rng()
    a, b, c = ([random_wide(r) for _ in range(RUNS)] for _ in range(3))
    for i in range(0, RUNS, 5):  # sums that cancel, nearly or wholly
        product = wide.fma(wides([a[i]]), wides([b[i]]), wides([Constant(1, 0, 0)]))
        p = item(product, 0)
        c[i] = Constant(
            1 - p.neg if p.kind != 2 else 0, p.exp, p.sig ^ r.choice((0, 1, 3 << 9)) if p.sig else 0, p.kind
        )
    only = [r.random() < 0.1 for _ in range(RUNS)]
    want = wide.fma(wides(a), wides(b), wides(c))

    async def bench(ctx):
        for i in range(RUNS + LATENCY):
            if i < RUNS:
                for port, x in ((dut.a, a), (dut.b, b), (dut.c, c)):
                    ctx.set(port.as_value(), wide_bits(x[i]))
                ctx.set(dut.only_c, int(only[i]))
            await ctx.tick()
            j = i - LATENCY + 1
            if 0 <= j < RUNS:
                got = ctx.get(dut.o.as_value())
                expected = wide_bits(c[j]) if only[j] else bits(want, j)
                assert got == expected, (
                    f"{a[j]} * {b[j]} + {c[j]} ({only[j]}): {got:012x}, not {expected:012x}"
                )

    dut = WideFma(WideFmaConfig(), tiles=TileLibrary(inline=True))
    simulate(dut, bench)
