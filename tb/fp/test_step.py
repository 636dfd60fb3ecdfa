"""Fp32Step against Python integers: the adder's width and those of processing elements."""

from collections import deque
from typing import Any

import pytest

from models.formats import MAC_DTYPES, DType
from rtl.fp.step import LATENCY, Fp32Step, StepConfig
from rtl.pe.operand import PeConfig
from rtl.tiles import TileLibrary
from sim.runner import run_bench
from tb.lib.simulate import rng, simulate

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


@pytest.mark.parametrize("bits", [4, 24, 66])
def test_moves(bits: int) -> None:
    """Any word comes out as it went in, between sums that are not disturbed by it."""
    dut = Fp32Step(StepConfig(bits=bits, moves=True), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx: Any) -> None:
        expected: deque[int] = deque()
        for n in range(400):
            move = random.random() < 0.6
            word = random.choice([0x80000000, 0x7F800001, 0xFFFFFFFF, 1, random.getrandbits(32)])
            number = random.choice([0x3F800000, 0xBF800000, 0x00000001])
            for signal, value in (
                (dut.word, word),
                (dut.a, random.getrandbits(32) if move else number),
                (dut.addend.mag, random.getrandbits(bits) if move else 0),
                (dut.addend.neg, random.getrandbits(1) if move else 1),
                (dut.addend.exp, random.randrange(-300, 100) if move else -149),
                (dut.addend.inf, move and random.getrandbits(1)),
                (dut.addend.nan, move and random.getrandbits(1)),
                (dut.addend.move, move),
            ):
                ctx.set(signal, value)
            expected.append(word if move else number)
            if n >= LATENCY:
                assert ctx.get(dut.o) == expected.popleft()
            await ctx.tick()

    simulate(dut, bench)


def test_bad_bits() -> None:
    with pytest.raises(ValueError, match="bits must be at least 4, not 3"):
        StepConfig(bits=3)
