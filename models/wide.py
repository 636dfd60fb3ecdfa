"""Wide floats: the scalar engine's numbers, with 32 significand bits, and its operations bit for bit as the hardware does them.

A finite number is (-1)**neg * sig * 2**(exp - 31) with sig 0 or 2**31 <= sig < 2**32; eight bits more than FP32 so that a chain of
operations stays well within one FP32 place. Exponents have EXP_BITS bits: results beyond become infinities or zeros.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIG_BITS = 32
EXP_BITS = 13
EXP_MAX = (1 << (EXP_BITS - 1)) - 1
EXP_MIN = -(1 << (EXP_BITS - 1))
GUARD = 3
"""Bits below the last one that an aligned operand keeps."""
SEED_BITS = 9
"""Significand bits of the first guesses for 1/x and 1/sqrt(x)."""
SQRT_HALF = 0xB504F333
"""Significand of sqrt(2) * 2**31: where SPLIT's significand wraps to the next exponent."""

U64 = NDArray[np.uint64]
_TOP = np.uint64(1 << 31)
_ONE = np.uint64(1)


@dataclass(slots=True)
class Wide:
    """Arrays of wide floats of one shape: `neg` bool, `exp` int64, `sig` uint64, `inf` and `nan` bool (they overrule exp and sig)."""

    neg: NDArray[np.bool_]
    exp: NDArray[np.int64]
    sig: U64
    inf: NDArray[np.bool_]
    nan: NDArray[np.bool_]

    def select(self, take: NDArray[np.bool_], other: "Wide") -> "Wide":
        """self where `take`, else other."""
        return Wide(
            *(
                np.where(take, getattr(self, f), getattr(other, f))
                for f in ("neg", "exp", "sig", "inf", "nan")
            )
        )

    @property
    def zero(self) -> NDArray[np.bool_]:
        """True for zeros of either sign."""
        return (self.sig == 0) & ~self.inf & ~self.nan


def _finish(
    neg: NDArray[np.bool_], exp: NDArray[np.int64], sig: U64, inf: NDArray[np.bool_], nan: NDArray[np.bool_]
) -> Wide:
    """Exponents out of range become infinities and zeros; what a special overrules is cleared, so that equal numbers are equal bits."""
    finite = ~inf & ~nan & (sig != 0)
    inf = ~nan & (inf | (finite & (exp > EXP_MAX)))
    sig = np.where(inf | nan | (exp < EXP_MIN), np.uint64(0), sig).astype(np.uint64)
    return Wide(neg & ~nan, np.where(sig == 0, 0, exp), sig, inf, nan)


