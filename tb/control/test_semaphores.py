"""Semaphores against Python integers."""

import pytest

from models.isa import UpdateMode
from rtl.control.semaphores import SemaphoreConfig, SemaphoreUnit
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = SemaphoreConfig(count=16, sources=4, waiters=2)


def _wrap(value):
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def test_updates_from_everywhere():
    dut = SemaphoreUnit(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        values = [0] * CONFIG.count
        offered = [None] * CONFIG.sources
        waited = [0] * CONFIG.sources
        served = 0
        for _ in range(1500):
            for k in range(CONFIG.sources):
                port = getattr(dut, f"update{k}")
                if offered[k] is None and random.random() < 0.6:
                    value = random.choice(
                        [1, -1, 5, -(1 << 31), (1 << 31) - 1, random.randrange(-(1 << 31), 1 << 31)]
                    )
                    offered[k] = (random.choice(list(UpdateMode)), random.randrange(CONFIG.count), value)
                ctx.set(port.valid, offered[k] is not None)
                if offered[k]:
                    for name, value in zip(("mode", "sem", "value"), offered[k], strict=True):
                        ctx.set(getattr(port.payload, name), int(value))
            clear = random.random() < 0.01
            ctx.set(dut.clear, clear)
            for name in ("wait0", "wait1", "read"):
                sem = random.randrange(CONFIG.count)
                ctx.set(getattr(dut, f"{name}_sem"), sem)
                assert ctx.get(getattr(dut, f"{name}_value")) == values[sem]
            taken = [
                k for k in range(CONFIG.sources) if offered[k] and ctx.get(getattr(dut, f"update{k}").ready)
            ]
            assert len(taken) == (any(offered) and not clear)
            assert ctx.get(dut.updated) == bool(taken)
            for k in range(CONFIG.sources):
                waited[k] = 0 if k in taken or not offered[k] else waited[k] + (not clear)
                assert waited[k] <= CONFIG.sources
            for k in taken:
                mode, sem, value = offered[k]
                old = values[sem]
                values[sem] = _wrap(
                    {
                        UpdateMode.NONE: old,
                        UpdateMode.ADD: old + value,
                        UpdateMode.SUB: old - value,
                        UpdateMode.SET: value,
                    }[mode]
                )
                offered[k] = None
                served += 1
            if clear:
                values = [0] * CONFIG.count
            await ctx.tick()
        assert served > 1000

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"count": 24}, "count must be a power of two"),
        ({"sources": 0}, "must be at least 1"),
        ({"waiters": 0}, "must be at least 1"),
    ],
)
def test_bad_configuration(change, text):
    with pytest.raises(ValueError, match=text):
        SemaphoreConfig(**{"count": 16, "sources": 4, "waiters": 2, **change})
