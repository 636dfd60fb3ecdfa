"""Range reduction for sine and cosine (Payne and Hanek): |x| in quarter turns, whole ones and the rest, bit for bit as the hardware does it.

|x| = sig * 2**(exp - 31). Of 2/pi only WINDOW bits matter: those above give multiples of four quarter turns, those below are too small. They
are found by x's exponent, multiplied by sig modulo four quarter turns, and the product's nearest integer is split off.
"""

from functools import cache

import mpmath
import numpy as np
from numpy.typing import NDArray

from models import wide
from models.wide import SIG_BITS, Wide

WORDS = 3
"""32-bit words of 2/pi that are multiplied."""
WINDOW = 32 * WORDS
LEAST, MOST = -1, 255
"""Exponents that the reduction is for: |x| from 1/2 on, and all that a product of two FP32 numbers can have. Beyond they count as the nearest of these."""
U64 = NDArray[np.uint64]
_32 = np.uint64(32)
_MASK = np.uint64((1 << 32) - 1)


@cache
def two_over_pi() -> tuple[int, ...]:
    """32-bit words, highest first, from which x's window is the WINDOW bits that start at bit exp - LEAST from the top.

    The first bit of the window of exponent `exp` is number exp - 32 of 2/pi, 1 being the first one behind the point: times the lowest
    bit of sig it is 2**(exp - 31) * 2**-(exp - 32) = 2 quarter turns.
    """
    first = LEAST - 32
    words = -(-(MOST - LEAST + WINDOW) // 32)
    bits = 32 * words
    with mpmath.workprec(bits + 64):
        number = int(mpmath.floor(2 / mpmath.pi * mpmath.mpf(2) ** (first + bits - 1)))
    return tuple(number >> 32 * (words - 1 - n) & 0xFFFFFFFF for n in range(words))


def _windows(x: Wide) -> list[U64]:
    """The words of 2/pi for each number, highest first."""
    table = np.array([*two_over_pi(), 0], dtype=np.uint64)
    at = np.clip(x.exp, LEAST, MOST) - LEAST
    word, shift = at >> 5, (at & 31).astype(np.uint64)
    return [((table[word + n] << _32 | table[word + n + 1]) >> (_32 - shift)) & _MASK for n in range(WORDS)]


def _split(x: Wide) -> tuple[NDArray[np.int64], NDArray[np.bool_], list[U64]]:
    """(whole quarter turns modulo 4 rounded to nearest, whether the rest is negative, its magnitude's words, highest first).

    The magnitude's unit is 2**-94; a negative rest has its bits inverted, which is one unit less than its magnitude.
    """
    high, middle, low = _windows(x)
    p0, p1, p2 = x.sig * high & _MASK, x.sig * middle, x.sig * low
    sum1 = (p2 >> _32) + (p1 & _MASK)
    sum0 = ((sum1 >> _32) + (p1 >> _32) + p0) & _MASK
    negative = (sum0 >> np.uint64(29) & np.uint64(1)).astype(np.bool_)
    quadrant = ((sum0 >> np.uint64(30)).astype(np.int64) + negative) & 3
    flip = np.where(negative, _MASK, np.uint64(0))
    rest = [(sum0 ^ flip) & np.uint64((1 << 29) - 1), (sum1 & _MASK) ^ flip, (p2 & _MASK) ^ flip]
    return quadrant, negative, rest


def turn(x: Wide) -> Wide:
    """|x| * 2 / pi less its nearest integer, below 2**-60 off; further bits of the result are dropped. NaN for infinities and NaN.

    Means nothing for |x| below 1/2.
    """
    _, negative, (high, middle, low) = _split(x)
    # leading zeros of a number of 93 bits: at least three of high's 32
    top = np.where(high != 0, high, np.where(middle != 0, middle, low))
    after = np.where(high != 0, middle, np.where(middle != 0, low, np.uint64(0)))
    skipped = np.where(high != 0, 0, np.where(middle != 0, 32, 64))
    lead = 32 - np.frexp(top.astype(np.float64))[1].astype(np.int64)
    sig = ((top << _32 | after) << lead.astype(np.uint64)) >> _32
    no = np.zeros(x.sig.shape, dtype=np.bool_)
    nan = x.nan | x.inf
    # the top bit of high has 2**1
    return wide._finish(negative, 1 - skipped - lead, sig & _MASK, no, nan)


def quadrant(x: Wide) -> Wide:
    """The nearest integer to |x| * 2 / pi, modulo 4: 0, 1, 2 or 3. NaN for infinities and NaN. Means nothing for |x| below 1/2."""
    number, _, _ = _split(x)
    found = wide._from_integer(number)
    none = np.zeros(x.sig.shape, dtype=np.bool_)
    nan = x.nan | x.inf
    return wide._finish(none, found.exp, np.where(nan, np.uint64(0), found.sig), none, nan)


assert SIG_BITS == 32
