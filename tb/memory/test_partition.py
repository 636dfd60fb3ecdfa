"""One partition: which bank's word goes to which port, and who writes."""

import pytest

from rtl.memory.partition import PartitionConfig, PartitionMemory
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = PartitionConfig(bytes=256, banks=8, lane_reads=2, lane_writes=1)


def test_banks_and_ports() -> None:
    dut = PartitionMemory(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()
    depth = CONFIG.sram.depth

    async def bench(ctx):
        banks = [[0] * depth for _ in range(8)]
        for _ in range(400):
            read = [random.randrange(depth) for _ in range(8)]
            sources = [random.choice([0, 1, 2]) for _ in range(8)]
            lane, row_here = random.randrange(2), random.randrange(2)
            word, row = random.getrandbits(32), [random.getrandbits(32) for _ in range(4)]
            ctx.set(dut.ren, 0xFF)
            ctx.set(dut.lanes, lane)
            ctx.set(dut.wdata[0], word)
            ctx.set(dut.row_here, row_here)
            for w in range(4):
                ctx.set(dut.row_wdata[w], row[w])
            before = [banks[b][read[b]] for b in range(8)]
            for b in range(8):
                addr, mask = random.randrange(depth), random.randrange(16)
                ctx.set(dut.raddr[b], read[b])
                ctx.set(dut.waddr[b], addr)
                ctx.set(dut.wmask[b], mask)
                ctx.set(dut.source[b], sources[b])
                data = word if sources[b] == 1 else row[b % 4]
                if (sources[b] == 1 and lane) or (sources[b] == 2 and row_here):
                    keep = sum(0xFF << 8 * i for i in range(4) if not mask >> i & 1)
                    banks[b][addr] = banks[b][addr] & keep | data & ~keep & 0xFFFFFFFF
            await ctx.tick()
            selects, group, there = (
                [random.randrange(8) for _ in range(2)],
                random.randrange(2),
                random.randrange(2),
            )
            for k in range(2):
                ctx.set(dut.select[k], selects[k])
            ctx.set(dut.row_group, group)
            ctx.set(dut.row_there, there)
            for k in range(2):
                assert ctx.get(dut.rdata[k]) == before[selects[k]]
            for w in range(4):
                assert ctx.get(dut.row_rdata[w]) == (before[4 * group + w] if there else 0)

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"banks": 6}, "banks must be a power of two"),
        ({"bytes": 100}, "bytes must be"),
        ({"lane_reads": 0}, "lane_reads must be"),
    ],
)
def test_bad_configuration(change, text) -> None:
    with pytest.raises(ValueError, match=text):
        PartitionConfig(**{"bytes": 256, "banks": 8, "lane_reads": 2, "lane_writes": 1, **change})
