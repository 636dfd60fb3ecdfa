"""Range reduction against exact arithmetic."""

import mpmath
import numpy as np

from models import turns, wide
from models.microcode import Constant
from models.wide import SIG_BITS
from tb.lib.simulate import rng
from tb.scalar.wides import item, wides


def _number(c):
    return mpmath.mpf(c.sig) * mpmath.mpf(2) ** (c.exp - (SIG_BITS - 1)) * (-1 if c.neg else 1)


def test_quarter_turns_and_the_rest():
    r = rng()
    x = [
        Constant(r.getrandbits(1), r.randint(turns.LEAST, turns.MOST), 1 << 31 | r.getrandbits(31))
        for _ in range(3000)
    ]
    rests, wholes = turns.turn(wides(x)), turns.quadrant(wides(x))
    with mpmath.workprec(600):
        for i, c in enumerate(x):
            exact = abs(_number(c)) * 2 / mpmath.pi
            nearest = mpmath.nint(exact)
            assert _number(item(wholes, i)) == int(nearest) % 4
            off = abs(_number(item(rests, i)) - (exact - nearest))
            assert off < mpmath.mpf(2) ** -60 + abs(exact - nearest) * mpmath.mpf(2) ** -31


def test_the_words_are_bits_of_two_over_pi():
    words = turns.two_over_pi()
    bits = "".join(f"{w:032b}" for w in words)
    # LEAST - 32 zero bits and the one before the point come first
    ahead = 1 - (turns.LEAST - 32)
    assert not int(bits[:ahead], 2)
    with mpmath.workprec(500):
        assert int(bits[ahead:], 2) == int(mpmath.floor(2 / mpmath.pi * mpmath.mpf(2) ** (len(bits) - ahead)))


def test_no_numbers():
    x = wide.from_fp32(np.array([0x7F800000, 0xFF800000, 0x7FC00000], dtype=np.uint32))
    for f in (turns.turn, turns.quadrant):
        y = f(x)
        assert y.nan.all()
        assert not y.neg.any()
        assert not y.sig.any()
