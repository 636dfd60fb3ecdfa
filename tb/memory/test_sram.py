"""One SRAM bank against a list of words."""

import pytest

from rtl.memory.sram import CodeSram, Sram, SramConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


def test_reads_old_words_writes_bytes_keeps_the_last_read() -> None:
    dut = Sram(SramConfig(depth=16), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        words, want = [0] * 16, None
        for _ in range(600):
            ren, raddr, waddr = random.random() < 0.6, random.randrange(16), random.randrange(16)
            if random.random() < 0.4:
                waddr = raddr
            wen, data = random.choice([0, 15, random.randrange(16)]), random.getrandbits(32)
            ctx.set(dut.ren, ren)
            ctx.set(dut.raddr, raddr)
            ctx.set(dut.wen, wen)
            ctx.set(dut.waddr, waddr)
            ctx.set(dut.wdata, data)
            await ctx.tick()
            if ren:
                want = words[raddr]
            keep = sum(0xFF << 8 * b for b in range(4) if not wen >> b & 1)
            words[waddr] = words[waddr] & keep | data & ~keep & 0xFFFFFFFF
            if want is not None:
                assert ctx.get(dut.rdata) == want

    simulate(dut, bench)


def test_words_with_check_bits_are_written_whole() -> None:
    dut = CodeSram(SramConfig(depth=8), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        words, want = [0] * 8, 0
        ctx.set(dut.ren, 1)
        for _ in range(300):
            raddr, waddr, data = random.randrange(8), random.randrange(8), random.getrandbits(39)
            wen = random.randrange(2)
            for name, value in (("raddr", raddr), ("wen", wen), ("waddr", waddr), ("wdata", data)):
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            want = words[raddr]
            if wen:
                words[waddr] = data
            assert ctx.get(dut.rdata) == want

    simulate(dut, bench)


def test_bad_configuration() -> None:
    with pytest.raises(ValueError, match="depth must be at least 2, not 1"):
        SramConfig(depth=1)
