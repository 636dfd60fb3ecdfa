"""Results: each with the place that its column was given, on the partitions that the place says, nothing lost at full depth."""

from collections import deque

from models.config import find
from rtl.array.array import array_latency
from rtl.tensor.collect import ResultCollector
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = find("nano")
P = CONFIG.partitions


def test_places():
    dut = ResultCollector(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        under_way: deque[tuple[int, dict[str, int]] | None] = deque([None] * array_latency(P))
        want = None
        results = 0
        for cycle in range(800):
            assert ctx.get(dut.valid) == (want is not None)
            if want is not None:
                place, words = want
                for name in ("addr", "accumulate", "mask"):
                    assert ctx.get(getattr(dut.column, name)) == place[name]
                first = place["quarter"] * P // 4
                lanes = {(first + i) % P: words[i] for i in range(place["lanes"])}
                assert ctx.get(dut.column.lanes) == sum(1 << lane for lane in lanes)
                assert all(ctx.get(dut.column.data[lane]) == word for lane, word in lanes.items())
                results += 1
            # a column every cycle for a while, then with gaps
            enters = cycle < 200 or random.random() < 0.5
            place = {
                "addr": random.getrandbits(len(dut.places.payload.addr)),
                "accumulate": random.getrandbits(1),
                "mask": random.getrandbits(4),
                "lanes": random.randint(1, P),
                "quarter": random.randrange(4),
            }
            ctx.set(dut.places.valid, enters)
            ctx.set(dut.places.payload, place)
            assert ctx.get(dut.places.ready)
            under_way.append(place if enters else None)
            out = under_way.popleft()
            words = [random.getrandbits(32) for _ in range(P)]
            for i, word in enumerate(words):
                ctx.set(dut.result[i], word)
            ctx.set(dut.result_valid, out is not None)
            want = (out, words) if out is not None else None
            await ctx.tick()
        assert results > 400

    simulate(dut, bench)
