"""VectorLane in Verilator and Icarus."""

import pytest

from rtl.vector.lane import LaneConfig, VectorLane
from sim.runner import run_bench


def _run(simulator: str, runs: int) -> None:
    run_bench(VectorLane, LaneConfig(), "tb.vector.tb_lane", simulator=simulator, parameters={"runs": runs})


def test_exact() -> None:
    _run("verilator", 1500)


def test_icarus() -> None:
    _run("icarus", 40)


@pytest.mark.regress
def test_many() -> None:
    _run("verilator", 30000)
