"""FP32 arithmetic as the hardware does it: IEEE 754-2019, round to nearest even, subnormals kept, one canonical NaN."""

import numpy as np
from numpy.typing import NDArray

from models.cast import CANONICAL_NAN, canonical
from models.isa import AluOp

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def _float32(x: object) -> F32:
    return np.asarray(x, dtype=np.float32)


def add(a: F32, b: F32) -> F32:
    """a + b."""
    with np.errstate(all="ignore"):
        return canonical(_float32(a) + _float32(b))


def sub(a: F32, b: F32) -> F32:
    """a - b."""
    with np.errstate(all="ignore"):
        return canonical(_float32(a) - _float32(b))


def mul(a: F32, b: F32) -> F32:
    """a * b."""
    with np.errstate(all="ignore"):
        return canonical(_float32(a) * _float32(b))


def divide(a: F32, b: F32) -> F32:
    """a / b: x / 0 is Inf, 0 / 0 and Inf / Inf are NaN."""
    with np.errstate(all="ignore"):
        return canonical(_float32(a) / _float32(b))


def _key(x: NDArray[np.int32]) -> NDArray[np.int32]:
    """FP32 codes as integers in the numbers' order, and back: negative numbers downwards, -0 below +0, canonical NaN above all."""
    return x ^ (x >> np.int32(31) & np.int32(0x7FFFFFFF))


def _keys(x: F32) -> NDArray[np.int32]:
    return _key(canonical(np.ascontiguousarray(x, dtype=np.float32)).view(np.int32))


def maximum(a: F32, b: F32) -> F32:
    """IEEE 754-2019 maximum: NaN wins, -0 < +0."""
    return _key(np.maximum(_keys(a), _keys(b))).view(np.float32).reshape(_shape(a, b))


def minimum(a: F32, b: F32) -> F32:
    """IEEE 754-2019 minimum: NaN wins, -0 < +0."""
    a, b = _float32(a), _float32(b)
    out = _key(np.minimum(_keys(a), _keys(b))).view(np.float32).reshape(_shape(a, b))
    return canonical(np.where(np.isnan(a) | np.isnan(b), CANONICAL_NAN, out))


def _shape(a: F32, b: F32) -> tuple[int, ...]:
    return np.broadcast_shapes(np.shape(a), np.shape(b))


def compare(op: AluOp, a: F32, b: F32) -> F32:
    """1 or +0: IEEE 754 comparison; false with NaN, but NOT_EQ true."""
    table = {
        AluOp.IS_EQ: np.equal,
        AluOp.NOT_EQ: np.not_equal,
        AluOp.IS_GT: np.greater,
        AluOp.IS_GE: np.greater_equal,
        AluOp.IS_LT: np.less,
        AluOp.IS_LE: np.less_equal,
    }
    return _float32(table[op](_float32(a), _float32(b)))


def logical(op: AluOp, a: F32, b: F32) -> F32:
    """1 or +0: operands are true when they are not zeros."""
    table = {
        AluOp.LOGICAL_AND: np.logical_and,
        AluOp.LOGICAL_OR: np.logical_or,
        AluOp.LOGICAL_XOR: np.logical_xor,
    }
    return _float32(table[op](_float32(a) != 0, _float32(b) != 0))


def alu(op: AluOp, a: F32, b: F32) -> F32:
    """One ALU stage of the vector engine; BYPASS gives `a`, with its NaN made canonical."""
    if op == AluOp.BYPASS:
        return canonical(_float32(a))
    if AluOp.IS_EQ <= op <= AluOp.IS_LE:
        return compare(op, a, b)
    if AluOp.LOGICAL_AND <= op <= AluOp.LOGICAL_XOR:
        return logical(op, a, b)
    if op == AluOp.ABS_MAX:
        return maximum(np.abs(_float32(a)), np.abs(_float32(b)))
    return _TABLE[op](a, b)


