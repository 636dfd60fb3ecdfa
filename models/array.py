"""Golden model of the tensor array and of PSUM: exact, in the order of the rows, one rounding a row.

`plain` is the definition; it takes some twenty NumPy calls a row. `multiply` compiles the rows of types with one product in each
(`models.compiled`); for others it takes a few calls for all rows where it can show that no step then differs, the definition where it cannot.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from models import cast, compiled, fp
from models.formats import DOUBLE_ROWS, E8M0_BIAS, E8M0_NAN, FLOATS, MAC_CLASSES, MX_ROWS, PACKED, DType

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
CHUNK = 1 << 14
"""Results worked on at a time: their temporaries stay in the cache."""
FAR = 10_000
"""An exponent beyond all that a float64 has."""
FP32_LEAST = -149
"""Exponent of FP32's last place."""
F64_BITS = 53
"""Significant bits of a float64."""


def pairs(first: U32, second: U32) -> U32:
    """The words of a double row: FP8 codes of the first rows below those of the second."""
    return first.astype(np.uint32) | second.astype(np.uint32) << np.uint32(8)


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


@dataclass(slots=True)
class Operand:
    """Raw words [K, columns] of `dtype`, and E8M0 codes [ceil(K / 8), columns] for x4 types. Words of a double row are `pairs`.

    What follows from them is worked out once.
    """

    dtype: DType
    words: NDArray[np.unsignedinteger]
    scale: U8 | None = None
    double: bool = False
    _numbers: F32 | None = field(default=None, init=False)
    _scaled: F64 | None = field(default=None, init=False)
    _span: tuple[int, int] | None = field(default=None, init=False)

    @property
    def compiled(self) -> bool:
        """True for what `compiled.rows` takes: types of one product a row, exact in float64."""
        return not (self.double or self.dtype == DType.FP32 or self.dtype in PACKED)

    @property
    def numbers(self) -> F32:
        """FP32 [K, columns] of a type that is not packed, NaN not canonical."""
        if self._numbers is None:
            self._numbers = cast.values(FLOATS[self.dtype], self.words)
        return self._numbers

    @property
    def elements(self) -> F64:
        """float64 [K, columns, 1, 2 or 4]."""
        return _elements(self.dtype, self.words, self.double)

    @property
    def scaled(self) -> F64:
        """The same, scales multiplied in: exact."""
        if self._scaled is None:
            self._scaled = self.elements
            if self.scale is not None:
                rows = np.repeat(_scale(self.scale), MX_ROWS, axis=0)[: self.words.shape[0]]
                self._scaled *= rows[..., None]
        return self._scaled

    @property
    def man_bits(self) -> int:
        """Bits of a number's fraction."""
        return (PACKED if self.dtype in PACKED else FLOATS)[self.dtype].man_bits

    @property
    def span(self) -> tuple[int, int]:
        """(low, high) of `scaled`: every element is a multiple of 2**low and below 2**high in magnitude. Too wide for anything with Inf or NaN."""
        if self._span is None:
            size = np.abs(self.scaled)
            top = float(size.max(initial=0.0))
            least = float(np.where(size > 0, size, np.inf).min(initial=np.inf))
            if not np.isfinite(top):
                self._span = -FAR, FAR
            elif top == 0:
                self._span = 0, 0
            else:
                self._span = (
                    int(np.frexp(least)[1]) - 1 - self.man_bits,
                    int(np.frexp(top)[1]),
                )
        return self._span


