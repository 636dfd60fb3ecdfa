"""Decode against models, in Verilator and Icarus."""

import pytest

from rtl.fp.decode import Decode, DecodeConfig
from sim.runner import run_bench


def _run(vectors: int, simulator: str = "verilator", *, exhaustive: bool = False) -> None:
    parameters = {"tile": "decode", "vectors": vectors, "exhaustive": exhaustive}
    run_bench(Decode, DecodeConfig(), "tb.fp.tb_fp", simulator=simulator, parameters=parameters)


def test_exact() -> None:
    _run(2000)


def test_icarus() -> None:
    _run(300, "icarus")


@pytest.mark.regress
def test_many() -> None:
    _run(20000, exhaustive=True)
