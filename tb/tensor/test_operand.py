"""Operand columns: numbers, words for PSUM's places, scales of every quadrant offset, double rows."""

from dataclasses import replace

import pytest

from models.config import TensorConfig, find
from models.formats import DOUBLE_ROWS, MX_ROWS
from rtl.tensor.operand import OperandColumn
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


@pytest.mark.parametrize("partitions", [8, 64])
@pytest.mark.parametrize("double_row", [(), DOUBLE_ROWS], ids=["plain", "double"])
def test_columns(partitions, double_row):
    config = replace(find("nano"), partitions=partitions, tensor=TensorConfig(double_row=double_row))
    dut = OperandColumn(config, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        for _ in range(60):
            size, offset, double = random.randrange(3), random.randrange(4), random.randrange(2)
            words = [random.getrandbits(8 << size) for _ in range(partitions)]
            others = [random.getrandbits(8) for _ in range(partitions)]
            for k in range(partitions):
                ctx.set(dut.words[k], words[k])
                ctx.set(dut.others[k], others[k])
            ctx.set(dut.size, size)
            ctx.set(dut.offset, offset)
            ctx.set(dut.double, double)
            await ctx.delay(1e-9)
            for k in range(partitions):
                got = ctx.get(dut.column.data[k])
                if double and double_row:
                    assert got & 0xFFFF == words[k] & 0xFF | others[k] << 8
                else:
                    assert got == sum(words[k] << (8 << size) * i for i in range(4 >> size))
            for group in range(partitions // MX_ROWS):
                quadrant, place = divmod(group, config.quadrant // MX_ROWS)
                lane = quadrant * config.quadrant + place + (4 * offset if partitions >= 32 else 0)
                assert ctx.get(dut.column.scale[group]) == others[lane]

    simulate(dut, bench)
