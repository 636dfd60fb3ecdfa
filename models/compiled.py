"""The two inner loops that NumPy needs hundreds of calls for, compiled by Numba: a matmul's rows, and the scalar engine's microcode.

What they compute is defined elsewhere, `models.array.plain` and `models.functions.activated`, and tests compare bits. No fast-math, no fused
multiply-add. Machine code is kept in `__pycache__`; the first import after a change takes some seconds.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models import wide
from models.microcode import Op
from models.wide import EXP_BITS, EXP_MAX, EXP_MIN, GUARD, SEED_BITS, SIG_BITS

FINITE, INF, NAN = 0, 1, 2
"""Kinds of wide floats, as in `microcode.Constant`."""
OPS = frozenset(Op) - {Op.TURN, Op.QUADRANT}
"""What the compiled interpreter does."""
FMA, RINT, SCALE, EXPONENT, FRACTION = map(int, (Op.FMA, Op.RINT, Op.SCALE, Op.EXPONENT, Op.FRACTION))
RECIPROCAL_SEED, RSQRT_SEED, LESS = map(int, (Op.RECIPROCAL_SEED, Op.RSQRT_SEED, Op.LESS))
SELECT, COPYSIGN = map(int, (Op.SELECT, Op.COPYSIGN))
_RECIPROCALS = np.array(wide.reciprocal_table(), dtype=np.uint64)
_RSQRTS = np.array(wide.rsqrt_table(), dtype=np.uint64)
_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_TOP = np.uint64(1 << SIG_BITS - 1)
_HALF_ROOT = np.uint64(wide.SQRT_HALF)
_GUARD = np.uint64(GUARD)
_ZERO = (False, 0, _0, FINITE)
_ONE = (False, 0, _TOP, FINITE)
_NAN = (False, 0, _0, NAN)


@njit("void(f4[:, :], f4[:, :], f4[:, :], b1)", cache=True)  # type: ignore[untyped-decorator]
def rows(
    a: NDArray[np.float32], b: NDArray[np.float32], sums: NDArray[np.float32], add: bool
) -> None:  # pragma: no cover
    """sums [M, N] = (sums +) a [K, M] times b [K, N], numbers of BF16, FP16 or FP8: row after row, one rounding each. NaN becomes canonical.

    A product is exact in float64. Its sum with an FP32 number is rounded twice, to float64 and to FP32, which is the same as once:
    float64 has more than twice FP32's bits and two more, and a product that reaches half of FP32's last place has no bit of its 22 below
    2**-172, so that a sum next to a subnormal is exact.
    """
    count = b.shape[1]
    line = np.empty(count, dtype=np.float32)
    moving = np.ascontiguousarray(b)
    nan = np.float32(np.nan)
    for m in range(a.shape[1]):
        line[:] = np.float32(0)
        for k in range(a.shape[0]):
            held = np.float64(a[k, m])
            row = moving[k]
            for n in range(count):
                line[n] = np.float32(np.float64(line[n]) + held * np.float64(row[n]))
        if add:
            for n in range(count):
                line[n] = sums[m, n] + line[n]
        for n in range(count):
            x = line[n]
            sums[m, n] = x if x == x else nan


@njit(cache=True)  # type: ignore[untyped-decorator]
def _finish(neg, exp, sig, kind):  # type: ignore[no-untyped-def] # pragma: no cover
    if kind == FINITE and sig != _0 and exp > EXP_MAX:
        kind = INF
    if kind != FINITE or exp < EXP_MIN:
        sig = _0
    return neg and kind != NAN, exp if sig != _0 else 0, sig, kind


@njit(cache=True)  # type: ignore[untyped-decorator]
def _width(x):  # type: ignore[no-untyped-def] # pragma: no cover
    """Bits needed for x < 2**64."""
    width = 0
    for step in (32, 16, 8, 4, 2, 1):
        if x >> np.uint64(step) != _0:
            x >>= np.uint64(step)
            width += step
    return width + np.int64(x)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _from_fp32(bits):  # type: ignore[no-untyped-def] # pragma: no cover
    field, frac = np.int64(bits >> 23 & 0xFF), np.uint64(bits & 0x7FFFFF)
    neg = bits >> 31 != 0
    if field == 255:
        return _finish(neg, 0, _0, INF if frac == _0 else NAN)
    mag = frac | np.uint64(1 << 23) if field else frac
    width = _width(mag)
    exp = field if field > 0 else 1
    return _finish(neg, exp - 150 + width - 1, mag << np.uint64(32 - width), FINITE)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _to_fp32(neg, exp, sig, kind):  # type: ignore[no-untyped-def] # pragma: no cover
    if kind == NAN:
        return np.uint32(0x7FC00000)
    sign = np.uint64(1 << 31) if neg else _0
    if kind == INF or (exp > 127 and sig != _0):
        return np.uint32(sign | np.uint64(0x7F800000))
    if sig == _0:
        return np.uint32(sign)
    tiny = min(max(-126 - exp, 0), 25)
    drop = np.uint64(8 + tiny)
    kept, half = sig >> drop, _1 << (drop - _1)
    rest = sig & ((_1 << drop) - _1)
    if rest > half or (rest == half and kept & _1 == _1):
        kept += _1
    base = np.uint64(0) if tiny > 0 else np.uint64(exp + 126)
    return np.uint32(sign | min((base << np.uint64(23)) + kept, np.uint64(0x7F800000)))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _multiply(a, b):  # type: ignore[no-untyped-def] # pragma: no cover
    neg = a[0] != b[0]
    if a[3] == NAN or b[3] == NAN:
        return _NAN
    if a[3] == INF or b[3] == INF:
        if (a[3] == FINITE and a[2] == _0) or (b[3] == FINITE and b[2] == _0):
            return _NAN
        return neg, 0, _0, INF
    product = a[2] * b[2]
    shift = _32 if product >> np.uint64(63) != _0 else np.uint64(31)
    sig = (product >> shift) + (product >> (shift - _1) & _1)
    exp = a[1] + b[1] + np.int64(shift) - 31
    if sig >> _32 != _0:
        sig = _TOP
        exp += 1
    return _finish(neg, exp, sig, FINITE)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _add(a, b):  # type: ignore[no-untyped-def] # pragma: no cover
    if a[3] == NAN or b[3] == NAN or (a[3] == INF and b[3] == INF and a[0] != b[0]):
        return _NAN
    if a[3] == INF:
        return a
    if b[3] == INF:
        return b
    if b[2] == _0:
        return (a[0] and b[0], 0, _0, FINITE) if a[2] == _0 else a
    if a[2] == _0:
        return b
    if b[1] > a[1] or (b[1] == a[1] and b[2] > a[2]):
        a, b = b, a
    x, y = a[2] << _GUARD, (b[2] << _GUARD) >> np.uint64(min(a[1] - b[1], 63))
    total = x + y if a[0] == b[0] else x - y
    if total == _0:
        return _ZERO
    width = _width(total)
    if width > SIG_BITS:
        right = np.uint64(width - SIG_BITS)
        sig = (total >> right) + (total >> (right - _1) & _1)
    else:
        sig = total << np.uint64(SIG_BITS - width)
    exp = a[1] + width - (SIG_BITS + GUARD)
    if sig >> _32 != _0:
        sig = _TOP
        exp += 1
    return _finish(a[0], exp, sig, FINITE)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _rint(x):  # type: ignore[no-untyped-def] # pragma: no cover
    if x[3] != FINITE or x[1] >= 31:
        return x
    drop = np.uint64(min(31 - x[1], 33))
    kept, half = x[2] >> drop, (_1 << drop) >> _1
    rest = x[2] & ((_1 << drop) - _1)
    if rest > half or (rest == half and kept & _1 == _1):
        kept += _1
    width = _width(kept)
    sig = _TOP if width > 32 else kept << np.uint64(32 - width)
    return _finish(x[0], width - 1, sig, FINITE)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _scale(x, k):  # type: ignore[no-untyped-def] # pragma: no cover
    shift = np.int64(1 << EXP_BITS)
    if k[3] == FINITE and k[1] < EXP_BITS:
        shift = np.int64(k[2] >> np.uint64(min(max(31 - k[1], 0), 63)))
    return _finish(x[0], x[1] + (-shift if k[0] else shift), x[2], NAN if k[3] == NAN else x[3])


@njit(cache=True)  # type: ignore[untyped-decorator]
def _exponent(x):  # type: ignore[no-untyped-def] # pragma: no cover
    value = 0 if x[2] == _0 else x[1] + (1 if x[2] >= _HALF_ROOT else 0)
    mag = np.uint64(abs(value))
    width = _width(mag)
    return _finish(value < 0, width - 1, mag << np.uint64(32 - width), FINITE)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _seed(x, code, exp):  # type: ignore[no-untyped-def] # pragma: no cover
    if x[3] == NAN:
        return _NAN
    if x[3] == INF:
        return x[0], 0, _0, FINITE
    if x[2] == _0:
        return x[0], 0, _0, INF
    if code >> np.uint64(SEED_BITS) != _0:
        return _finish(x[0], exp + 1, _TOP, FINITE)
    return _finish(x[0], exp, code << np.uint64(SIG_BITS - SEED_BITS), FINITE)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _less(a, b):  # type: ignore[no-untyped-def] # pragma: no cover
    if a[3] == NAN or b[3] == NAN:
        return False
    exp_a = EXP_MAX + 1 if a[3] == INF else EXP_MIN - 1 if a[2] == _0 else a[1]
    exp_b = EXP_MAX + 1 if b[3] == INF else EXP_MIN - 1 if b[2] == _0 else b[1]
    if exp_a < EXP_MIN and exp_b < EXP_MIN:
        return False
    if a[0] != b[0]:
        return a[0]
    if a[0]:
        return exp_b < exp_a or (exp_b == exp_a and b[2] < a[2])
    return exp_a < exp_b or (exp_a == exp_b and a[2] < b[2])


@njit(cache=True)  # type: ignore[untyped-decorator]
def _step(op, a, b, c):  # type: ignore[no-untyped-def] # pragma: no cover
    """`microcode.execute`."""
    if op == FMA:
        return _add(_multiply(a, b), c)
    if op == RINT:
        return _rint(a)
    if op == SCALE:
        return _scale(a, b)
    if op == EXPONENT:
        return _exponent(a)
    if op == FRACTION:
        return _finish(a[0], -1 if a[2] >= _HALF_ROOT else 0, a[2], a[3])
    if op == RECIPROCAL_SEED:
        return _seed(a, _RECIPROCALS[a[2] >> np.uint64(24) & np.uint64(127)], -a[1] - 1)
    if op == RSQRT_SEED:
        odd = a[1] & 1
        at = np.int64(a[2] >> np.uint64(24) & np.uint64(127)) + 128 * odd
        return _seed(a, _RSQRTS[at], -((a[1] - odd) >> 1) - 1)
    if op == LESS:
        return _ONE if _less(a, b) else _ZERO
    if op == SELECT:
        return c if a[3] == FINITE and a[2] == _0 else b
    if op == COPYSIGN:
        return b[0] and a[3] != NAN, a[1], a[2], a[3]
    if a[3] == NAN or b[3] == NAN:
        return _NAN
    return b if _less(b, a) else a


@njit(cache=True)  # type: ignore[untyped-decorator]
def _sign(neg, kind, negate, absolute):  # type: ignore[no-untyped-def] # pragma: no cover
    """An operand's sign; NaN has none."""
    if absolute:
        neg = False
    return (not neg if negate else neg) and kind != NAN


