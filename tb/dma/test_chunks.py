"""Chunk generator against rows cut in plain Python."""

from models import addressing
from models.config import find
from models.encoding import Instruction, encode
from models.isa import Opcode, Space
from rtl.dma.chunks import ChunkGenerator
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = find("nano")
PAGE = 4096


def _cut(src, dst, count):
    """Pieces of a row: (offset in the row, bytes), none crossing 4 KiB on either side."""
    out, at = [], 0
    while at < count:
        n = min(count - at, PAGE - (src + at) % PAGE, PAGE - (dst + at) % PAGE)
        out.append((at, n))
        at += n
    return out


def test_rows_are_cut_at_pages_of_both_sides():
    dut = ChunkGenerator(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        ctx.set(dut.chip_id, 9)
        for _ in range(60):
            rows, count = random.randrange(4), random.choice([0, 1, 100, 4096, 9000])
            src = random.randrange(1 << 20)
            part, start = random.randrange(CONFIG.partitions - 3), random.randrange(2000)
            to_sbuf = count <= 4096 and random.random() < 0.5
            dst = (
                addressing.core_address(0, Space.SBUF, part, start)
                if to_sbuf
                else addressing.memory_address(random.randrange(1 << 20) + (1 << 21))
            )
            stride = addressing.SBUF_PARTITION_STRIDE if to_sbuf else random.randrange(20000)
            chip = random.choice([9, addressing.CHIP_LOCAL])
            fields = {
                "src": chip << 48 | 1 << 40 | src,
                "dst": dst,
                "row_bytes": count,
                "rows": rows,
                "src_stride": random.choice([-64, 0, 10000]),
                "dst_stride": stride,
            }
            if src - 64 * rows < 0:
                fields["src_stride"] = 64
            ctx.set(dut.instr.as_value(), int.from_bytes(encode(Instruction(Opcode.DMA, fields)), "little"))
            assert ctx.get(dut.done)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for r in range(rows):
                row_src, row_dst = fields["src"] + r * fields["src_stride"], dst + r * stride
                for at, n in _cut(row_src, row_dst, count):
                    ctx.set(dut.out.ready, 0)
                    waited = 0
                    while not ctx.get(dut.out.valid):
                        waited += 1
                        assert waited < 6
                        await ctx.tick()
                    for _ in range(random.randrange(3)):
                        await ctx.tick()
                    out = dut.out.payload
                    assert ctx.get(out.bytes) == n
                    assert ctx.get(out.src.offset) == (row_src + at) % (1 << 40)
                    assert (ctx.get(out.src_row), ctx.get(out.dst_row)) == (row_src, row_dst)
                    assert ctx.get(out.dst.memory) == (not to_sbuf)
                    if to_sbuf:
                        assert (ctx.get(out.dst.part), ctx.get(out.dst.offset)) == (part + r, start + at)
                    ctx.set(dut.out.ready, 1)
                    await ctx.tick()
            ctx.set(dut.out.ready, 1)
            for _ in range(5):
                assert not ctx.get(dut.out.valid)
                await ctx.tick()
            assert ctx.get(dut.done)
            assert not ctx.get(dut.bad)

    simulate(dut, bench)
