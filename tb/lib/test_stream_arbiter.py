"""Round-robin stream arbiter: nothing lost, fair, steady while not ready."""

from collections import Counter

import pytest

from rtl.lib.stream_arbiter import StreamArbiter, StreamArbiterConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


@pytest.mark.parametrize("ports", [1, 2, 3, 7])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_merges_fairly(ports, rate):
    dut = StreamArbiter(StreamArbiterConfig(ports=ports, width=20), tiles=TileLibrary(inline=True))
    random = rng()
    ins = [getattr(dut, f"i{k}") for k in range(ports)]

    async def bench(ctx):
        offered: list[int | None] = [None] * ports
        waited = [0] * ports
        served: Counter[int] = Counter()
        shown = None
        for _ in range(800):
            for k in range(ports):
                if offered[k] is None and random.random() < rate:
                    offered[k] = random.getrandbits(20)
                ctx.set(ins[k].valid, offered[k] is not None)
                ctx.set(ins[k].payload, offered[k] or 0)
            ready = random.random() < 0.7
            ctx.set(dut.o.ready, ready)
            valid, source = ctx.get(dut.o.valid), ctx.get(dut.source)
            assert valid == any(o is not None for o in offered)
            if valid:
                assert offered[source] is not None
                assert ctx.get(dut.o.payload) == offered[source]
                assert shown in (None, source), "an item that is shown stays"
                shown = None if ready else source
            readies = [ctx.get(i.ready) for i in ins]
            assert readies == [bool(valid and ready and k == source) for k in range(ports)]
            for k in range(ports):
                if offered[k] is not None and ready:
                    waited[k] += 1
                    assert waited[k] <= ports
            if valid and ready:
                offered[source] = None
                waited[source] = 0
                served[source] += 1
            await ctx.tick()
        if rate == 1.0:
            assert max(served.values()) - min(served[k] for k in range(ports)) <= 1

    simulate(dut, bench)


def test_a_withdrawn_item_is_gone():
    """As a sequencer's does when it is stopped: nothing is shown in its place."""
    dut = StreamArbiter(StreamArbiterConfig(ports=3, width=8), tiles=TileLibrary(inline=True))

    async def bench(ctx):
        ctx.set(dut.i1.valid, 1)
        await ctx.tick()
        assert ctx.get(dut.o.valid)
        ctx.set(dut.i1.valid, 0)
        assert not ctx.get(dut.o.valid)
        await ctx.tick()
        ctx.set(dut.i2.valid, 1)
        ctx.set(dut.i2.payload, 77)
        ctx.set(dut.o.ready, 1)
        assert (ctx.get(dut.o.valid), ctx.get(dut.source), ctx.get(dut.o.payload)) == (1, 2, 77)

    simulate(dut, bench)


@pytest.mark.parametrize("key", ["ports", "width"])
def test_bad_configuration(key):
    with pytest.raises(ValueError, match=f"{key} must be at least 1, not 0"):
        StreamArbiterConfig(**{"ports": 2, "width": 4, key: 0})