@njit("void(i8[:, :], i8[:], u8[:], i8[:, :], u4[:, :], u4, u4[:, :], u4[:, :])", cache=True)  # type: ignore[untyped-decorator]
def run(
    steps: NDArray[np.int64],
    exps: NDArray[np.int64],
    sigs: NDArray[np.uint64],
    signs: NDArray[np.int64],
    x: NDArray[np.uint32],
    factor: np.uint32,
    offset: NDArray[np.uint32],
    out: NDArray[np.uint32],
) -> None:  # pragma: no cover
    """out [rows, n] = the program on x * factor + offset, [rows or 1, 1]; FP32 codes.

    steps: [steps, (op, target, and of each operand its number, negate, absolute)]. Numbers from 0 on are registers, then constants, whose
    exps, sigs and signs ((negative, kind)) these are; those of registers mean nothing.
    """
    number = exps.shape[0]
    exp, sig = exps.copy(), sigs.copy()
    neg, kind = np.empty(number, np.bool_), np.empty(number, np.int64)
    for i in range(number):
        neg[i], kind[i] = signs[i, 0] != 0, signs[i, 1]
    times = _from_fp32(factor)
    for row in range(x.shape[0]):
        plus = _from_fp32(offset[row if offset.shape[0] > 1 else 0, 0])
        for n in range(x.shape[1]):
            result = _add(_multiply(_from_fp32(x[row, n]), times), plus)
            neg[0], exp[0], sig[0], kind[0] = result
            for s in range(steps.shape[0]):
                i, j, k = steps[s, 2], steps[s, 5], steps[s, 8]
                a = (_sign(neg[i], kind[i], steps[s, 3], steps[s, 4]), exp[i], sig[i], kind[i])
                b = (_sign(neg[j], kind[j], steps[s, 6], steps[s, 7]), exp[j], sig[j], kind[j])
                c = (_sign(neg[k], kind[k], steps[s, 9], steps[s, 10]), exp[k], sig[k], kind[k])
                result = _step(steps[s, 0], a, b, c)
                t = steps[s, 1]
                neg[t], exp[t], sig[t], kind[t] = result
            out[row, n] = _to_fp32(result[0], result[1], result[2], result[3])
