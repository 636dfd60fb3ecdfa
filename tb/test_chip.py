"""The nano chip under cocotb."""

import pytest

from rtl.chip import Chip
from sim.runner import run_bench
from tb.sim.images import NANO


def test_host_memory_and_errors() -> None:
    run_bench(Chip, NANO, "tb.tb_chip")


@pytest.mark.regress
def test_icarus() -> None:
    run_bench(Chip, NANO, "tb.tb_chip", simulator="icarus", testcase="runs_images")
