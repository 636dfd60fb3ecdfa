"""Casts between number formats, vectorised and exact: one rounding from the source value, never through a third format.

Rules (docs/numerics.md): round to nearest, ties to even; subnormals kept; NaN becomes the format's canonical one. `saturate` off:
overflow and Inf become the format's own overflow (Inf, or NaN for E4M3). On: they become the largest finite value, NaN stays NaN.
"""

from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from models.formats import (
    BF16,
    E2M1,
    E8M0_BIAS,
    E8M0_NAN,
    FLOATS,
    FP16,
    FP32,
    INTS,
    MX_BLOCK,
    MX_PACK,
    PACKED,
    DType,
    FloatFormat,
    MxRule,
)

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
CANONICAL_NAN = np.uint32(FP32.nan or 0).view(np.float32)
_BF16_SHIFT = np.uint32(FP32.width - BF16.width)
RULES = tuple(rule.name.lower() for rule in MxRule)


def decode_float(fmt: FloatFormat, codes: NDArray[np.integer]) -> F32:
    """Values of code words, exact (every format is a subset of FP32). NaN comes out canonical. Raises ValueError for codes that are too wide."""
    c = np.asarray(codes)
    if c.dtype.kind != "u" or 8 * c.dtype.itemsize > fmt.width:
        bad = (c < 0) | (c > (1 << fmt.width) - 1)
        if np.count_nonzero(bad):
            raise ValueError(
                f"codes must be from 0 to {(1 << fmt.width) - 1} for {fmt.name}, not {c[bad].flat[0]}"
            )
    if fmt is FP32:
        return canonical(c.astype(np.uint32).view(np.float32))
    return _canonical(values(fmt, c)) if fmt is BF16 else values(fmt, c)


def values(fmt: FloatFormat, codes: NDArray[np.integer]) -> F32:
    """The same of codes that are not too wide, of a format of at most 16 bits; BF16's NaNs stay as they are."""
    if fmt is BF16:
        return np.left_shift(codes, _BF16_SHIFT, dtype=np.uint32, casting="unsafe").view(np.float32)
    return np.asarray(_values(fmt).take(codes))


@cache
def _values(fmt: FloatFormat) -> F32:
    """The value of every code of a format of at most 16 bits."""
    return decoded(fmt, np.arange(1 << fmt.width))


def decoded(fmt: FloatFormat, codes: NDArray[np.integer]) -> F32:
    """What the codes of a format mean, from its table of fields: the definition of `decode_float`."""
    c = np.asarray(codes).astype(np.int64)
    exp, frac = (c >> fmt.man_bits) & ((1 << fmt.exp_bits) - 1), c & ((1 << fmt.man_bits) - 1)
    sig = np.where(exp == 0, frac, frac + (1 << fmt.man_bits)).astype(np.float64)
    value = np.ldexp(sig, np.maximum(exp, 1).astype(np.int32) - fmt.bias - fmt.man_bits)
    if fmt.has_inf:
        top = exp == (1 << fmt.exp_bits) - 1
        value = np.where(top, np.where(frac == 0, np.inf, np.nan), value)
    elif fmt.nan is not None:
        value = np.where(c & ((1 << (fmt.width - 1)) - 1) == fmt.nan, np.nan, value)
    value = np.where(c >> (fmt.width - 1) != 0, -value, value)
    with np.errstate(invalid="ignore"):
        return canonical(value.astype(np.float32))


def canonical(x: F32) -> F32:
    """`x` with every NaN replaced by 0x7fc00000."""
    return _canonical(np.array(x, dtype=np.float32))


def _canonical(x: F32) -> F32:
    """The same in place, where `x` is the caller's own."""
    nan = np.isnan(x)
    if np.count_nonzero(nan):
        x[nan] = CANONICAL_NAN
    return x


