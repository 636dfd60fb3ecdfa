"""Aligner: bytes at any offset to any other, strobes, errors, muting."""

from rtl.dma.align import AlignConfig, Aligner
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

BEAT = 16


def test_moves_bytes():
    dut = Aligner(AlignConfig(), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        for n in range(250):
            src, dst = (n % 16, n // 16) if n < 256 else (random.randrange(16), random.randrange(16))
            count = random.choice([1, 2, 15, 16, 17, 40, 100])
            mute, error_at = random.random() < 0.1, random.choice([None, None, None, 0, 1])
            data = random.randbytes(BEAT * -(-(src + count) // BEAT))
            beats = [data[i : i + BEAT] for i in range(0, len(data), BEAT)]
            want = b"\0" * dst + data[src : src + count]
            total = -(-len(want) // BEAT)
            ctx.set(dut.mute, mute)
            ctx.set(dut.chunk.payload.src, src)
            ctx.set(dut.chunk.payload.dst, dst)
            ctx.set(dut.chunk.payload.bytes, count)
            ctx.set(dut.chunk.payload.row, n)
            ctx.set(dut.chunk.valid, 1)
            assert ctx.get(dut.chunk.ready)
            await ctx.tick()
            ctx.set(dut.chunk.valid, 0)
            got, used, errors = 0, 0, 0
            while got < total or used < len(beats):
                valid, ready = used < len(beats) and random.random() < 0.7, random.random() < 0.7
                ctx.set(dut.beat.valid, valid)
                if valid:
                    ctx.set(dut.beat.payload.data, int.from_bytes(beats[used], "little"))
                    ctx.set(dut.beat.payload.error, error_at == used)
                ctx.set(dut.out.ready, ready)
                if ctx.get(dut.error_valid):
                    errors += 1
                    assert ctx.get(dut.error_row) == n
                offer = tuple(ctx.get(s) for s in (dut.out.valid, dut.out.payload.strb, dut.out.payload.data))
                ctx.set(dut.out.ready, not ready)
                assert offer == tuple(
                    ctx.get(s) for s in (dut.out.valid, dut.out.payload.strb, dut.out.payload.data)
                ), "what is offered depends on whether it is taken"
                ctx.set(dut.out.ready, ready)
                failed = error_at is not None and (
                    used > error_at or (used == error_at and valid and ctx.get(dut.beat.ready))
                )
                if ctx.get(dut.out.valid) and ready:
                    strobe, value = (
                        ctx.get(dut.out.payload.strb),
                        ctx.get(dut.out.payload.data).to_bytes(BEAT, "little"),
                    )
                    for i in range(BEAT):
                        at = BEAT * got + i
                        inside = dst <= at < len(want)
                        assert (strobe >> i & 1) == (inside and not mute and not failed)
                        if inside and not failed:
                            assert value[i] == want[at]
                    got += 1
                if valid and ctx.get(dut.beat.ready):
                    used += 1
                await ctx.tick()
            assert errors == (error_at is not None and error_at < len(beats))
            ctx.set(dut.beat.valid, 0)

    simulate(dut, bench)
