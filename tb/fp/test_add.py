"""Fp32Add against models, in Verilator and Icarus."""

import pytest

from rtl.fp.add import Fp32Add, Fp32AddConfig
from sim.runner import run_bench


def _run(vectors: int, simulator: str = "verilator", *, exhaustive: bool = False) -> None:
    parameters = {"tile": "add", "vectors": vectors, "exhaustive": exhaustive}
    run_bench(Fp32Add, Fp32AddConfig(), "tb.fp.tb_fp", simulator=simulator, parameters=parameters)


def test_exact() -> None:
    _run(200000)


def test_icarus() -> None:
    _run(300, "icarus")


@pytest.mark.regress
def test_many() -> None:
    _run(1000000, exhaustive=True)