def _exact_sums(a: Operand, b: Operand) -> F32 | None:
    """The same of operands with two or four elements in a word; None where a float64 might not hold a sum.

    All elements, and so all S and all psums (which are rounded to places of FP32, the least of which is one of `low` or above), are multiples
    of 2**low. Where nothing reaches 2**(low + 53) a float64 holds every sum, in whatever order, and its rounding to FP32 is the only one.
    """
    (a_low, a_high), (b_low, b_high) = a.span, b.span
    low, high = a_low + b_low, a_high + b_high
    terms = a.scaled[..., 0, :].size + 1
    # one bit more, for what psums gain by being rounded
    if low < FP32_LEAST or high + terms.bit_length() + 1 > low + F64_BITS:
        return None
    m, n = a.words.shape[1], b.words.shape[1]
    out = np.zeros((m, n), dtype=np.float32)
    width = max(1, CHUNK // max(1, m))
    left = a.scaled
    for start in range(0, n, width):
        part = slice(start, start + width)
        sums = np.matmul(left, b.scaled[:, part].transpose(0, 2, 1))
        psum = np.zeros(sums.shape[1:], dtype=np.float64)
        rounded = out[:, part]
        with np.errstate(over="ignore"):
            for row in sums:
                np.add(psum, row, out=rounded, casting="same_kind")
                psum[...] = rounded
    return out


def multiply(a: Operand, b: Operand) -> F32:
    """FP32 [M, N] of stationary `a` and moving `b`, as `plain` defines it. NaN is not canonical yet."""
    if not a.words.size or not b.words.size:
        return plain(a, b)
    if a.compiled:
        out = np.empty((a.words.shape[1], b.words.shape[1]), dtype=np.float32)
        compiled.rows(a.numbers, b.numbers, out, False)
        return out
    exact = _exact_sums(a, b) if a.dtype != DType.FP32 else None
    return plain(a, b) if exact is None else exact


def multiply_into(a: Operand, b: Operand, sums: F32, *, add: bool) -> None:
    """The same into `sums` [M, *dims], or on top of them, NaN canonical."""
    if a.compiled and sums.ndim == 2 and b.words.size:
        compiled.rows(a.numbers, b.numbers, sums, add)
        return
    result = multiply(a, b).reshape(sums.shape)
    sums[...] = accumulate(sums, result) if add else cast.canonical(result)


def plain(a: Operand, b: Operand) -> F32:
    """FP32 [M, N], from +0, row 0 first: psum = RNE_fp32(psum + S), S the exact sum of a row's one, two or four products."""
    k_rows, columns = b.words.shape
    out = np.zeros((a.words.shape[1], columns), dtype=np.float32)
    wide = a.dtype == b.dtype and (a.dtype == DType.E5M2X4 or (a.double and a.dtype == DType.E5M2))
    with np.errstate(all="ignore"):
        left = a.elements
        sa = _scale(a.scale) if a.scale is not None else None
        width = max(1, CHUNK // max(1, out.shape[0]))
        for start in range(0, columns, width):
            part = slice(start, start + width)
            right = _elements(b.dtype, b.words[:, part], b.double)
            sb = _scale(b.scale[:, part]) if b.scale is not None else None
            psum = np.zeros((out.shape[0], right.shape[1]), dtype=np.float64)
            for k in range(k_rows):
                high, low = _row_sum(left[k], right[k], wide)
                if sa is not None and sb is not None:
                    scale = sa[k // MX_ROWS][:, None] * sb[k // MX_ROWS][None, :]
                    high, low = high * scale, None if low is None else low * scale
                psum = _step(psum, high, low).astype(np.float32).astype(np.float64)
            out[:, part] = psum
    return out


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
    [ceil(K / 8), M], m_scale [ceil(K / 8), N]) for x4 types. With `double` a word has two FP8 numbers (`pairs`), hence two products.
    NaN anywhere, Inf * 0 or Inf - Inf give NaN; an S of zero is -0 only where all its products are -0. Raises ValueError for types that do not go together, or shapes.
    """
    _check(stationary, moving, s, m, s_scale, m_scale, double)
    held, moved = Operand(s, stationary, s_scale, double), Operand(m, moving, m_scale, double)
    return cast.canonical(multiply(held, moved))


def accumulate(psum: F32, result: F32) -> F32:
    """PSUM's near-memory add: RNE_fp32(psum + result)."""
    return fp.add(psum, result)
