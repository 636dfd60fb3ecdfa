"""Small tiles in Amaranth's own simulator: no build, so that hundreds of random cases cost nothing."""

import os
import random
from collections.abc import Callable, Coroutine
from typing import Any

from amaranth.sim import Simulator

from sim.runner import SEED_VARIABLE


def rng() -> random.Random:
    """Random numbers of this test; the seed is printed, TESELA_SEED sets it."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 31))
    print(f"re-run with {SEED_VARIABLE}={seed}")
    return random.Random(seed)


def simulate(dut: Any, bench: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Clock `dut` under `bench(ctx)` until it returns."""
    sim = Simulator(dut)
    sim.add_clock(1e-6, if_exists=True)
    sim.add_testbench(bench)
    sim.run()
