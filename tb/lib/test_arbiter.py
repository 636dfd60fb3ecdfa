"""Arbiter of requesters that may share a cycle: exclusion, work, priority, bounded waiting."""

import random as random_module
from typing import Any

import pytest

from rtl.lib.arbiter import Arbiter, ArbiterConfig, pairs
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


def _run(
    config: ArbiterConfig,
    random: random_module.Random,
    request_rate: float,
    conflict_rate: float,
    cycles: int = 800,
) -> dict[str, Any]:
    dut = Arbiter(config, tiles=TileLibrary(inline=True))
    n = config.ports
    seen: dict[str, Any] = {"served": [0] * n, "worst": [0] * n, "together": 0}

    async def bench(ctx):
        request = [False] * n
        conflict: dict[tuple[int, int], bool] = {}
        waited = [0] * n
        for _ in range(cycles):
            for i in range(n):
                request[i] = request[i] or random.random() < request_rate
            for p in pairs(n):
                if not (request[p[0]] and request[p[1]] and p in conflict):
                    conflict[p] = random.random() < conflict_rate
            ctx.set(dut.request, sum(1 << i for i in range(n) if request[i]))
            ctx.set(dut.conflict, sum(1 << k for k, p in enumerate(pairs(n)) if conflict[p]))
            grant = [bool(ctx.get(dut.grant) >> i & 1) for i in range(n)]
            starving = [bool(ctx.get(dut.starving) >> i & 1) for i in range(n)]
            assert all(request[i] for i in range(n) if grant[i])
            for i, j in pairs(n):
                assert not (grant[i] and grant[j] and conflict[i, j])
            for i in range(n):
                if request[i] and not grant[i]:
                    rivals = [j for j in range(n) if grant[j] and conflict[min(i, j), max(i, j)]]
                    blocked = [
                        j for j in range(n) if request[j] and j != i and conflict[min(i, j), max(i, j)]
                    ]
                    assert rivals or blocked, "a request without a rival is served"
                assert starving[i] == (waited[i] >= config.starvation_limit and i not in config.locked)
                if request[i] and not grant[i]:
                    assert i not in config.locked
                    waited[i] += 1
                else:
                    waited[i] = 0
                seen["worst"][i] = max(seen["worst"][i], waited[i])
                if grant[i]:
                    seen["served"][i] += 1
                    request[i] = False
            if any(request):
                assert any(grant) or not any(request)
            seen["together"] += sum(grant) > 1
            await ctx.tick()

    simulate(dut, bench)
    return seen


@pytest.mark.parametrize("ports", [2, 3, 5])
def test_everybody_conflicts(ports):
    config = ArbiterConfig(ports=ports, starvation_limit=8)
    seen = _run(config, rng(), 1.0, 1.0)
    assert max(seen["served"]) - min(seen["served"]) <= 1, "equals share"
    assert max(seen["worst"]) <= config.wait_bound
    assert seen["together"] == 0


def test_those_that_do_not_collide_are_served_together():
    seen = _run(ArbiterConfig(ports=4), rng(), 1.0, 0.0, 100)
    assert seen["served"] == [100] * 4


@pytest.mark.parametrize("conflict_rate", [0.3, 0.8])
def test_random_conflicts(conflict_rate):
    config = ArbiterConfig(ports=5, preferred=(0, 2), starvation_limit=6)
    seen = _run(config, rng(), 0.7, conflict_rate, 2000)
    assert max(seen["worst"]) <= config.wait_bound
    assert seen["together"] > 100


def test_preferred_win_until_somebody_starves():
    config = ArbiterConfig(ports=3, preferred=(1,), starvation_limit=10)
    seen = _run(config, rng(), 1.0, 1.0, 1200)
    assert seen["served"][1] > 9 * max(seen["served"][0], seen["served"][2])
    assert min(seen["served"]) > 50
    assert max(seen["worst"]) <= config.wait_bound


def test_locked_is_never_refused():
    config = ArbiterConfig(ports=3, locked=(2,), starvation_limit=4)
    seen = _run(config, rng(), 0.6, 1.0, 1500)
    assert seen["worst"][2] == 0
    assert min(seen["served"]) > 50


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ports": 1}, "ports must be at least 2, not 1"),
        ({"locked": (0, 1)}, "locked must be at most one requester below 3"),
        ({"locked": (3,)}, "locked must be at most one requester below 3"),
        ({"locked": (1,), "preferred": (1,)}, "preferred must be requesters below 3 that are not locked"),
        ({"starvation_limit": 0}, "starvation_limit must be at least 1, not 0"),
    ],
)
def test_bad_configuration(change, text):
    with pytest.raises(ValueError, match=text):
        ArbiterConfig(**{"ports": 3, **change})
