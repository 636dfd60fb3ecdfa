"""DmaEngine in Verilator and Icarus."""

import pytest

from rtl.dma.engine import DmaEngine
from sim.runner import run_bench
from tb.dma.tb_engine import CONFIG


def _run(rounds: int, simulator: str = "verilator", testcase: str | None = None) -> None:
    run_bench(
        DmaEngine,
        CONFIG,
        "tb.dma.tb_engine",
        simulator=simulator,
        parameters={"rounds": rounds},
        testcase=testcase,
    )


def test_against_the_model() -> None:
    _run(14)


def test_icarus() -> None:
    _run(2, "icarus", "every_pair_of_memories")


@pytest.mark.regress
def test_many() -> None:
    _run(150)
