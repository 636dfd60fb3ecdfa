"""Rounding and packing against Python integers, for the magnitudes that its users have."""

import pytest

from sim.runner import run_bench
from tb.fp.tiles import RoundConfig, RoundTile


def _run(bits: int, vectors: int, simulator: str = "verilator") -> None:
    parameters = {"tile": "round", "vectors": vectors, "bits": bits}
    run_bench(RoundTile, RoundConfig(bits=bits), "tb.fp.tb_fp", simulator=simulator, parameters=parameters)


@pytest.mark.parametrize("bits", [26, 32, 48, 64])
def test_exact(bits: int) -> None:
    _run(bits, 10000)


def test_icarus() -> None:
    _run(48, 400, "icarus")
