"""Exponential against models, in Verilator and Icarus."""

import pytest

from rtl.fp.exponential import Exponential, ExponentialConfig
from sim.runner import run_bench


def _run(vectors: int, simulator: str = "verilator") -> None:
    parameters = {"tile": "exponential", "vectors": vectors}
    run_bench(Exponential, ExponentialConfig(), "tb.fp.tb_fp", simulator=simulator, parameters=parameters)


def test_exact() -> None:
    _run(30000)


def test_icarus() -> None:
    _run(300, "icarus")


@pytest.mark.regress
def test_many() -> None:
    _run(600000)
