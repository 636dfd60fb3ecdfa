"""The nano core under cocotb."""

from rtl.core import Core
from sim.runner import run_bench
from tb.sim.images import NANO


def test_images() -> None:
    run_bench(Core, NANO, "tb.tb_core")
