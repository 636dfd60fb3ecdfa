"""Random wide floats, and the way from models.wide's arrays to ports' bits and back."""

import random

import numpy as np

from models.microcode import Constant
from models.wide import EXP_MAX, EXP_MIN, SIG_BITS, Wide
from rtl.scalar.wide import wide_bits


def wides(items: list[Constant]) -> Wide:
    """An array of wide floats."""
    return Wide(
        np.array([bool(c.neg) for c in items]),
        np.array([c.exp for c in items], dtype=np.int64),
        np.array([c.sig for c in items], dtype=np.uint64),
        np.array([c.kind == 1 for c in items]),
        np.array([c.kind == 2 for c in items]),
    )


def item(x: Wide, i: int) -> Constant:
    """Element `i`."""
    kind = 2 if x.nan[i] else int(x.inf[i])
    return Constant(int(x.neg[i]), int(x.exp[i]), int(x.sig[i]), kind)


def bits(x: Wide, i: int) -> int:
    """Element `i` as a port's bits."""
    return wide_bits(item(x, i))


def random_wide(r: random.Random) -> Constant:
    """Any number, with zeros, specials, powers of two, integers and halves, and extreme exponents more often than chance has them."""
    kind = r.choice("znipqhefffffff")
    neg = r.getrandbits(1)
    if kind == "z":
        return Constant(neg, 0, 0)
    if kind == "n":
        return Constant(0, 0, 0, 2)
    if kind == "i":
        return Constant(neg, 0, 0, 1)
    sig = (1 << (SIG_BITS - 1)) | r.getrandbits(SIG_BITS - 1)
    exp = r.randint(-3, 3) if r.random() < 0.6 else r.randint(-40, 40)
    if kind == "p":
        sig = r.choice((1 << (SIG_BITS - 1), (1 << SIG_BITS) - 1))
    if kind in "qh":
        exp = r.randint(-2, 14)
        sig = (sig >> (SIG_BITS - 4) << (SIG_BITS - 4)) | r.choice((0, 1, 0))
    if kind == "e":
        exp = r.choice((EXP_MIN, EXP_MIN + 1, EXP_MAX - 1, EXP_MAX, r.randint(EXP_MIN, EXP_MAX)))
    return Constant(neg, exp, sig)
