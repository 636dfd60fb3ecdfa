"""Fp32Divide against models, in Verilator and Icarus."""

import pytest

from rtl.fp.divide import Fp32Divide, Fp32DivideConfig
from sim.runner import run_bench


def _run(vectors: int, simulator: str = "verilator") -> None:
    parameters = {"tile": "divide", "vectors": vectors}
    run_bench(Fp32Divide, Fp32DivideConfig(), "tb.fp.tb_fp", simulator=simulator, parameters=parameters)


def test_exact() -> None:
    _run(6000)


def test_icarus() -> None:
    _run(300, "icarus")


@pytest.mark.regress
def test_many() -> None:
    _run(120000)
