"""Loads and matmuls: to the cycle where nothing else is on the core."""

import itertools

import pytest

from models import cost
from models.access import AccessPattern, row
from models.config import find
from models.formats import DType
from models.isa import Engine, Space
from models.timing import tensor
from models.timing.chip import estimate
from models.timing.clock import TimingError
from rtl.access.size import LATENCY
from rtl.memory.psum import PSUM_HAZARD
from rtl.tensor.engine import PENDING
from tb.models.timing.chips import both, image_of

BF16, FP32 = DType.BF16, DType.FP32


@pytest.mark.parametrize("name", ["nano", "mini"])
@pytest.mark.parametrize("loads", [True, False], ids=["a load each", "one load"])
def test_matmuls(name, loads):
    config = find(name)
    p = config.partitions
    for count in (1, 2, 5):
        for n in (1, 9, 32, 100):

            def fill(program, count=count, n=n):
                for i in range(count):
                    if loads or i == 0:
                        program.tensor.load_stationary(row(0, BF16, p), k=p, m=p)
                    dst = row(0, FP32, n, space=Space.PSUM)
                    program.tensor.matmul(dst, row(512, BF16, n), k=p, m=p, accumulate=i > 0)

            found = both(config, image_of(config, fill))
            took, told = found.busy(Engine.TENSOR)
            # a column may find its bank taken by weights
            assert abs(told - took) <= 1, (count, n)
            assert abs(found.told - found.took) <= 1


@pytest.mark.parametrize("apart", [4, 0], ids=["other banks", "same bank"])
def test_double_rows(apart):
    config, e4m3 = find("nano"), DType.E4M3
    for count, n in itertools.product((1, 4), (9, 100)):

        def fill(program, count=count, n=n):
            for i in range(count):
                second = row(1024 + apart, e4m3, 8)
                program.tensor.load_stationary(row(0, e4m3, 8), double_row=second, k=8, m=8)
                dst, second = row(0, FP32, n, space=Space.PSUM), row(2048 + apart, e4m3, n)
                moving = row(512, e4m3, n)
                program.tensor.matmul(dst, moving, double_row=second, k=8, m=8, accumulate=i > 0)

        found = both(config, image_of(config, fill))
        took, told = found.busy(Engine.TENSOR)
        # rows that meet in a bank are not modelled: a cycle for a load and for a matmul
        assert -1 <= took - told <= (1 if apart else 2 * count), (count, n)
        assert -1 <= found.took - found.told <= (1 if apart else 2 * count)


def test_sums_that_are_not_there_yet():
    config = find("nano")

    def fill(p):
        p.tensor.load_stationary(row(0, BF16, 8), k=8, m=8)
        dst = AccessPattern(0, FP32, ((0, 20),), Space.PSUM)
        p.tensor.matmul(dst, row(512, BF16, 20), k=8, m=8, accumulate=True)

    took, told = both(config, image_of(config, fill)).busy(Engine.TENSOR)
    assert abs(told - took) <= 1
    assert told > 20 * tensor.HAZARD


def test_a_matmul_needs_weights():
    config = find("nano")

    def fill(p):
        p.tensor.load_stationary(row(0, BF16, 8), k=8, m=8)
        p.tensor.matmul(row(0, FP32, 4, space=Space.PSUM), row(512, BF16, 4), k=8, m=8)
        del p.tensor.instructions[0]

    with pytest.raises(TimingError, match="MATMUL without a LOAD_STATIONARY before it"):
        estimate(config, image_of(config, fill))


def test_constants_are_those_of_the_chip():
    assert tensor.HAZARD == PSUM_HAZARD
    assert tensor.PENDING == PENDING
    assert cost.CHECK == LATENCY + 1
