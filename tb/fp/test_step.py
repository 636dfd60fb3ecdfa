"""Fp32Step against Python integers: the adder's width and those of processing elements."""

import pytest

from models.formats import MAC_DTYPES, DType
from rtl.fp.step import Fp32Step, StepConfig
from rtl.pe.operand import PeConfig
from sim.runner import run_bench

WIDTHS = [
    24,
    *(
        PeConfig(formats=f).sum_bits
        for f in (MAC_DTYPES, (DType.BF16,), (DType.E2M1X4,), (DType.BF16, DType.E4M3X4))
    ),
]


def _run(bits: int, vectors: int, simulator: str = "verilator") -> None:
    parameters = {"tile": "step", "vectors": vectors, "bits": bits}
    run_bench(Fp32Step, StepConfig(bits=bits), "tb.fp.tb_fp", simulator=simulator, parameters=parameters)


@pytest.mark.parametrize("bits", WIDTHS)
def test_exact(bits: int) -> None:
    _run(bits, 15000)


def test_icarus() -> None:
    _run(24, 400, "icarus")


@pytest.mark.regress
@pytest.mark.parametrize("bits", WIDTHS)
def test_many(bits: int) -> None:
    _run(bits, 200000)


def test_bad_bits() -> None:
    with pytest.raises(ValueError, match="bits must be at least 4, not 3"):
        StepConfig(bits=3)