def _round_to(fmt: FloatFormat, magnitude: F64) -> NDArray[np.int64]:
    """Codes without sign of finite magnitudes that are exact in float64; past `max_code` where they overflow."""
    _, exp = np.frexp(magnitude)
    least = fmt.min_exp - fmt.man_bits
    lsb = np.where(magnitude == 0, least, np.maximum(exp.astype(np.int64) - fmt.sig_bits, least))
    # Beyond the format's own exponents every value overflows alike; keeps the shift below in range.
    lsb = np.minimum(lsb, least + (1 << fmt.exp_bits))
    steps = np.minimum(np.rint(np.ldexp(magnitude, -lsb.astype(np.int32))), 2.0 ** (fmt.sig_bits + 1))
    return ((lsb - least) << fmt.man_bits) + steps.astype(np.int64)


def _encode(fmt: FloatFormat, x: F64, *, saturate: bool) -> NDArray[np.int64]:
    nan, inf = np.isnan(x), np.isinf(x)
    magnitude = np.where(nan | inf, 0.0, np.abs(x))
    code = _round_to(fmt, magnitude)
    over = inf | (code > fmt.max_code)
    sign = np.where(np.signbit(x), 1 << (fmt.width - 1), 0)
    if saturate or fmt.nan is None:
        out = np.where(over, fmt.max_code, code) | sign
    elif fmt.has_inf:
        out = np.where(over, ((1 << fmt.exp_bits) - 1) << fmt.man_bits, code) | sign
    else:
        out = np.where(over, fmt.nan, code | sign)
    return np.where(nan, fmt.nan if fmt.nan is not None else 0, out)


def encode_float(fmt: FloatFormat, x: F32, *, saturate: bool) -> U32:
    """Codes of FP32 values. E2M1 always saturates and makes NaN +0; `encode_e2m1` also tells where."""
    x = np.asarray(x, dtype=np.float32)
    if fmt is FP32 and not saturate:
        return canonical(x).view(np.uint32)
    if fmt is FP32 or fmt is BF16:
        return _cut(fmt, x, saturate=saturate)
    if fmt is FP16 and not saturate:
        with np.errstate(all="ignore"):
            codes = x.astype(np.float16).view(np.uint16).astype(np.uint32)
        codes[np.isnan(x)] = FP16.nan or 0
        return codes
    return encoded(fmt, x, saturate=saturate)


def encoded(fmt: FloatFormat, x: F32, *, saturate: bool) -> U32:
    """The definition of `encode_float`."""
    with np.errstate(invalid="ignore"):
        wide = np.asarray(x, dtype=np.float32).astype(np.float64)
    return _encode(fmt, wide, saturate=saturate).astype(np.uint32)


def _cut(fmt: FloatFormat, x: F32, *, saturate: bool) -> U32:
    """The same for FP32 and BF16, whose exponents are FP32's: half a last place, less one where the code is even, carries into the code."""
    bits, drop = x.view(np.uint32), FP32.width - fmt.width
    if drop:
        odd = bits >> np.uint32(drop) & np.uint32(1)
        codes = (bits + odd + np.uint32((1 << drop - 1) - 1)) >> np.uint32(drop)
    else:
        codes = bits.copy()
    if saturate:
        sign = np.uint32(1 << fmt.width - 1)
        codes = np.minimum(codes & (sign - np.uint32(1)), np.uint32(fmt.max_code)) | codes & sign
    nan = np.isnan(x)
    if np.count_nonzero(nan):
        codes[nan] = fmt.nan or 0
    return codes


def encode_e2m1(x: F32) -> tuple[U8, NDArray[np.bool_]]:
    """(codes, invalid): E2M1 codes, saturating at 6, and where a NaN became +0."""
    return encode_float(E2M1, x, saturate=True).astype(np.uint8), np.isnan(x)


def decode(dtype: DType, raw: U32) -> F32:
    """FP32 values of raw elements (zero-extended to uint32). INT32 and UINT32 are rounded. Raises ValueError for packed types."""
    raw = np.asarray(raw, dtype=np.uint32)
    if dtype in FLOATS:
        return decode_float(FLOATS[dtype], raw)
    if dtype in INTS:
        bits, signed = INTS[dtype]
        value = raw.astype(np.int64) & ((1 << bits) - 1)
        if signed:
            value = np.where(value >> (bits - 1) != 0, value - (1 << bits), value)
        return value.astype(np.float32)
    if dtype == DType.E8M0:
        finite = np.ldexp(1.0, np.minimum(raw, E8M0_NAN - 1).astype(np.int32) - E8M0_BIAS)
        return canonical(np.where(raw == E8M0_NAN, np.nan, finite).astype(np.float32))
    raise _wrong_dtype((*FLOATS, *INTS, DType.E8M0), dtype)


