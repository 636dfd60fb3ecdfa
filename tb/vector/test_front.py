"""VectorFront in Verilator and Icarus."""

import pytest

from rtl.vector.front import VectorFront
from sim.runner import run_bench
from tb.vector.operands import CONFIG


def _run(simulator: str, instructions: int) -> None:
    run_bench(
        VectorFront,
        CONFIG,
        "tb.vector.tb_front",
        simulator=simulator,
        parameters={"instructions": instructions},
    )


def test_verdicts() -> None:
    _run("verilator", 3000)


def test_icarus() -> None:
    _run("icarus", 150)


@pytest.mark.regress
def test_many() -> None:
    _run("verilator", 60000)
