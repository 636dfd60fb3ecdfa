"""Vector and scalar instructions behind each other: to the cycle."""

import pytest

from models.access import row
from models.config import find
from models.formats import DType
from models.functions import ActFunc
from models.isa import AluOp, Engine
from tb.lib.simulate import rng
from tb.models.timing.chips import both, image_of

FP32 = DType.FP32


ENGINES = {Engine.VECTOR: 2, Engine.SCALAR: 1}
"""Instructions of each for one size."""
LONGEST = [100] * 8
"""Sizes with which both engines meet most often."""


def one_after_the_other(config, sizes, engines):
    """What instructions of `engines` take, and what the model says."""

    def fill(p):
        for n in sizes:
            if Engine.VECTOR in engines:
                p.vector.tensor_copy(row(4096, FP32, n), row(0, FP32, n), parts=4)
                p.vector.tensor_scalar(row(4096, FP32, n), row(0, FP32, n), AluOp.MUL, 2.0, parts=4)
            if Engine.SCALAR in engines:
                p.scalar.activate(row(8192, FP32, n), row(2048, FP32, n), ActFunc.RELU, parts=4)

    return both(config, image_of(config, fill))


def random_sizes():
    random = rng()
    return [random.choice((0, 1, 7, 30, 100)) for _ in range(8)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["nano", "mini"])
def test_one_after_the_other(name, engine):
    """Exact, but for the scalar engine's instructions without elements, which take up to two cycles more than is told."""
    sizes = random_sizes()
    found = one_after_the_other(find(name), sizes, [engine])
    took, told = found.busy(engine)
    empty = 2 * sizes.count(0) if engine == Engine.SCALAR else 0
    assert 0 <= took - told <= empty


@pytest.mark.parametrize("sizes", [None, LONGEST], ids=["random", "longest"])
@pytest.mark.parametrize("name", ["nano", "mini"])
def test_beside_each_other(name, sizes):
    """Where elements of both engines meet in a bank one waits, which is not modelled: at most a cycle an instruction, never too much."""
    sizes = sizes or random_sizes()
    found = one_after_the_other(find(name), sizes, ENGINES)
    for engine, each in ENGINES.items():
        took, told = found.busy(engine)
        assert 0 <= took - told <= each * len(sizes) + sizes.count(0), engine
    assert found.told == pytest.approx(found.took, rel=0.02)


@pytest.mark.parametrize("name", ["nano", "mini"])
def test_moves(name):
    config, random = find(name), rng()
    q = config.quadrant
    blocks = [random.randint(1, 4) for _ in range(6)]

    def fill(p):
        for n in blocks:
            here, there = (row(at, FP32, n * q) for at in (0, 4096))
            p.vector.lane_transpose(there, here, parts=q)
            p.vector.stream_shuffle(here, there, [*range(q - 1, -1, -1)], parts=q)

    found = both(config, image_of(config, fill))
    took, told = found.busy(Engine.VECTOR)
    assert abs(told - took) <= len(blocks)
    assert found.told == pytest.approx(found.took, rel=0.02)
