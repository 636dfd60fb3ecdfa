"""The Hsiao code: its matrix, and every single and every double flip of many words."""

from itertools import combinations

import numpy as np

from models import ecc
from models.ecc import CODE_BITS, DATA_BITS, Status
from tb.lib.simulate import rng

SINGLE = np.array([1 << b for b in range(CODE_BITS)], dtype=np.uint64)
DOUBLE = np.array([1 << a | 1 << b for a, b in combinations(range(CODE_BITS), 2)], dtype=np.uint64)


def words() -> np.ndarray:
    """All zeros, all ones, each bit alone, and random ones."""
    r = rng()
    fixed = [0, 0xFFFF_FFFF, *(1 << b for b in range(DATA_BITS))]
    return np.array(fixed + [r.getrandbits(32) for _ in range(2000)], dtype=np.uint32)


def test_matrix() -> None:
    """What makes a code Hsiao's: 39 different columns of odd weight, the least ones, in rows as even as can be."""
    assert len({*ecc.COLUMNS}) == len(ecc.COLUMNS) == 39
    assert all(c.bit_count() in (1, 3) for c in ecc.COLUMNS)
    assert [c.bit_count() for c in ecc.DATA_COLUMNS] == [3] * 32
    assert sorted(mask.bit_count() for mask in ecc.ROWS) == [13, 13, 14, 14, 14, 14, 14]


def test_no_flip() -> None:
    data = words()
    found = ecc.decode(ecc.encode(data))
    assert (found.data == data).all()
    assert not found.syndrome.any()
    assert (found.status == Status.OK).all()


def test_every_single_flip_is_corrected() -> None:
    data = words()
    found = ecc.decode(ecc.encode(data)[:, None] ^ SINGLE)
    assert (found.data == data[:, None]).all()
    assert (found.syndrome == np.array(ecc.COLUMNS)).all()
    assert (found.status == Status.CORRECTED).all()


def test_every_double_flip_is_detected() -> None:
    assert len(DOUBLE) == 741
    found = ecc.decode(ecc.encode(words())[:, None] ^ DOUBLE)
    assert (found.status == Status.UNCORRECTABLE).all()


def test_poison_stays_lost_after_one_more_flip() -> None:
    marked = ecc.encode(words()) ^ np.uint64(ecc.POISON << DATA_BITS)
    flips = np.concatenate([np.zeros(1, dtype=np.uint64), SINGLE])
    assert (ecc.decode(marked[:, None] ^ flips).status == Status.UNCORRECTABLE).all()


def test_check_bits_against_a_plain_sum_over_columns() -> None:
    for word in words()[:200].tolist():
        want = 0
        for bit, column in enumerate(ecc.DATA_COLUMNS):
            want ^= column if word >> bit & 1 else 0
        assert int(ecc.check(word)) == want
