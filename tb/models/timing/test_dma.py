"""DMAs alone take to the cycle what the chip takes; with others, nearly."""

import pytest

from models.addressing import PSUM_PARTITION_STRIDE, SBUF_PARTITION_STRIDE, core_address, memory_address
from models.config import find
from models.isa import Space
from models.timing import dma, memory
from rtl.axi import crossbar
from rtl.dma import engine, source
from rtl.memory import controller
from tb.models.timing.chips import both, image_of

MINI = find("mini")
PLACES = {
    "memory": (memory_address(0x10000), None),
    "sbuf": (core_address(0, Space.SBUF, 0, 0), SBUF_PARTITION_STRIDE),
    "psum": (core_address(0, Space.PSUM, 0, 0), PSUM_PARTITION_STRIDE),
}
SHAPES = [(1, 4, 0), (8, 64, 0), (8, 200, 8), (4, 1024, 3), (2, 1500, 0), (0, 16, 0), (3, 0, 0)]
"""Rows, their bytes, offset of the source."""


def copy(p, source, target, rows, size, offset, number=0):
    (a, a_stride), (b, b_stride) = PLACES[source], PLACES[target]
    p.sync.dma(
        a + offset + number * rows * size,
        b + (0x40000 if source == target == "memory" else 0x2000 if source == target else 0),
        row_bytes=size,
        rows=rows,
        src_stride=a_stride or size,
        dst_stride=b_stride or size,
    )


@pytest.mark.parametrize("target", list(PLACES))
@pytest.mark.parametrize("source", list(PLACES))
def test_alone(source, target):
    for rows, size, offset in SHAPES:
        if (source, target) == ("psum", "psum") and size > 200:
            continue
        found = both(MINI, image_of(MINI, lambda p: copy(p, source, target, rows, size, offset)))  # noqa: B023
        took, told = found.dma
        assert abs(told - took) <= 1, (rows, size, offset, took, told)


def test_many():
    def fill(p):
        for n in range(6):
            copy(p, "memory", "sbuf", 16, 64, 0, n)

    took, told = both(MINI, image_of(MINI, fill)).dma
    assert abs(told - took) <= 2


def test_constants_are_those_of_the_chip():
    assert dma.QUEUED == engine.CHUNKS
    assert dma.HELD == source.DEPTH + 1
    assert dma.ROW_READ == controller.ROW_READ_LATENCY
    assert memory.OUTSTANDING == crossbar.OUTSTANDING
    assert memory.PAGE == 1 << crossbar.PAGE_BITS
