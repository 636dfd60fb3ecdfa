"""SECDED code of the on-core memories: a Hsiao (39,32) code (M. Y. Hsiao, "A class of optimal minimum odd-weight-column SEC-DED codes", 1970).

A stored word is 39 bits: the data in bits 31:0, seven check bits above. Every column of the parity-check matrix has odd weight and no
two are equal: one flipped bit gives a syndrome that is its column, two flipped bits one of even weight, which no column is.
"""

import enum
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

DATA_BITS = 32
CHECK_BITS = 7
CODE_BITS = DATA_BITS + CHECK_BITS
_UNUSED = ((0, 1, 2), (3, 4, 5), (0, 3, 6))
"""Columns of weight 3 that no data bit has. Without them each row has 13 or 14 ones beside its check bit: the least and the most even."""

DATA_COLUMNS = tuple(
    sum(1 << row for row in rows) for rows in combinations(range(CHECK_BITS), 3) if rows not in _UNUSED
)
"""Column of each data bit; bit r of a column is its row r."""
COLUMNS = (*DATA_COLUMNS, *(1 << row for row in range(CHECK_BITS)))
"""Column of each bit of a stored word: the parity-check matrix."""
ROWS = tuple(sum(1 << bit for bit, c in enumerate(DATA_COLUMNS) if c >> row & 1) for row in range(CHECK_BITS))
"""Data bits that each check bit is the parity of, as a mask."""

POISON = (1 << CHECK_BITS) - 1
"""Flips of the check bits that mark a word as lost. No column, and none after one more flip of any bit, so that it stays uncorrectable."""


class Status(enum.IntEnum):
    """What decoding a word found."""

    OK = 0
    CORRECTED = 1
    UNCORRECTABLE = 2


class Decoded(NamedTuple):
    """Of each stored word: data (corrected where it can be, else as stored), syndrome, and Status."""

    data: npt.NDArray[np.uint32]
    syndrome: npt.NDArray[np.uint8]
    status: npt.NDArray[np.uint8]


def _tables() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
    """For each syndrome, the data bits to flip, and the Status."""
    flips = np.zeros(1 << CHECK_BITS, dtype=np.uint32)
    status = np.full(1 << CHECK_BITS, Status.UNCORRECTABLE, dtype=np.uint8)
    status[0] = Status.OK
    for bit, column in enumerate(COLUMNS):
        status[column] = Status.CORRECTED
        if bit < DATA_BITS:
            flips[column] = 1 << bit
    return flips, status


_FLIPS, _STATUS = _tables()


def check(data: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Check bits of 32-bit words, any shape."""
    words = np.asarray(data, dtype=np.uint32)
    out = np.zeros(words.shape, dtype=np.uint8)
    for row, mask in enumerate(ROWS):
        out |= (np.bitwise_count(words & np.uint32(mask)) & 1).astype(np.uint8) << np.uint8(row)
    return out


def encode(data: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Stored words of 32-bit words, any shape."""
    words = np.asarray(data, dtype=np.uint32)
    return words.astype(np.uint64) | check(words).astype(np.uint64) << np.uint64(DATA_BITS)


def decode(stored: npt.ArrayLike) -> Decoded:
    """What a decoder makes of 39-bit stored words, any shape."""
    words = np.asarray(stored, dtype=np.uint64)
    data = (words & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
    syndrome = check(data) ^ (words >> np.uint64(DATA_BITS)).astype(np.uint8)
    return Decoded(data ^ _FLIPS[syndrome], syndrome, _STATUS[syndrome])
