"""ChipRegisters under an AXI4-Lite master."""

import pytest

from models import config
from rtl.axi.registers import ChipRegisters
from sim.runner import run_bench


@pytest.mark.parametrize(
    ("preset", "simulator"), [("nano", "verilator"), ("small", "verilator"), ("mini", "icarus")]
)
def test_registers(preset: str, simulator: str) -> None:
    parameters = {"what": "registers", "config": preset}
    run_bench(
        ChipRegisters,
        config.find(preset),
        "tb.axi.tb_lite",
        simulator=simulator,
        parameters=parameters,
        testcase="chip_registers",
    )
