"""Random matmul tiles for the array benches: shapes, formats, codes full of corner cases, and the golden result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import array
from models.formats import DOUBLE_ROWS, FLOATS, MAC_CLASSES, MX_ROWS, PACKED, DType, dtype_bytes
from rtl.pe.operand import DOUBLE_CODES, WORD

U8, U32 = NDArray[np.uint8], NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Tile:
    """Operands as the array takes them, of codes s_dtype and m_dtype; rows from K on are poison. `expected` is float32 [M, N]."""

    stationary: U32
    moving: U32
    s_scale: U8
    m_scale: U8
    s_dtype: int
    m_dtype: int
    k: int
    m: int
    n: int
    expected: NDArray[np.float32]


def _codes(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], style: str, double: bool) -> U32:
    """Raw words, of a double row with poison above its two elements: `bits` is every pattern alike, `tame` has exponents near each other, so that sums cancel and round."""
    if double:
        poison = rng.integers(0, 1 << 16, shape, dtype=np.uint64).astype(np.uint32)
        codes = [_codes(rng, dtype, shape, style, False) for _ in range(2)]
        return array.pairs(*codes) | poison << np.uint32(16)
    width = 8 * dtype_bytes(dtype)
    words = rng.integers(0, 1 << width, shape, dtype=np.uint64).astype(np.uint32)
    if style == "tame":
        fmt = PACKED.get(dtype) or FLOATS[dtype]
        mask = 0
        for lane in range(width // fmt.width):
            # keep sign, fraction and the exponent's last bit or two; set its middle
            free = 2 if fmt.exp_bits > 2 else 1
            exp = ((1 << fmt.exp_bits) - 1) & ~((1 << free) - 1)
            top = fmt.bias & exp
            clear = exp << fmt.man_bits << lane * fmt.width
            mask |= clear
            words = (words & np.uint32(~clear & 0xFFFFFFFF)) | np.uint32(
                top << fmt.man_bits << lane * fmt.width
            )
    elif style == "sparse":
        words[rng.random(shape) < 0.7] = rng.choice(np.array([0, 1 << (width - 1)], dtype=np.uint32))
    return words


def _scales(rng: np.random.Generator, shape: tuple[int, ...], style: str) -> U8:
    if style == "bits":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    return rng.integers(120, 136, shape, dtype=np.uint8)


def random_tile(
    rng: np.random.Generator,
    partitions: int,
    formats: tuple[DType, ...],
    shape: tuple[int, int, int] | None = None,
    *,
    double: bool = False,
) -> Tile:
    """A tile with K, M <= partitions; both operands of one MAC class. `double`: two numbers a word, of the FP8 types in `formats`."""
    if double:
        formats = tuple(f for f in formats if f in DOUBLE_ROWS)
    s_dtype = formats[rng.integers(len(formats))]
    partners = [d for d in formats if any({s_dtype, d} <= c for c in MAC_CLASSES)]
    m_dtype = partners[rng.integers(len(partners))]
    p, groups = partitions, partitions // MX_ROWS
    k, m, n = shape or (int(rng.integers(1, p + 1)), int(rng.integers(1, p + 1)), int(rng.integers(1, 3 * p)))
    style = str(rng.choice(["bits", "tame", "tame", "sparse"]))
    stationary = _codes(rng, s_dtype, (p, m), style, double)
    moving = _codes(rng, m_dtype, (p, n), style, double)
    s_scale, m_scale = _scales(rng, (groups, m), style), _scales(rng, (groups, n), style)
    used = -(-k // MX_ROWS)
    packed = s_dtype in PACKED
    used_bits = np.uint32(0xFFFF if double else 0xFFFFFFFF)
    expected = array.matmul(
        stationary[:k] & used_bits,
        moving[:k] & used_bits,
        s_dtype,
        m_dtype,
        s_scale[:used] if packed else None,
        m_scale[:used] if packed else None,
        double=double,
    )
    codes = [DOUBLE_CODES[d] if double else int(d) for d in (s_dtype, m_dtype)]
    return Tile(stationary, moving, s_scale, m_scale, *codes, k, m, n, expected)


def word_tile(rng: np.random.Generator, partitions: int) -> Tile:
    """Any words, and columns that each ask for one row's, all of them at least once; what moves is poison but for bit 0."""
    p, groups = partitions, partitions // MX_ROWS
    k, m = int(rng.integers(1, p + 1)), int(rng.integers(1, p + 1))
    n = k + int(rng.integers(0, 4))
    rows = rng.permutation(np.concatenate([np.arange(k), rng.integers(0, k, n - k)]))
    stationary = rng.integers(0, 1 << 32, (p, m), dtype=np.uint64).astype(np.uint32)
    stationary[rng.random((p, m)) < 0.2] = rng.choice(
        np.array([0x80000000, 0x7F800001, 0xFFFFFFFF, 1], dtype=np.uint32)
    )
    moving = rng.integers(0, 1 << 32, (p, n), dtype=np.uint64).astype(np.uint32)
    moving[:k] &= np.uint32(0xFFFFFFFE)
    moving[rows, np.arange(n)] |= np.uint32(1)
    scales = [rng.integers(0, 256, (groups, c), dtype=np.uint8) for c in (m, n)]
    expected = stationary[rows].T.copy().view(np.float32)
    return Tile(stationary, moving, scales[0], scales[1], WORD, WORD, k, m, n, expected)


def pack(words: NDArray[np.integer], width: int) -> int:
    """Words side by side, the first one lowest."""
    return int.from_bytes(words.astype(f"<u{width // 8}").tobytes(), "little")


def column(words: U32, scales: U8) -> tuple[int, int]:
    """ColumnLayout as a number, and its bits."""
    bits = 32 * words.size
    return pack(words, 32) | pack(scales, 8) << bits, bits + 8 * scales.size
