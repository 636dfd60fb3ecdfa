"""MemoryCrossbar in Verilator and Icarus."""

from typing import Any

import pytest

from rtl.axi.crossbar import MemoryCrossbar, MemoryCrossbarConfig
from sim.runner import run_bench


def _run(readers: int, writers: int, channels: int, *, simulator: str = "verilator", rounds: int = 4) -> None:
    size = 16 * 4096
    config = MemoryCrossbarConfig(
        readers=readers, writers=writers, channels=channels, id_width=6, memory_bytes=size
    )
    parameters = {
        "readers": readers,
        "writers": writers,
        "channels": channels,
        "bytes": size,
        "rounds": rounds,
    }
    run_bench(MemoryCrossbar, config, "tb.axi.tb_crossbar", simulator=simulator, parameters=parameters)


@pytest.mark.parametrize(("readers", "writers", "channels"), [(4, 1, 1), (5, 2, 2)])
def test_traffic(readers: int, writers: int, channels: int) -> None:
    _run(readers, writers, channels)


def test_icarus() -> None:
    _run(3, 2, 2, simulator="icarus", rounds=1)


@pytest.mark.regress
def test_many_ports() -> None:
    _run(32, 8, 8, rounds=10)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"readers": 0}, "readers and writers must be at least 1"),
        ({"channels": 3}, "channels must be a power of two, not 3"),
        ({"readers": 65}, "id_width must hold 65 ports, not 6"),
    ],
)
def test_bad_configuration(change: dict[str, Any], text: str) -> None:
    shape: dict[str, Any] = {"readers": 4, "writers": 1, "channels": 1, "id_width": 6, "memory_bytes": 65536}
    with pytest.raises(ValueError, match=text):
        MemoryCrossbarConfig(**{**shape, **change})
