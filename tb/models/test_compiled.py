"""Fast forms against their definitions, bit for bit: compiled rows and microcode, sums of several products, table casts."""

import numpy as np
import pytest

from models import array, cast, functions
from models.array import Operand
from models.formats import DOUBLE_ROWS, FLOATS, MAC_CLASSES, PACKED, DType
from models.functions import SLOPED, ActFunc

SPECIAL = np.array(
    # zeros, ones, subnormals, the least and the largest normal numbers, infinities, NaNs with and without sign, ties of casts
    [0, 0x3F800000, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001, 0x3F808000, 0x3F818000, 0x477FF000, 0x387FE000],
    dtype=np.uint32,
)  # fmt: skip
SPECIAL = np.concatenate([SPECIAL, SPECIAL | np.uint32(1 << 31)])
PAIRS = [(a, b) for kinds in MAC_CLASSES for a in sorted(kinds) for b in sorted(kinds)]


def numbers(rng: np.random.Generator, size: int) -> np.ndarray:
    """FP32: any code, ordinary numbers and special ones, mixed."""
    codes = rng.integers(0, 1 << 32, size, dtype=np.uint64).astype(np.uint32)
    ordinary = (rng.standard_normal(size) * 10.0 ** rng.integers(-3, 4, size)).astype(np.float32)
    kind = rng.integers(0, 8, size)
    bits = np.where(kind < 3, codes, np.where(kind < 7, ordinary.view("u4"), rng.choice(SPECIAL, size)))
    return bits.astype(np.uint32).view(np.float32)


def words(rng: np.random.Generator, dtype: DType, shape: tuple[int, int], tame: bool) -> np.ndarray:
    """Operand words: any, or (`tame`) those of small numbers, of which sums stay finite."""
    if tame and dtype in FLOATS:
        return cast.encode(dtype, rng.standard_normal(shape).astype(np.float32), saturate=True)
    if tame:
        codes = cast.encode_float(
            PACKED[dtype], rng.standard_normal((*shape, 4)).astype(np.float32), saturate=True
        )
        return cast.pack_x4(dtype, codes)
    width = 4 * PACKED[dtype].width if dtype in PACKED else FLOATS[dtype].width
    return rng.integers(0, 1 << width, shape, dtype=np.uint64).astype(np.uint32)


def same(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(cast.canonical(got).view(np.uint32), cast.canonical(want).view(np.uint32))


@pytest.mark.parametrize(
    ("s", "m", "double"),
    [(*p, False) for p in PAIRS] + [(*p, True) for p in PAIRS if set(p) <= {*DOUBLE_ROWS}],
)
@pytest.mark.parametrize("tame", [True, False])
def test_multiply(s, m, double, tame):
    """Both forms of a matmul, single and double rows; wild words have every special value and subnormal products."""
    rng = np.random.default_rng([int(s), int(m), tame, double])
    for k, columns, n in ((1, 1, 1), (5, 3, 1), (16, 16, 40), (24, 1, 9)):
        operands = []
        for dtype, count in ((s, columns), (m, n)):
            w = words(rng, dtype, (k, count), tame)
            if double:
                w = array.pairs(w, words(rng, dtype, (k, count), tame))
            scale = None
            if dtype in PACKED:
                low, high = (120, 135) if tame else (0, 256)
                scale = rng.integers(low, high, (-(-k // 8), count), dtype=np.uint8)
            operands.append((dtype, w, scale, double))
        a, b = (Operand(*o) for o in operands)
        want = array.plain(*(Operand(*o) for o in operands))
        same(array.multiply(a, b), want)
        for add in (False, True):
            room = numbers(rng, 2 * columns * n).reshape(columns, 2 * n)
            sums = room[:, ::2]
            expected = array.accumulate(sums, cast.canonical(want)) if add else cast.canonical(want)
            others = room[:, 1::2].copy()
            array.multiply_into(a, b, sums, add=add)
            np.testing.assert_array_equal(sums.copy().view("u4"), expected.view("u4"))
            np.testing.assert_array_equal(room[:, 1::2].copy().view("u4"), others.view("u4"))


@pytest.mark.parametrize("dtype", [DType.BF16, DType.FP16])
def test_sums_of_subnormals_are_rounded_once(dtype):
    """Partial sums of few subnormal places and products around half of one: where two roundings would differ, if they ever did."""
    rng = np.random.default_rng([int(dtype), 99])
    fmt = FLOATS[dtype]
    low = -75 if dtype == DType.BF16 else fmt.min_exp
    for _ in range(20):
        exps = rng.integers(low - 2, low + 4, (2, 16, 24))
        values = np.ldexp(1 + rng.integers(0, 1 << fmt.man_bits, exps.shape) / (1 << fmt.man_bits), exps)
        signed = (values * rng.choice([-1, 1], exps.shape)).astype(np.float32)
        a, b = (Operand(dtype, cast.encode(dtype, x, saturate=False)) for x in signed)
        same(array.multiply(a, b), array.plain(a, b))


@pytest.mark.parametrize("f", list(ActFunc))
def test_activate(f):
    """Every function: any argument, scale, bias a row and slope, special ones among them."""
    rng = np.random.default_rng(int(f))
    x = numbers(rng, 6 * 500).reshape(6, 500)
    for factor, parameter in zip([1, *numbers(rng, 5)], [0.1, *numbers(rng, 5)], strict=True):
        slope = np.float32(parameter) if f in SLOPED else None
        for offset in (np.float32(-0.0), numbers(rng, 6).reshape(6, 1)):
            got = functions.activate(f, x, np.float32(factor), offset, slope)
            want = functions.activated(f, x, np.float32(factor), offset, slope)
            np.testing.assert_array_equal(got.view("u4"), want.view("u4"))
    every = SPECIAL.view(np.float32)
    np.testing.assert_array_equal(
        functions.evaluate(f, every).view("u4"),
        functions.activated(f, every, np.float32(1), np.float32(-0.0)).view("u4"),
    )


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != DType.FP32])
def test_every_code_is_decoded(dtype):
    fmt = FLOATS[dtype]
    codes = np.arange(1 << fmt.width, dtype=np.uint32)
    want = cast.decoded(fmt, codes).view("u4")
    np.testing.assert_array_equal(cast.decode_float(fmt, codes).view("u4"), want)
    narrow = codes.astype(np.uint8 if fmt.width == 8 else np.uint16)
    np.testing.assert_array_equal(cast.decode_float(fmt, narrow).view("u4"), want)


@pytest.mark.parametrize("dtype", list(FLOATS))
@pytest.mark.parametrize("saturate", [False, True])
def test_encode(dtype, saturate):
    rng = np.random.default_rng([int(dtype), saturate])
    x = np.concatenate([SPECIAL.view(np.float32), numbers(rng, 20_000)])
    got = cast.encode_float(FLOATS[dtype], x, saturate=saturate)
    np.testing.assert_array_equal(got, cast.encoded(FLOATS[dtype], x, saturate=saturate))
