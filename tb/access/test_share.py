"""Two readers on one port: nothing lost, nothing swapped, requests stay while they wait."""

from collections import deque

import pytest

from rtl.access.share import LaneReadShare, LaneReadShareConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

P, BITS, DEPTH = 4, 6, 4
MARK = 7919
"""An answer is its address times this."""


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_answers_go_to_who_asked(rate):
    dut = LaneReadShare(
        LaneReadShareConfig(partitions=P, addr_bits=BITS, depth=DEPTH), tiles=TileLibrary(inline=True)
    )
    random = rng()
    done = {"first": 0, "second": 0}

    async def bench(ctx):
        waiting = {"first": None, "second": None}
        owed = {"first": deque(), "second": deque()}
        memory: deque[tuple[int, int]] = deque()
        shown = None
        for cycle in range(1500):
            for name, address in waiting.items():
                port = getattr(dut, name)
                # each requester has half of the depth under way at most
                if address is None and len(owed[name]) < DEPTH // 2 and random.random() < 0.7:
                    waiting[name] = random.randrange(1 << BITS)
                ctx.set(port.req.valid, waiting[name] is not None)
                ctx.set(port.req.payload, waiting[name] or 0)
            grant = random.random() < rate
            ctx.set(dut.o.req.ready, grant)
            due = bool(memory) and memory[0][0] <= cycle
            ctx.set(dut.o.rsp_valid, due)
            ctx.set(dut.o.rsp.as_value(), MARK * memory.popleft()[1] if due else random.getrandbits(32 * P))
            valid, address = ctx.get(dut.o.req.valid), ctx.get(dut.o.req.payload)
            assert valid == any(w is not None for w in waiting.values())
            if shown is not None:
                assert (valid, address) == (1, shown)
            shown = address if valid and not grant else None
            came = [name for name in owed if ctx.get(getattr(dut, name).rsp_valid)]
            assert len(came) == due
            for name in came:
                assert ctx.get(getattr(dut, name).rsp.as_value()) == MARK * owed[name].popleft()
                done[name] += 1
            taken = [n for n, w in waiting.items() if w is not None and ctx.get(getattr(dut, n).req.ready)]
            assert len(taken) == (valid and grant)
            for name in taken:
                assert waiting[name] == address
                memory.append((cycle + random.choice([2, 2, 3, 6]), address))
                owed[name].append(address)
                waiting[name] = None
            await ctx.tick()

    simulate(dut, bench)
    assert min(done.values()) > 100


def test_bad_configuration():
    with pytest.raises(ValueError, match="depth must be a power of two from 2, not 3"):
        LaneReadShareConfig(partitions=P, addr_bits=BITS, depth=3)
