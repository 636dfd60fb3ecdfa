"""Psum in Verilator and Icarus."""

from dataclasses import replace

import pytest

from models import config
from rtl.memory.psum import PSUM_HAZARD, Psum
from sim.runner import run_bench

CONFIG = replace(config.find("nano"), core=config.CoreConfig(starvation_limit=16))


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_against_exact_adds(simulator: str) -> None:
    parameters = {
        "partitions": CONFIG.partitions,
        "bytes": CONFIG.psum.bytes_per_partition,
        "starvation_limit": CONFIG.core.starvation_limit,
    }
    run_bench(Psum, CONFIG, "tb.memory.tb_psum", simulator=simulator, parameters=parameters)


def test_hazard_distance() -> None:
    assert PSUM_HAZARD == 5