_TABLE = {
    AluOp.ADD: add,
    AluOp.SUB: sub,
    AluOp.MUL: mul,
    AluOp.MAX: maximum,
    AluOp.MIN: minimum,
    AluOp.DIVIDE: divide,
}
IDENTITY = {
    AluOp.ADD: 0x80000000,
    AluOp.MUL: 0x3F800000,
    AluOp.MAX: 0xFF800000,
    AluOp.MIN: 0x7F800000,
    AluOp.ABS_MAX: 0,
    AluOp.LOGICAL_AND: 0x3F800000,
    AluOp.LOGICAL_OR: 0,
    AluOp.LOGICAL_XOR: 0,
}
"""Operations that can reduce, and the FP32 code that each starts from: it leaves any number as it is (-0 for ADD)."""
PARTIALS = 4
"""Running values of a reduction: element i goes to number i mod PARTIALS, so that an ALU takes one a cycle."""


COMPARISONS = (AluOp.IS_EQ, AluOp.NOT_EQ, AluOp.IS_GT, AluOp.IS_GE, AluOp.IS_LT, AluOp.IS_LE)


def identity(op: AluOp) -> np.float32:
    """The number that `op` starts from. Raises KeyError for an operation that does not reduce."""
    return np.float32(np.array([IDENTITY[op]], dtype=np.uint32).view(np.float32)[0])


def accumulate(op: AluOp, x: F32, partials: F32) -> None:
    """Element i of x's last axis, [..., N], goes to partial i mod PARTIALS, [..., PARTIALS], in place: p = x_i op p."""
    whole = x.shape[-1] // PARTIALS
    if whole > 1 and op in _SUMS:
        # rounds come first, so that NumPy goes from one to the next (models.array's `_products` says why), and not from
        # an initial +0 of its own, which sums of -0 alone would feel
        rounds = x[..., : whole * PARTIALS].reshape(-1, whole, PARTIALS).transpose(1, 0, 2)
        chain = np.concatenate([partials.reshape(1, -1, PARTIALS), rounds])
        with np.errstate(all="ignore"):
            partials[...] = canonical(_SUMS[op].reduce(chain, axis=0, initial=None)).reshape(partials.shape)
        x = x[..., whole * PARTIALS :]
    for k in range(0, x.shape[-1], PARTIALS):
        part = x[..., k : k + PARTIALS]
        n = part.shape[-1]
        partials[..., :n] = alu(op, part, partials[..., :n])


_SUMS = {AluOp.ADD: np.add, AluOp.MUL: np.multiply}
"""Operations that NumPy itself does in order, operands of a step exchanged."""


def reduce(op: AluOp, x: F32) -> F32:
    """`op` over the last axis, [..., N] to [...]: partials p start at the identity, then (p0 op p1) op (p2 op p3)."""
    *shape, n = x.shape
    rounds = -(-n // PARTIALS)
    padded = np.full((*shape, rounds * PARTIALS), identity(op))
    padded[..., :n] = x
    partial = np.full((*shape, PARTIALS), identity(op))
    accumulate(op, padded, partial)
    halves = alu(op, partial[..., ::2], partial[..., 1::2])
    return alu(op, halves[..., 0], halves[..., 1])


def two_sum(a: F64, b: F64) -> tuple[F64, F64]:
    """(s, e): s = fl(a + b), and a + b = s + e exactly (Knuth). e is NaN where s is not finite."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def round_to_odd(s: F64, error: F64) -> F64:
    """float64 s + error, with |error| below one unit in the last place of s, rounded to odd: a later rounding to FP32 is then the only one.

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE Trans. Computers 57(4), 2008.
    """
    bits = s.view(np.int64)
    change = np.where((error > 0) == (s > 0), 1, -1)
    inexact = (error != 0) & np.isfinite(error) & (bits & 1 == 0)
    return np.where(inexact, bits + change, bits).view(np.float64)
