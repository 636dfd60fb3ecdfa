"""Maximum and minimum against models, in Verilator and Icarus."""

from sim.runner import run_bench
from tb.fp.tiles import ExtremeConfig, ExtremeTile


def _run(vectors: int, simulator: str) -> None:
    parameters = {"tile": "extreme", "vectors": vectors}
    run_bench(ExtremeTile, ExtremeConfig(), "tb.fp.tb_fp", simulator=simulator, parameters=parameters)


def test_exact() -> None:
    _run(30000, "verilator")


def test_icarus() -> None:
    _run(300, "icarus")
