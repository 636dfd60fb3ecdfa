"""SBUF of a real preset: its ports by name, under the controller's bench."""

import dataclasses

from models import config
from rtl.memory.sbuf import Sbuf, sbuf_memory
from sim.runner import run_bench

CONFIG = dataclasses.replace(config.find("nano"), sbuf=config.SbufConfig(bytes_per_partition=1024, banks=4))


def test_ports() -> None:
    memory = sbuf_memory(CONFIG)
    assert memory.lane_reads == (
        "moving",
        "moving_scale",
        "stationary",
        "stationary_scale",
        "vector0",
        "vector1",
        "scalar",
        "gpsimd",
    )
    assert memory.lane_writes == ("vector_w", "scalar_w", "gpsimd_w")
    assert memory.preferred == ("moving",)


def test_traffic() -> None:
    parameters = dataclasses.asdict(sbuf_memory(CONFIG))
    run_bench(Sbuf, CONFIG, "tb.memory.tb_controller", parameters=parameters)
