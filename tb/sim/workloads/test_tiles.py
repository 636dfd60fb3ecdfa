"""Tiled matrices walk the addresses they name; PSUM places that are taken are no one else's."""

import numpy as np
import pytest

from models.config import find
from models.formats import DType
from models.isa import Space
from sim.workloads.layout import WorkloadError
from sim.workloads.tiles import Matrix, Sums

NANO = find("nano")


def test_elements_are_where_the_matrix_says():
    m = Matrix(64, DType.BF16, 24, 5, 8)
    assert m.tiles == 3
    assert m.all().addresses().tolist() == list(range(64, 64 + 2 * 15, 2))
    assert m.tile(1).addresses().tolist() == [74, 76, 78, 80, 82]
    assert m.tile(2, 1, 3).addresses().tolist() == [86, 88, 90]
    assert m.columns(3, 2).addresses().tolist() == [70, 72, 80, 82, 90, 92]
    assert m.per_column(2).addresses().tolist() == [64, 66, 68, 70, 72] * 2
    column = Matrix(0, DType.FP32, 16, 1, 8)
    assert column.per_row(3).addresses().tolist() == [0, 0, 0, 4, 4, 4]


def test_taken_places_do_not_overlap():
    rng = np.random.default_rng(1)
    sums = Sums(NANO)
    seen = set()
    for _ in range(200):
        sizes = [(8 * int(rng.integers(1, 4)), int(rng.integers(1, 41))) for _ in range(2)]
        with sums.take(*sizes[0]) as a, sums.take(*sizes[1]) as b:
            words = [set(m.all().addresses().tolist()) for m in (a, b)]
            assert not words[0] & words[1]
            assert max(words[0] | words[1]) + 4 <= NANO.psum.bytes_per_partition
            assert a.space == b.space == Space.PSUM
            seen.add(a.addr)
    assert len(seen) > 10, "places go round"
    assert not sums.live


def test_a_place_is_given_back_and_the_last_byte_is_used():
    sums = Sums(NANO)
    for _ in range(3):
        with sums.take(8, 512) as m:
            assert m.all().size * 4 == NANO.psum.bytes_per_partition
    with (
        sums.take(8, 300),
        pytest.raises(
            WorkloadError, match="PSUM partition of 2048 bytes is too small: 1200 needed where 1200"
        ),
        sums.take(8, 300),
    ):
        pass
