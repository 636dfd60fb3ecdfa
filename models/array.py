"""Golden model of the tensor array and of PSUM: exact, in the order of the rows, one rounding a row."""

import numpy as np
from numpy.typing import NDArray

from models import cast, fp
from models.formats import DOUBLE_ROWS, E8M0_BIAS, E8M0_NAN, FLOATS, MAC_CLASSES, MX_ROWS, PACKED, DType

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
CHUNK = 1 << 14
"""Results worked on at a time: their float64 temporaries stay in the cache."""


def pairs(first: U32, second: U32) -> U32:
    """The words of a double row: FP8 codes of the first rows below those of the second."""
    return first | second << np.uint32(8)


def _elements(dtype: DType, words: U32, double: bool) -> F64:
    """float64 [K, columns, 1, 2 or 4]."""
    if double:
        codes = np.stack([words & np.uint32(0xFF), words >> np.uint32(8)], axis=-1)
        return cast.decode_float(FLOATS[dtype], codes).astype(np.float64)
    if dtype in PACKED:
        return cast.decode_float(PACKED[dtype], cast.unpack_x4(dtype, words)).astype(np.float64)
    return cast.decode_float(FLOATS[dtype], words).astype(np.float64)[..., None]


def _scale(codes: U8) -> F64:
    return np.where(codes == E8M0_NAN, np.nan, np.ldexp(1.0, codes.astype(np.int32) - E8M0_BIAS))


def _check(
    stationary: U32, moving: U32, s: DType, m: DType, s_scale: U8 | None, m_scale: U8 | None, double: bool
) -> None:
    if not any({s, m} <= c for c in MAC_CLASSES):
        raise ValueError(f"types must be of one class, not {s.name} and {m.name}")
    if double and s not in DOUBLE_ROWS:
        allowed = ", ".join(d.name for d in DOUBLE_ROWS)
        raise ValueError(f"types of a double row must be {allowed}, not {s.name}")
    if stationary.ndim != 2 or moving.ndim != 2 or stationary.shape[0] != moving.shape[0]:
        raise ValueError(f"operands must be [K, M] and [K, N], not {stationary.shape} and {moving.shape}")
    for name, scale, words in (("s_scale", s_scale, stationary), ("m_scale", m_scale, moving)):
        want = (-(-words.shape[0] // MX_ROWS), words.shape[1]) if s in PACKED else None
        if (None if scale is None else scale.shape) != want:
            raise ValueError(f"{name} must have shape {want}, not {None if scale is None else scale.shape}")


def _row_sum(a: F64, b: F64, wide: bool) -> tuple[F64, F64 | None]:
    """Exact sum of the products a [M, e] x b [N, e] of one row, as high + low (None: high alone is exact); -0 only from all -0."""
    products = [a[:, None, i] * b[None, :, i] for i in range(a.shape[1])]
    total = products[0]
    for p in products[1:]:
        total = total + p
    if not wide:
        return total, None
    # four products of E5M2 span 66 bits, two of them 65, so `total` may be inexact: cut each product at the binary point, then both sums are exact
    whole = [np.trunc(p) for p in products]
    high, low = fp.two_sum(
        np.asarray(sum(whole)), np.asarray(sum(p - w for p, w in zip(products, whole, strict=True)))
    )
    # An exact sum of zero takes total's sign where that is zero too; where total is not, nonzero products cancelled, to +0.
    zero = np.where(total == 0, total, 0.0)
    exact = np.isfinite(total)
    return np.where(exact, np.where(high != 0, high, zero), total), np.where(exact, low, 0.0)


def _step(psum: F64, high: F64, low: F64 | None) -> F64:
    """psum + (high + low) as a float64 rounded to odd."""
    c, d = fp.two_sum(psum, high)
    if low is None:
        return fp.round_to_odd(c, d)
    e, f = fp.two_sum(d, low)
    g, h = fp.two_sum(c, e)
    # g has lost the sign of a zero c
    return np.where(np.isfinite(c) & ((c != 0) | (low != 0)), fp.round_to_odd(g, h + f), c)


def matmul(
    stationary: U32,
    moving: U32,
    s: DType,
    m: DType,
    s_scale: U8 | None = None,
    m_scale: U8 | None = None,
    *,
    double: bool = False,
) -> F32:
    """FP32 [M, N] of raw words stationary [K, M] and moving [K, N] of types `s` and `m`, from +0, row 0 first.

    Row k: psum = RNE_fp32(psum + S), S the exact sum of its one, two or four products, times the block scales (E8M0 codes s_scale
    [ceil(K / 8), M], m_scale [ceil(K / 8), N]) for x4 types. With `double` a word has two FP8 numbers (`pairs`), hence two products. NaN anywhere, Inf * 0 or Inf - Inf give NaN; an S of zero is -0 only
    where all its products are -0. Raises ValueError for types that do not go together, or shapes.
    """
    _check(stationary, moving, s, m, s_scale, m_scale, double)
    k_rows, columns = moving.shape[0], moving.shape[1]
    out = np.zeros((stationary.shape[1], columns), dtype=np.float32)
    wide = s == m and (s == DType.E5M2X4 or (double and s == DType.E5M2))
    with np.errstate(all="ignore"):
        a = _elements(s, stationary, double)
        sa = _scale(s_scale) if s_scale is not None else None
        width = max(1, CHUNK // max(1, stationary.shape[1]))
        for start in range(0, columns, width):
            part = slice(start, start + width)
            b = _elements(m, moving[:, part], double)
            sb = _scale(m_scale[:, part]) if m_scale is not None else None
            psum = np.zeros((out.shape[0], b.shape[1]), dtype=np.float64)
            for k in range(k_rows):
                high, low = _row_sum(a[k], b[k], wide)
                if sa is not None and sb is not None:
                    scale = sa[k // MX_ROWS][:, None] * sb[k // MX_ROWS][None, :]
                    high, low = high * scale, None if low is None else low * scale
                psum = _step(psum, high, low).astype(np.float32).astype(np.float64)
            out[:, part] = psum
    return cast.canonical(out)


def accumulate(psum: F32, result: F32) -> F32:
    """PSUM's near-memory add: RNE_fp32(psum + result)."""
    return fp.add(psum, result)
