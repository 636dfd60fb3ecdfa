"""MemoryController in Verilator and Icarus."""

import dataclasses
from typing import Any

import pytest

from rtl.memory.controller import MemoryController, MemoryControllerConfig
from sim.runner import run_bench

TENSOR = MemoryControllerConfig(
    partitions=8,
    bytes_per_partition=1024,
    banks=8,
    lane_reads=("moving", "scale", "vector0", "vector1"),
    lane_writes=("vector_w",),
    preferred=("moving", "scale"),
    starvation_limit=9,
)
LOCKED = MemoryControllerConfig(
    partitions=2,
    bytes_per_partition=128,
    banks=4,
    lane_reads=("sum_r", "vector0"),
    lane_writes=("sum_w", "vector_w"),
    locked=("sum_r", "sum_w"),
    starvation_limit=5,
)


def _run(config: MemoryControllerConfig, simulator: str) -> None:
    run_bench(
        MemoryController,
        config,
        "tb.memory.tb_controller",
        simulator=simulator,
        parameters=dataclasses.asdict(config),
    )


def test_preferred_ports() -> None:
    _run(TENSOR, "verilator")


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_locked_ports_and_one_bank_group(simulator: str) -> None:
    _run(LOCKED, simulator)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"partitions": 1}, "partitions must be at least 2, not 1"),
        ({"banks": 6}, "banks must be a power of two from 4, not 6"),
        ({"bytes_per_partition": 32}, "bytes must be a power of two from 64, not 32"),
        ({"lane_reads": ("a", "a")}, "lane_reads and lane_writes must be distinct names"),
        ({"lane_reads": ("row_read",)}, "lane_reads and lane_writes must be distinct names"),
        ({"locked": ("nobody",)}, "locked must be names of ports, not"),
        ({"locked": ("moving", "scale")}, "locked must be at most one requester below 5, not"),
        ({"locked": ("moving",)}, "preferred must be requesters below 5 that are not locked"),
        ({"lane_writes": ()}, "lane_writes must be at least 1, not 0"),
    ],
)
def test_bad_configurations(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        dataclasses.replace(TENSOR, **change)
