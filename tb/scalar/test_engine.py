"""ScalarEngine in Verilator and Icarus."""

import pytest

from rtl.scalar.engine import ScalarEngine
from sim.runner import run_bench
from tb.vector.operands import CONFIG


def _run(simulator: str, instructions: int) -> None:
    run_bench(
        ScalarEngine,
        CONFIG,
        "tb.scalar.tb_engine",
        simulator=simulator,
        parameters={"instructions": instructions},
    )


def test_engine() -> None:
    _run("verilator", 60)


def test_icarus() -> None:
    _run("icarus", 2)


@pytest.mark.regress
def test_many() -> None:
    _run("verilator", 3000)
