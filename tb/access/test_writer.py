"""LaneWriter in Verilator and Icarus, with one memory and with both."""

from typing import Any

import pytest

from rtl.access.writer import LaneWriter, LaneWriterConfig
from sim.runner import run_bench

BOTH = LaneWriterConfig(partitions=8, sbuf_addr_bits=8, psum_addr_bits=6)
ONE = LaneWriterConfig(partitions=8, sbuf_addr_bits=7, psum_addr_bits=None)
PSUM = LaneWriterConfig(partitions=8, sbuf_addr_bits=None, psum_addr_bits=7)


def _run(config: LaneWriterConfig, simulator: str) -> None:
    parameters = {"direction": "write", "spaces": config.spaces}
    run_bench(LaneWriter, config, "tb.access.tb_lanes", simulator=simulator, parameters=parameters)


@pytest.mark.parametrize("config", [BOTH, ONE, PSUM], ids=["both", "sbuf", "psum"])
def test_random_patterns(config: LaneWriterConfig) -> None:
    _run(config, "verilator")


def test_icarus() -> None:
    _run(BOTH, "icarus")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"partitions": 6}, "partitions must be a power of two from 4, not 6"),
        ({"sbuf_addr_bits": None, "psum_addr_bits": None}, "must not both be None"),
    ],
)
def test_bad_configuration(change: dict[str, Any], text: str) -> None:
    shape: dict[str, Any] = {"partitions": 8, "sbuf_addr_bits": 8, "psum_addr_bits": 6}
    with pytest.raises(ValueError, match=text):
        LaneWriterConfig(**{**shape, **change})
