"""Conversions between FP32 and wide floats."""

import numpy as np
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models import wide
from rtl.scalar.wide import WideLayout, from_fp32, to_fp32, wide_bits
from tb.lib.simulate import rng, simulate
from tb.scalar.wides import bits, random_wide, wides

CORNERS = (0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000)


class Converters(wiring.Component):
    """code -> number, and a number -> rounded."""

    code: In(32)
    number: Out(WideLayout())
    value: In(WideLayout())
    rounded: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.number.eq(from_fp32(m, "in", self.code)),
            self.rounded.eq(to_fp32(m, "out", self.value)),
        ]
        unused = Signal()
        m.d.sync += unused.eq(1)
        return m


def test_both_ways():
    r = rng()
    codes = [c | s << 31 for c in CORNERS for s in (0, 1)] + [r.getrandbits(32) for _ in range(2000)]
    values = [random_wide(r) for _ in range(2000)]
    for i in range(0, 2000, 2):  # where FP32 has subnormals, ties and its largest numbers
        v = values[i]
        if v.sig:
            exp = r.choice((-149, -150, -151, -140, -127, -126, 127, 128, r.randint(-152, 130)))
            values[i] = type(v)(v.neg, exp, v.sig & ~0xFF | r.choice((0, 0x80, 0x7F, 0xFF)))
    want_in = wide.from_fp32(np.array(codes, dtype=np.uint32))
    want_out = wide.to_fp32(wides(values))

    async def bench(ctx):
        for i, code in enumerate(codes):
            ctx.set(dut.code, code)
            got = ctx.get(dut.number.as_value())
            assert got == bits(want_in, i), f"{code:08x}: {got:012x}, not {bits(want_in, i):012x}"
        for i, value in enumerate(values):
            ctx.set(dut.value.as_value(), wide_bits(value))
            got = ctx.get(dut.rounded)
            assert got == want_out[i], f"{value}: {got:08x}, not {want_out[i]:08x}"

    dut = Converters()
    simulate(dut, bench)
