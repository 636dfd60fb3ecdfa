"""AxiLiteSlave under an AXI4-Lite master."""

import pytest

from rtl.axi.lite import AxiLiteConfig, AxiLiteSlave
from sim.runner import run_bench


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_accesses(simulator: str) -> None:
    run_bench(
        AxiLiteSlave,
        AxiLiteConfig(),
        "tb.axi.tb_lite",
        simulator=simulator,
        parameters={"what": "lite"},
        testcase="slave",
    )
