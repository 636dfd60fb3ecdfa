"""The bench runner itself: a bench that fails, and one that has no test, are errors."""

import pytest

from rtl.lib.delay import Delay, DelayConfig
from sim.runner import SEED_VARIABLE, run_bench, seed

CONFIG = DelayConfig(width=4, cycles=2)


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_failing_bench(simulator):
    with pytest.raises(AssertionError, match=f"1 of 2 tests failed .{SEED_VARIABLE}="):
        run_bench(Delay, CONFIG, "tb.sim.tb_failing", simulator=simulator)


def test_passing_part():
    run_bench(Delay, CONFIG, "tb.sim.tb_failing", testcase="passes")


def test_no_test():
    with pytest.raises((AssertionError, RuntimeError, SystemExit)):
        run_bench(Delay, CONFIG, "tb.sim.images")


def test_seed(monkeypatch):
    monkeypatch.setenv(SEED_VARIABLE, "41")
    assert seed() == 41
    monkeypatch.delenv(SEED_VARIABLE)
    assert len({seed() for _ in range(5)}) > 1
