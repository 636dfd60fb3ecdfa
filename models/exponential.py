"""exp of the vector engine: one element a cycle, in fixed point, one rounding at the end.

exp(x) = 2^y with y = x log2(e) = k + h / 256 + l: 2^(h / 256) comes from a table, 2^l is a polynomial of second degree (P. T. P. Tang, "Table-driven
implementation of the exponential function in IEEE floating-point arithmetic", ACM TOMS 15(2), 1989). Every step is a product cut to a
number of bits, so that the result never falls where x rises.
"""

import math
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

LOG2E_BITS = 35
"""Fraction bits of log2(e)."""
Y_BITS = 30
"""Fraction bits of y."""
TABLE_BITS = 8
LOW_BITS = Y_BITS - TABLE_BITS
"""Bits of l."""
VALUE_BITS = 32
"""Fraction bits of the table and of the result before it is rounded."""
TOP_EXP = 134
"""FP32 exponent field from which on the result is Inf or +0 (|x| >= 128)."""
SHIFT = 150 + LOG2E_BITS - Y_BITS
"""A product of a significand and log2(e) is shifted right by SHIFT less the exponent field."""


def _constant(value: Decimal, bits: int) -> int:
    return int((value * (1 << bits)).to_integral_value())


def _constants() -> tuple[int, int, int, tuple[int, ...]]:
    with localcontext() as ctx:
        ctx.prec = 60
        ln2 = Decimal(2).ln()
        table = tuple(
            _constant((ln2 * n / (1 << TABLE_BITS)).exp(), VALUE_BITS) for n in range(1 << TABLE_BITS)
        )
        return _constant(1 / ln2, LOG2E_BITS), _constant(ln2, Y_BITS), _constant(ln2 * ln2 / 2, 12), table


LOG2E, LN2, HALF_LN2_SQUARED, TABLE = _constants()
"""log2(e), ln(2) (Y_BITS fraction bits), ln(2)^2 / 2 (12 fraction bits), 2^(h / 256)."""
SQUARE_CUT = 8
"""Low bits of l that its square's term does without."""


def exponential(x: F32) -> F32:
    """exp(x) within 0.6 ulp, monotone, subnormals kept: NaN canonical, exp(-Inf) = +0, exp(+-0) = 1. Any shape."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.int64)
    negative, exp, frac = bits >> 31 == 1, bits >> 23 & 0xFF, bits & 0x7FFFFF
    # A subnormal's significand is taken as a normal's of its exponent: y is 0 for both.
    product = (frac | 1 << 23) * LOG2E
    magnitude = product >> np.minimum(np.maximum(SHIFT - exp, 0), 63)
    y = np.where(negative, -magnitude, magnitude)
    k, high, low = y >> Y_BITS, y >> LOW_BITS & (1 << TABLE_BITS) - 1, y & (1 << LOW_BITS) - 1
    slope = LN2 + ((low >> SQUARE_CUT) * HALF_LN2_SQUARED >> 12 - SQUARE_CUT)
    rise = low * slope >> 2 * Y_BITS - VALUE_BITS
    base = np.array(TABLE, dtype=np.int64)[high]
    value = base + (base * rise >> VALUE_BITS)
    # one rounding, also of subnormals: `drop` bits go
    drop = VALUE_BITS - 23 + np.clip(-126 - k, 0, 25)
    kept, rest, half = value >> drop, value & (1 << drop) - 1, np.int64(1) << drop - 1
    kept = kept + ((rest > half) | ((rest == half) & (kept & 1 == 1)))
    code = (np.maximum(k, -126) + 126 << 23) + kept
    beyond = (exp >= TOP_EXP) | (k > 127)
    code = np.where(beyond, np.where(negative, 0, 0x7F800000), code)
    code = np.where((exp == 255) & (frac != 0), 0x7FC00000, code)
    return code.astype(np.uint32).view(np.float32).reshape(np.shape(x))


assert math.isclose(LOG2E / (1 << LOG2E_BITS), math.log2(math.e), rel_tol=2**-LOG2E_BITS)
