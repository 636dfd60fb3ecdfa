"""TensorEngine in Verilator and Icarus."""

import pytest

from rtl.tensor.engine import TensorEngine
from sim.runner import run_bench
from tb.tensor.instructions import CONFIG


def _run(batches: int, simulator: str = "verilator", testcase: str | None = None) -> None:
    run_bench(
        TensorEngine,
        CONFIG,
        "tb.tensor.tb_engine",
        simulator=simulator,
        parameters={"batches": batches},
        testcase=testcase,
    )


def test_against_the_model() -> None:
    _run(40)


def test_icarus() -> None:
    _run(3, "icarus", "random_batches")


@pytest.mark.regress
def test_many() -> None:
    _run(600)
