"""TensorArray in Verilator and Icarus, for several sets of formats."""

import pytest

from models.formats import DOUBLE_ROWS, MAC_DTYPES, DType
from rtl.array.array import TensorArray, array_latency
from rtl.array.row import ArrayConfig
from rtl.pe.operand import PeConfig
from sim.runner import run_bench

NANO = (DType.BF16, DType.E4M3, DType.E4M3X4, DType.E2M1X4)


def _run(
    formats: tuple[DType, ...],
    partitions: int,
    tiles: int,
    simulator: str = "verilator",
    *,
    double: tuple[DType, ...] = (),
    inline: bool = False,
) -> None:
    run_bench(
        TensorArray,
        ArrayConfig(partitions=partitions, pe=PeConfig(formats=formats, double=double)),
        "tb.array.tb_array",
        simulator=simulator,
        inline=inline,
        parameters={
            "partitions": partitions,
            "formats": [int(f) for f in formats],
            "double": [int(f) for f in double],
            "tiles": tiles,
        },
    )


def test_all_formats() -> None:
    _run(MAC_DTYPES, 8, 60, double=DOUBLE_ROWS)


def test_double_rows_alone() -> None:
    """No other format makes the bank or the sum wide enough."""
    _run(DOUBLE_ROWS, 8, 25, double=DOUBLE_ROWS)


@pytest.mark.parametrize(
    "formats", [(DType.BF16,), (DType.E2M1X4,), (DType.FP32,), NANO], ids=["bf16", "mxfp4", "fp32", "nano"]
)
def test_only_what_is_built(formats: tuple[DType, ...]) -> None:
    _run(formats, 8, 25)


def test_icarus() -> None:
    _run(NANO, 8, 4, "icarus", double=(DType.E4M3,))


def test_inlined_netlist_agrees() -> None:
    _run((DType.BF16, DType.E4M3X4), 8, 10, inline=True)


@pytest.mark.regress
@pytest.mark.parametrize("partitions", [16, 32])
def test_larger(partitions: int) -> None:
    _run(MAC_DTYPES, partitions, 40, double=DOUBLE_ROWS)


def test_latency() -> None:
    assert array_latency(8) == 3 * 8 + 3


@pytest.mark.parametrize("partitions", [0, 4, 12])
def test_bad_partitions(partitions: int) -> None:
    with pytest.raises(ValueError, match=f"partitions must be a multiple of 8, not {partitions}"):
        ArrayConfig(partitions=partitions, pe=PeConfig())
