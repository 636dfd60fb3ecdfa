"""VectorEngine in Verilator and Icarus."""

import pytest

from rtl.vector.engine import VectorEngine
from sim.runner import run_bench
from tb.vector.operands import CONFIG


def _run(simulator: str, instructions: int) -> None:
    run_bench(
        VectorEngine,
        CONFIG,
        "tb.vector.tb_engine",
        simulator=simulator,
        parameters={"instructions": instructions},
    )


def test_engine() -> None:
    _run("verilator", 400)


def test_icarus() -> None:
    _run("icarus", 16)


@pytest.mark.regress
def test_many() -> None:
    _run("verilator", 15000)
