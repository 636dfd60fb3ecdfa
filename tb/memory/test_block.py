"""PartitionBlock: each partition gets its own part of every member. (What a partition does: test_partition.)"""

import pytest

from rtl.memory.block import BlockConfig, PartitionBlock
from rtl.memory.partition import PartitionConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

COUNT = 4
CONFIG = BlockConfig(partition=PartitionConfig(bytes=256, banks=4, lane_reads=2, lane_writes=2), count=COUNT)


def test_parts():
    r = rng()
    depth = CONFIG.partition.sram.depth

    async def bench(ctx):
        memory = [[[0] * depth for _ in range(4)] for _ in range(COUNT)]
        for _ in range(300):
            port, lanes, here = r.randrange(3), r.getrandbits(COUNT), r.randrange(COUNT)
            words = [r.getrandbits(32) for _ in range(COUNT)]
            row = [r.getrandbits(32) for _ in range(4)]
            addr = [r.randrange(depth) for _ in range(4)]
            read = [r.randrange(depth) for _ in range(4)]
            for k in range(2):
                ctx.set(dut.lanes[k], lanes if k == port else r.getrandbits(COUNT))
                data = words if k == port else [r.getrandbits(32) for _ in range(COUNT)]
                ctx.set(dut.wdata[k], sum(w << 32 * i for i, w in enumerate(data)))
            ctx.set(dut.row_here, 1 << here)
            ctx.set(dut.ren, 15)
            for b in range(4):
                ctx.set(dut.row_wdata[b], row[b])
                ctx.set(dut.raddr[b], read[b])
                ctx.set(dut.waddr[b], addr[b])
                ctx.set(dut.wmask[b], 15)
                ctx.set(dut.source[b], 1 << port)
            before = [[memory[p][b][read[b]] for b in range(4)] for p in range(COUNT)]
            for p in range(COUNT):
                for b in range(4):
                    if port == 2 and p == here:
                        memory[p][b][addr[b]] = row[b]
                    elif port < 2 and lanes >> p & 1:
                        memory[p][b][addr[b]] = words[p]
            await ctx.tick()
            asked = r.randrange(COUNT + 1)
            ctx.set(dut.row_there, (1 << asked) & 15)
            for k in range(2):
                bank = r.randrange(4)
                ctx.set(dut.select[k], bank)
                got = ctx.get(dut.rdata[k])
                assert got == sum(before[p][bank] << 32 * p for p in range(COUNT))
            for w in range(4):
                assert ctx.get(dut.row_rdata[w]) == (before[asked][w] if asked < COUNT else 0)

    dut = PartitionBlock(CONFIG, tiles=TileLibrary(inline=True))
    simulate(dut, bench)


def test_count():
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        BlockConfig(partition=CONFIG.partition, count=0)
