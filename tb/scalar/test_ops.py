"""WideOps against models.microcode.execute. (FMA: test_fma, turns: test_turns.)"""

import pytest

from models.microcode import Op, execute
from rtl.scalar.ops import WideOps, WideOpsConfig
from rtl.scalar.wide import wide_bits
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate
from tb.scalar.wides import bits, random_wide, wides

RUNS = 1500


@pytest.mark.parametrize(
    "op", [op for op in Op if op not in (Op.FMA, Op.TURN, Op.QUADRANT)], ids=lambda op: op.name.lower()
)
def test_exact(op):
    r = rng()
    a, b, c = ([random_wide(r) for _ in range(RUNS)] for _ in range(3))
    for i in range(0, RUNS, 10):
        b[i] = a[i]
    want = execute(op, wides(a), wides(b), wides(c))

    async def bench(ctx):
        ctx.set(dut.op, op.value)
        for i in range(RUNS):
            for port, x in ((dut.a, a), (dut.b, b), (dut.c, c)):
                ctx.set(port.as_value(), wide_bits(x[i]))
            got = ctx.get(dut.o.as_value())
            assert got == bits(want, i), (
                f"{op.name} {a[i]} {b[i]} {c[i]}: {got:012x}, not {bits(want, i):012x}"
            )

    dut = WideOps(WideOpsConfig(), tiles=TileLibrary(inline=True))
    simulate(dut, bench)
