"""Fp32Mul against models, in Verilator and Icarus."""

import pytest

from rtl.fp.mul import Fp32Mul, Fp32MulConfig
from sim.runner import run_bench


def _run(vectors: int, simulator: str = "verilator", *, exhaustive: bool = False) -> None:
    parameters = {"tile": "mul", "vectors": vectors, "exhaustive": exhaustive}
    run_bench(Fp32Mul, Fp32MulConfig(), "tb.fp.tb_fp", simulator=simulator, parameters=parameters)


def test_exact() -> None:
    _run(200000)


def test_icarus() -> None:
    _run(300, "icarus")


@pytest.mark.regress
def test_many() -> None:
    _run(1000000, exhaustive=True)