def _width(x: U64) -> NDArray[np.int64]:
    """Bits needed for x < 2**53; 0 for 0."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


def from_fp32(bits: NDArray[np.uint32]) -> Wide:
    """FP32 codes to wide floats, exactly."""
    bits = np.asarray(bits, dtype=np.uint32).astype(np.uint64)
    field, frac = (bits >> np.uint64(23)) & np.uint64(0xFF), bits & np.uint64(0x7FFFFF)
    mag: U64 = np.where(field == 0, frac, frac | np.uint64(1 << 23)).astype(np.uint64)
    width = _width(mag)
    sig = mag << (32 - width).astype(np.uint64)
    exp = np.maximum(field.astype(np.int64), 1) - 150 + width - 1
    special = field == 255
    sig = np.where(mag == 0, np.uint64(0), sig)
    neg = (bits >> np.uint64(31)).astype(np.bool_)
    return _finish(neg, exp, sig.astype(np.uint64), special & (frac == 0), special & (frac != 0))


def to_fp32(x: Wide) -> NDArray[np.uint32]:
    """Wide floats to FP32 codes: one RNE rounding, subnormals kept, overflow to Inf, canonical NaN."""
    tiny = np.clip(-126 - x.exp, 0, 25).astype(np.uint64)
    drop = np.uint64(8) + tiny
    kept = x.sig >> drop
    rest, half = x.sig & ((_ONE << drop) - _ONE), _ONE << (drop - _ONE)
    up = (rest > half) | ((rest == half) & (kept & _ONE == _ONE))
    kept = kept + up.astype(np.uint64)
    base = np.where(tiny > 0, 0, x.exp + 126).clip(0, 254).astype(np.uint64)
    packed = np.where(x.sig == 0, np.uint64(0), (base << np.uint64(23)) + kept)
    packed = np.where(
        x.inf | (packed >= np.uint64(0x7F800000)) | ((x.exp > 127) & (x.sig != 0)),
        np.uint64(0x7F800000),
        packed,
    )
    packed = packed | (x.neg.astype(np.uint64) << np.uint64(31))
    return np.where(x.nan, np.uint64(0x7FC00000), packed).astype(np.uint32)


def negate(x: Wide) -> Wide:
    """-x; NaN has no sign."""
    return Wide(~x.neg & ~x.nan, x.exp, x.sig, x.inf, x.nan)


def absolute(x: Wide) -> Wide:
    """|x|."""
    return Wide(np.zeros_like(x.neg), x.exp, x.sig, x.inf, x.nan)


def copysign(x: Wide, y: Wide) -> Wide:
    """|x| with the sign of y; NaN has no sign."""
    return Wide(y.neg & ~x.nan, x.exp, x.sig, x.inf, x.nan)


def _multiply(a: Wide, b: Wide) -> Wide:
    """Product, rounded to SIG_BITS (half away from zero)."""
    product = a.sig * b.sig
    high = (product >> np.uint64(63)).astype(bool)
    shift = np.where(high, np.uint64(32), np.uint64(31))
    sig = (product >> shift) + ((product >> (shift - _ONE)) & _ONE)
    over = sig >> np.uint64(32) != 0
    exp = a.exp + b.exp + high + over
    sig = np.where(over, _TOP, sig)
    zero = a.zero | b.zero
    inf, nan = a.inf | b.inf, a.nan | b.nan
    return _finish(a.neg ^ b.neg, exp, np.where(zero, np.uint64(0), sig), inf & ~zero, nan | (inf & zero))


def _add(a: Wide, b: Wide) -> Wide:
    """Sum: the smaller operand keeps GUARD bits when aligned, the rest of it is dropped; rounded half away from zero."""
    swap = b.zero | (~a.zero & ((a.exp > b.exp) | ((a.exp == b.exp) & (a.sig >= b.sig))))
    big, small = a.select(swap, b), b.select(swap, a)
    distance = np.where(small.zero, 63, np.minimum(big.exp - small.exp, 63)).astype(np.uint64)
    x, y = big.sig << np.uint64(GUARD), (small.sig << np.uint64(GUARD)) >> distance
    total = np.where(big.neg == small.neg, x + y, x - y)
    width = _width(total)
    left = np.maximum(SIG_BITS - width, 0).astype(np.uint64)
    right = np.maximum(width - SIG_BITS, 0).astype(np.uint64)
    half = np.where(right == 0, np.uint64(0), (total >> (np.maximum(right, _ONE) - _ONE)) & _ONE)
    sig = ((total << left) >> right) + half
    over = sig >> np.uint64(32) != 0
    sig = np.where(over, _TOP, sig)
    exp = big.exp + width - (SIG_BITS + GUARD) + over
    none = total == 0
    neg = np.where(none, a.neg & b.neg & a.zero & b.zero, big.neg)
    inf = a.inf | b.inf
    nan = a.nan | b.nan | (a.inf & b.inf & (a.neg != b.neg))
    neg = np.where(inf, np.where(a.inf, a.neg, b.neg), neg)
    return _finish(neg, exp, np.where(none, np.uint64(0), sig), inf, nan)


def fma(a: Wide, b: Wide, c: Wide) -> Wide:
    """a * b + c: the product is rounded to SIG_BITS, then the sum."""
    return _add(_multiply(a, b), c)


def rint(x: Wide) -> Wide:
    """Nearest integer, ties to even; zeros keep their sign."""
    drop = np.clip(31 - x.exp, 0, 33).astype(np.uint64)
    kept = x.sig >> drop
    rest, half = x.sig & ((_ONE << drop) - _ONE), (_ONE << drop) >> _ONE
    up = (drop != 0) & ((rest > half) | ((rest == half) & (kept & _ONE == _ONE)))
    kept = kept + up.astype(np.uint64)
    width = _width(kept)
    sig = np.where(width > 32, _TOP, kept << np.maximum(32 - width, 0).astype(np.uint64))
    exp = np.where(drop == 0, x.exp, width - 1)
    return _finish(x.neg, exp, np.where(kept == 0, np.uint64(0), sig), x.inf, x.nan)


def _integer(x: Wide) -> NDArray[np.int64]:
    """Integers of magnitude below 2**EXP_BITS as such; larger ones, infinities and NaN count as 2**EXP_BITS."""
    small = ~x.inf & ~x.nan & (x.exp < EXP_BITS)
    value = (x.sig >> np.clip(31 - x.exp, 0, 63).astype(np.uint64)).astype(np.int64)
    value = np.where(small, value, 1 << EXP_BITS)
    return np.where(x.neg, -value, value)


def scale(x: Wide, k: Wide) -> Wide:
    """x * 2**k, k an integer (a fraction of it is dropped)."""
    return _finish(x.neg, x.exp + _integer(k), x.sig, x.inf, x.nan | k.nan)


def _from_integer(value: NDArray[np.int64]) -> Wide:
    mag = np.abs(value).astype(np.uint64)
    width = _width(mag)
    sig = np.where(mag == 0, np.uint64(0), mag << (32 - width).astype(np.uint64))
    no = np.zeros(value.shape, dtype=bool)
    return _finish(value < 0, width - 1, sig, no, no)


def exponent(x: Wide) -> Wide:
    """e of x = f * 2**e with sqrt(1/2) <= |f| < sqrt(2); 0 for zeros, infinities and NaN."""
    value = x.exp + (x.sig >= np.uint64(SQRT_HALF))
    return _from_integer(np.where(x.sig == 0, 0, value))


def fraction(x: Wide) -> Wide:
    """f of x = f * 2**e with sqrt(1/2) <= |f| < sqrt(2); zeros, infinities and NaN as they are."""
    down = np.where(x.sig >= np.uint64(SQRT_HALF), -1, 0)
    return _finish(x.neg, down, x.sig, x.inf, x.nan)


def reciprocal_table() -> list[int]:
    """Significands (SEED_BITS, top bit set; 2**SEED_BITS stands for 1) of 2/m for m at the middle of each 1/128 of [1, 2)."""
    return [round(2 * 2 ** (SEED_BITS - 1) * 256 / (2 * (128 + i) + 1)) for i in range(128)]


def rsqrt_table() -> list[int]:
    """The same of 2/sqrt(m), m in [1, 2) for the first 128 entries and in [2, 4) for the others, 128 pieces each."""
    out = []
    for i in range(256):
        m = (2 * (128 + i % 128) + 1) / 256 * (1 if i < 128 else 2)
        out.append(round(2 * 2 ** (SEED_BITS - 1) / m**0.5))
    return out


def _seed(x: Wide, code: NDArray[np.int64], exp: NDArray[np.int64]) -> Wide:
    """A table's entry as a number of its sign; entries reach from 2**(SEED_BITS - 1) to 2**SEED_BITS."""
    whole = code >> SEED_BITS != 0
    sig = np.where(whole, _TOP, code.astype(np.uint64) << np.uint64(SIG_BITS - SEED_BITS))
    no = np.zeros(code.shape, dtype=bool)
    return _finish(x.neg, exp + whole, np.where(x.inf, np.uint64(0), sig), no | x.zero, x.nan)


