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


@pytest.mark.parametrize("name", ["nano", "mini"])
def test_one_after_the_other(name):
    config, random = find(name), rng()
    sizes = [random.choice((0, 1, 7, 30, 100)) for _ in range(8)]

    def fill(p):
        for n in sizes:
            p.vector.tensor_copy(row(4096, FP32, n), row(0, FP32, n), parts=4)
            p.vector.tensor_scalar(row(4096, FP32, n), row(0, FP32, n), AluOp.MUL, 2.0, parts=4)
            p.scalar.activate(row(8192, FP32, n), row(2048, FP32, n), ActFunc.RELU, parts=4)

    found = both(config, image_of(config, fill))
    for engine, each in ((Engine.VECTOR, 2), (Engine.SCALAR, 1)):
        took, told = found.busy(engine)
        # an instruction without elements may take a cycle more; the first elements of both engines' may meet in a bank
        assert abs(told - took) <= each * len(sizes), engine
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