def encode(dtype: DType, x: F32, *, saturate: bool) -> U32:
    """Raw elements (zero-extended to uint32) of FP32 values. Integers round to even, always saturate, and take NaN as 0.

    Raises ValueError for E8M0 and packed types.
    """
    if dtype in FLOATS:
        return encode_float(FLOATS[dtype], x, saturate=saturate)
    if dtype in INTS:
        bits, signed = INTS[dtype]
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        with np.errstate(invalid="ignore"):
            wide = np.asarray(x, dtype=np.float32).astype(np.float64)
        value = np.clip(np.rint(np.where(np.isnan(wide), 0.0, wide)), low, high)
        return (value.astype(np.int64) & ((1 << bits) - 1)).astype(np.uint32)
    raise _wrong_dtype((*FLOATS, *INTS), dtype)


def pack_x4(dtype: DType, codes: NDArray[np.integer]) -> U32:
    """Words of an x4 type from codes [..., 4], element 0 in the lowest bits. Raises ValueError for other types or shapes."""
    width = _packed(dtype).width
    c = np.asarray(codes)
    if c.ndim == 0 or c.shape[-1] != MX_PACK:
        raise ValueError(f"codes must have a last axis of {MX_PACK}, not shape {c.shape}")
    shifts = np.arange(MX_PACK, dtype=np.uint32) * np.uint32(width)
    return np.asarray(np.bitwise_or.reduce(c.astype(np.uint32) << shifts, axis=-1))


def unpack_x4(dtype: DType, words: U32) -> U8:
    """Codes [..., 4] of x4 words."""
    width = _packed(dtype).width
    shifts = np.arange(MX_PACK, dtype=np.uint32) * np.uint32(width)
    return ((np.asarray(words, dtype=np.uint32)[..., None] >> shifts) & ((1 << width) - 1)).astype(np.uint8)


def _wrong_dtype(allowed: Iterable[DType], dtype: DType) -> ValueError:
    return ValueError(f"dtype must be one of {', '.join(d.name for d in allowed)}, not {dtype.name}")


def _packed(dtype: DType) -> FloatFormat:
    if dtype not in PACKED:
        raise _wrong_dtype(PACKED, dtype)
    return PACKED[dtype]


def quantize_mx(x: F32, dtype: DType, *, rule: str = "ocp") -> tuple[U8, U8]:
    """(codes uint8 [..., 32], scale uint8 [...]) of blocks of 32 along the last axis, for the x4 type `dtype`.

    Rule "ocp" (OCP Microscaling 1.0, 6.3): scale exponent floor(log2(amax)) - emax; "nki": one more, so that nothing saturates. The
    code is clamped to 0..254. An all-zero block has scale 0x00 and keeps its signs; a block with Inf or NaN has scale 0xFF and +0
    codes. Elements are rounded once from x / scale, and saturate. Raises ValueError for a bad rule, type or shape.
    """
    fmt = _packed(dtype)
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, not {rule!r}")
    x = np.asarray(x, dtype=np.float32)
    if x.ndim == 0 or x.shape[-1] != MX_BLOCK:
        raise ValueError(f"x must have a last axis of {MX_BLOCK}, not shape {x.shape}")
    bad = np.asarray(~np.isfinite(x).all(axis=-1))
    clean = np.where(bad[..., None], np.float32(0), x).astype(np.float64)
    amax = np.abs(clean).max(axis=-1)
    emax = (fmt.max_code >> fmt.man_bits) - fmt.bias
    _, exp = np.frexp(amax)
    code = np.clip(exp - 1 - emax + (rule == "nki") + E8M0_BIAS, 0, 254)
    code = np.where(amax == 0, 0, code)
    codes = _encode(fmt, np.ldexp(clean, -(code - E8M0_BIAS)[..., None].astype(np.int32)), saturate=True)
    return codes.astype(np.uint8), np.where(bad, E8M0_NAN, code).astype(np.uint8)
