"""Element sizes as hardware sees them."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models.formats import DType, dtype_bytes
from rtl.lib.element import log2_bytes
from tb.lib.simulate import simulate


class Size(wiring.Component):
    """log2_bytes of `code`."""

    code: In(8)
    size: Out(2)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.size.eq(log2_bytes(self.code))
        return m


def test_every_code():
    dut = Size()

    async def bench(ctx):
        for code in range(256):
            ctx.set(dut.code, code)
            want = dtype_bytes(DType(code)).bit_length() - 1 if code in list(DType) else 0
            assert ctx.get(dut.size) == want
            await ctx.delay(1e-6)

    simulate(dut, bench)