def reciprocal_seed(x: Wide) -> Wide:
    """About 1/x, relative error below 2**-8: Inf for zeros, zeros for infinities."""
    table = np.array(reciprocal_table(), dtype=np.int64)
    code = table[(x.sig >> np.uint64(24)).astype(np.int64) & 127]
    return _seed(x, code, -x.exp - 1)


def rsqrt_seed(x: Wide) -> Wide:
    """About 1/sqrt(|x|) with x's sign, relative error below 2**-8: Inf for zeros, zeros for infinities."""
    table = np.array(rsqrt_table(), dtype=np.int64)
    odd = x.exp & 1
    code = table[((x.sig >> np.uint64(24)).astype(np.int64) & 127) + 128 * odd]
    return _seed(x, code, -((x.exp - odd) >> 1) - 1)


def less(a: Wide, b: Wide) -> NDArray[np.bool_]:
    """a < b; false with NaN; -0 equals +0."""

    def key(x: Wide) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        exp = np.where(x.inf, EXP_MAX + 1, np.where(x.zero, EXP_MIN - 1, x.exp))
        return exp, x.sig.astype(np.int64)

    (ae, asig), (be, bsig) = key(a), key(b)
    smaller = (ae < be) | ((ae == be) & (asig < bsig))
    equal = (ae == be) & (asig == bsig)
    both_zero = a.zero & b.zero
    result = np.where(a.neg != b.neg, a.neg, np.where(a.neg, ~smaller & ~equal, smaller))
    return result & ~both_zero & ~a.nan & ~b.nan
