"""Casts: against ml_dtypes, gfloat and NumPy on every value and every rounding boundary, against rationals, and the field's cases."""

import struct
from fractions import Fraction
from functools import cache

import gfloat
import gfloat.formats as gf
import ml_dtypes
import numpy as np
import pytest

from models import cast
from models.formats import (
    BF16,
    E2M1,
    E4M3,
    E5M2,
    FLOATS,
    FP16,
    FP32,
    INTS,
    MX_BLOCK,
    PACKED,
    DType,
    FloatFormat,
)
from tb.models import exact

SEED = 31415
NARROW = [BF16, FP16, E4M3, E5M2, E2M1]
WIDE = [FP32, BF16, FP16]
ML = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
GF = {
    "bf16": gf.format_info_bfloat16,
    "fp16": gf.format_info_binary16,
    "e4m3": gf.format_info_ocp_e4m3,
    "e5m2": gf.format_info_ocp_e5m2,
    "e2m1": gf.format_info_ocp_e2m1,
}


def name(value: object) -> str:
    return getattr(value, "name", str(value)).lower()


def f32(*codes: int) -> np.ndarray:
    return np.array(codes, dtype=np.uint32).view(np.float32)


def bits(values: np.ndarray) -> list[int]:
    return np.asarray(values, dtype=np.float32).view(np.uint32).tolist()


def all_codes(fmt: FloatFormat) -> np.ndarray:
    return np.arange(1 << fmt.width, dtype=np.uint32)


def raw_type(fmt: FloatFormat) -> type:
    return np.uint16 if fmt.width == 16 else np.uint8


def as_ml(fmt: FloatFormat, codes: np.ndarray) -> np.ndarray:
    """FP32 values of codes, as the other library reads them."""
    with np.errstate(invalid="ignore"):
        return codes.astype(raw_type(fmt)).view(ML[fmt.name]).astype(np.float32)


@cache
def sources(name: str) -> np.ndarray:
    """FP32 numbers: the values of every BF16 and FP16 code, random bits, and every value of the format called `name`, every midpoint
    between neighbours (also the one past the largest), each with its FP32 neighbours, in both signs."""
    fmt = next(f for f in NARROW if f.name == name)
    steps = np.arange(fmt.max_code + 3, dtype=np.int64)
    exp = np.maximum(steps >> fmt.man_bits, 1)
    mag = np.where(steps >> fmt.man_bits == 0, 0, 1 << fmt.man_bits) + (steps & ((1 << fmt.man_bits) - 1))
    ladder = np.ldexp(mag.astype(np.float64), (exp - fmt.bias - fmt.man_bits).astype(np.int32))
    middles = (ladder[1:] + ladder[:-1]) / 2
    with np.errstate(over="ignore"):
        centre = np.concatenate([ladder, middles]).astype(np.float32).view(np.uint32).astype(np.int64)
    near = np.concatenate([centre - 1, centre, centre + 1])
    near = near[(near >= 0) & (near <= 0x7F800001)].astype(np.uint32)
    specials = np.array([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000], np.uint32)
    rng = np.random.default_rng(SEED)
    everywhere = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32)
    inside = rng.uniform(-1, 1, 100_000) * np.exp2(
        rng.uniform(fmt.min_exp - fmt.man_bits - 2, np.log2(ladder[-1]) + 1, 100_000)
    )
    with np.errstate(over="ignore"):
        pools = [everywhere, inside.astype(np.float32).view(np.uint32)]
    pools += [all_codes(BF16) << np.uint32(16), bits_of(as_ml(FP16, all_codes(FP16)))]
    pools += [near, near | np.uint32(1 << 31), specials, specials | np.uint32(1 << 31)]
    return np.concatenate(pools).view(np.float32)


def bits_of(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, dtype=np.float32).view(np.uint32)


@pytest.mark.parametrize("fmt", NARROW, ids=name)
def test_decode_every_code(fmt):
    codes = all_codes(fmt)
    got = cast.decode_float(fmt, codes)
    want = as_ml(fmt, codes)
    also = gfloat.decode_ndarray(GF[fmt.name], codes.astype(np.int64))
    spec = exact.SPECS[fmt.name]
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(np.isnan(also), nan)
    assert set(bits_of(got)[nan].tolist()) <= {0x7FC00000}
    assert np.array_equal(bits_of(got)[~nan], bits_of(want)[~nan])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(bits_of(got)[~nan], bits_of(also.astype(np.float32))[~nan])
    for code in range(0, 1 << fmt.width, 1 if fmt.width <= 8 else 97):
        assert int(bits_of(got)[code]) == exact.encode(exact.FP32, exact.decode(spec, code))


def test_decode_fp32_keeps_all_but_nan():
    x = sources("bf16")
    got = cast.decode_float(FP32, bits_of(x))
    nan = np.isnan(x)
    assert np.array_equal(bits_of(got)[~nan], bits_of(x)[~nan])
    assert set(bits_of(got)[nan].tolist()) == {0x7FC00000}


@pytest.mark.parametrize("fmt", NARROW, ids=name)
def test_round_trip(fmt):
    codes = all_codes(fmt)
    for saturate in (False, True):
        again = cast.encode_float(fmt, cast.decode_float(fmt, codes), saturate=saturate)
        finite = (codes & ((1 << (fmt.width - 1)) - 1)) <= fmt.max_code
        assert np.array_equal(again[finite], codes[finite])


@pytest.mark.parametrize("fmt", NARROW, ids=name)
def test_encode_against_ml_dtypes(fmt):
    x = sources(fmt.name)
    got = cast.encode_float(fmt, x, saturate=False)
    with np.errstate(all="ignore"):
        want = x.astype(ML[fmt.name]).view(raw_type(fmt)).astype(np.uint32)
        theirs = as_ml(fmt, want)
    if fmt.nan is None:
        # E2M1 has no NaN: what becomes of one is each library's own affair
        keep = ~np.isnan(x)
        assert np.array_equal(got[keep], want[keep])
        return
    nan = np.isnan(theirs)
    assert set(got[nan].tolist()) == {fmt.nan}
    assert np.array_equal(got[~nan], want[~nan])


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("fmt", NARROW, ids=name)
def test_encode_against_gfloat(fmt, saturate):
    x = sources(fmt.name)
    if fmt.nan is None:
        x, saturate_there = x[~np.isnan(x)], True
    else:
        saturate_there = saturate
    info = GF[fmt.name]
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        theirs = gfloat.round_ndarray(info, wide, sat=saturate_there)
        want = gfloat.encode_ndarray(info, theirs).astype(np.uint32)
    got = cast.encode_float(fmt, x, saturate=saturate)
    nan = np.isnan(theirs)
    assert set(got[nan].tolist()) <= {fmt.nan}
    assert np.array_equal(got[~nan], want[~nan])


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("fmt", [FP32, *NARROW], ids=name)
def test_encode_against_rationals(fmt, saturate):
    x = np.random.default_rng(SEED).choice(sources("e4m3" if fmt is FP32 else fmt.name), 2000)
    got = cast.encode_float(fmt, x, saturate=saturate).tolist()
    for code, g in zip(bits(x), got, strict=True):
        want = exact.encode(exact.SPECS[fmt.name], exact.decode(exact.FP32, code), saturate=saturate)
        assert g == want, (hex(code), hex(g), hex(want))


def test_fp32_to_fp32():
    x = f32(0x7F800001, 0xFFC12345, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001)
    off = [0x7FC00000, 0x7FC00000, 0x7F800000, 0xFF800000, 0x80000000, 1]
    assert cast.encode(DType.FP32, x, saturate=False).tolist() == off
    on = [0x7FC00000, 0x7FC00000, 0x7F7FFFFF, 0xFF7FFFFF, 0x80000000, 1]
    assert cast.encode(DType.FP32, x, saturate=True).tolist() == on


# --- reports from the field ------------------------------------------------------------------------------------------
def test_a1_e4m3_overflow():
    x = np.array([448, 464, 0, 465, 480, 500, 1000, np.inf, -np.inf, np.nan, -448, -1000], dtype=np.float32)
    x[2] = np.nextafter(np.float32(464), np.float32(1000))
    off = [0x7E, 0x7E] + [0x7F] * 8 + [0xFE, 0x7F]
    assert cast.encode(DType.E4M3, x, saturate=False).tolist() == off
    on = [0x7E] * 8 + [0xFE, 0x7F, 0xFE, 0xFE]
    assert cast.encode(DType.E4M3, x, saturate=True).tolist() == on


@pytest.mark.parametrize(
    ("code", "fmt", "want"),
    [
        (0x3F881000, E4M3, 0x39),
        (0x3F978000, E4M3, 0x39),
        (0x3A801000, E4M3, 0x01),
        (0x3E801000, E2M1, 0x1),
        (0xBF881000, E4M3, 0xB9),
    ],
)
def test_a2_no_double_rounding(code, fmt, want):
    assert cast.encode_float(fmt, f32(code), saturate=False).tolist() == [want]


def test_a3_bf16_rounds_and_keeps_nan():
    x = f32(0x3E89CCD5, 0x3F808000, 0x3F818000, 0x7F7F8000, 0x7F800001, 0x007FFFFF)
    want = [0x3E8A, 0x3F80, 0x3F82, 0x7F80, 0x7FC0, 0x0080]
    assert cast.encode(DType.BF16, x, saturate=False).tolist() == want
    assert cast.encode(DType.BF16, x, saturate=True).tolist() == [*want[:3], 0x7F7F, *want[4:]]


def test_a4_e8m0():
    raw = np.array([0x00, 0x01, 0x7F, 0xFE, 0xFF], np.uint32)
    want = [0x00400000, 0x00800000, 0x3F800000, 0x7F000000, 0x7FC00000]
    assert bits(cast.decode(DType.E8M0, raw)) == want
    every = np.arange(256, dtype=np.uint8)
    theirs = every.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    got = cast.decode(DType.E8M0, every.astype(np.uint32))
    assert bits(got)[:255] == bits(theirs)[:255]
    assert np.isnan(got[255])
    assert np.isnan(theirs[255])


def test_a5_largest_element_saturates():
    block = np.concatenate([f32(0x42FFFFFF), np.arange(1, 32, dtype=np.float32)])
    for dtype, scale, first in ((DType.E5M2X4, 0x76, 0x7B), (DType.E4M3X4, 0x7D, 0x7E)):
        codes, scales = cast.quantize_mx(block, dtype)
        assert (int(scales), int(codes[0])) == (scale, first)


def test_a22_int8():
    x = np.array([-129, -128, -127.5, -127, 126.5, 127, 127.5, 128], np.float32)
    want = np.array([-128, -128, -128, -127, 126, 127, 127, 127], np.int64) & 0xFF
    for saturate in (False, True):
        assert cast.encode(DType.INT8, x, saturate=saturate).tolist() == want.tolist()
    half = np.array([0.05001831, 0.09997559], np.float16).astype(np.float32)
    ratio = np.float32(half[0] / half[1] * 2)
    assert cast.encode(DType.INT8, np.array([ratio, -ratio], np.float32), saturate=True).tolist() == [1, 0xFF]


# --- integers --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", sorted(INTS), ids=name)
def test_float_to_int(dtype):
    width, signed = INTS[dtype]
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    edges = [0.5, 1.5, 2.5, 0.49999997, 1e-40, 3e38, low - 1.0, low - 0.5, low, low + 0.5]
    edges += [high - 0.5, high, high + 0.5, high + 1.0, 2**23 + 1.0, 2**24 - 0.5]
    rng = np.random.default_rng([SEED, dtype])
    spread = rng.uniform(-2, 2, 3000) * np.exp2(rng.uniform(-3, width + 2, 3000))
    x = np.concatenate([edges, np.negative(edges), spread, [np.inf, -np.inf, np.nan, -0.0]]).astype(
        np.float32
    )
    got = cast.encode(dtype, x, saturate=False)
    assert got.dtype == np.uint32
    for value, g in zip(x.tolist(), got.tolist(), strict=True):
        if value != value:
            want = 0
        elif value in (float("inf"), float("-inf")):
            want = high if value > 0 else low
        else:
            want = min(max(round(Fraction(value)), low), high)  # Python rounds halves to even
        assert g == want % (1 << width), value
    # in range, NumPy's own conversion says the same
    inside = x[np.isfinite(x)]
    inside = inside[(np.rint(inside) >= low) & (np.rint(inside).astype(np.float64) <= high)]
    kind = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    theirs = np.rint(inside).astype(np.int64).astype(kind).view(f"u{width // 8}").astype(np.uint32)
    assert np.array_equal(cast.encode(dtype, inside, saturate=True), theirs)


@pytest.mark.parametrize("dtype", sorted(INTS), ids=name)
def test_int_to_float(dtype):
    width, signed = INTS[dtype]
    rng = np.random.default_rng([SEED, dtype])
    raw = (
        np.arange(1 << width, dtype=np.uint32)
        if width <= 16
        else np.concatenate(
            [
                rng.integers(0, 1 << 32, 3000, dtype=np.uint32),
                # around 2**24 and its like the last places fall away, with ties
                (1 << np.arange(22, 32, dtype=np.uint32)[:, None])
                + np.arange(-6, 7, dtype=np.int64).astype(np.uint32),
            ],
            axis=None,
        )
    )
    kind = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    theirs = raw.astype(f"u{width // 8}").view(kind).astype(np.float32)
    got = cast.decode(dtype, raw)
    assert bits(got) == bits(theirs)
    for code, g in list(zip(raw.tolist(), bits(got), strict=True))[:: 1 if width > 16 else 131]:
        value = code - (1 << width) if signed and code >> (width - 1) else code
        number = exact.Number("finite", value < 0, Fraction(abs(value)))
        assert g == exact.encode(exact.FP32, number)


# --- E2M1, packing, blocks -------------------------------------------------------------------------------------------
def test_e2m1_marks_nan():
    x = np.array([np.nan, np.inf, -np.inf, 7, -0.0, 0.25, 0.75, 5, 1e-40], np.float32)
    codes, invalid = cast.encode_e2m1(x)
    assert codes.tolist() == [0, 7, 15, 7, 8, 0, 2, 6, 0]
    assert invalid.tolist() == [True] + [False] * 8


@pytest.mark.parametrize("dtype", sorted(PACKED), ids=name)
def test_pack(dtype):
    width = PACKED[dtype].width
    codes = np.random.default_rng(SEED).integers(0, 1 << width, (3, 5, 4)).astype(np.uint8)
    words = cast.pack_x4(dtype, codes)
    assert words.dtype == np.uint32
    assert words.shape == (3, 5)
    assert int(words[1, 2]) == sum(int(c) << (width * i) for i, c in enumerate(codes[1, 2]))
    assert np.array_equal(cast.unpack_x4(dtype, words), codes)


def exact_block(block: list[int], dtype: DType, rule: str) -> tuple[list[int], int]:
    """quantize_mx in rationals, of FP32 bits."""
    spec = exact.SPECS[PACKED[dtype].name]
    numbers = [exact.decode(exact.FP32, b) for b in block]
    if any(n.kind != "finite" for n in numbers):
        return [0] * len(block), 0xFF
    amax = max(n.mag for n in numbers)
    code = 0
    if amax:
        floor = amax.numerator.bit_length() - amax.denominator.bit_length()
        floor -= exact.power(floor) > amax
        emax = (spec.largest >> spec.man) - spec.bias
        code = min(max(floor - emax + (rule == "nki") + 127, 0), 254)
    scale = exact.power(code - 127)
    return [
        exact.encode(spec, exact.Number("finite", n.neg, n.mag / scale), saturate=True) for n in numbers
    ], code


def blocks() -> np.ndarray:
    """FP32 bits [n, 32]: ordinary, wide, subnormal, around powers of two, zero, with Inf and NaN."""
    rng = np.random.default_rng(SEED)
    normal = rng.standard_normal((40, MX_BLOCK)).astype(np.float32)
    wide = rng.integers(0, 0x7F800000, (60, MX_BLOCK), dtype=np.uint32) | (
        rng.integers(0, 2, (60, MX_BLOCK), dtype=np.uint32) << np.uint32(31)
    )
    size = rng.integers(0, 0x7F80, (80, 1)).astype(np.uint32) << np.uint32(16)
    close = np.maximum(size.astype(np.int64) - rng.integers(0, 5 << 23, (80, MX_BLOCK)), 0).astype(np.uint32)
    tiny = rng.integers(0, 1 << 24, (40, MX_BLOCK), dtype=np.uint32)
    tiny[:5] >>= np.uint32(20)
    power = np.zeros((10, MX_BLOCK), np.uint32)
    power[:, 3] = [
        0x3F800000,
        0x3F7FFFFF,
        0x3FFFFFFF,
        1,
        2,
        0x007FFFFF,
        0x00800000,
        0x7F7FFFFF,
        0,
        0xBF800000,
    ]
    power[:, 4] = 0x80000000
    special = normal[:4].view(np.uint32).copy()
    special[[0, 1, 2, 3], [0, 7, 31, 5]] = [0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001]
    return np.concatenate([normal.view(np.uint32), wide, close, tiny, power, special])


@pytest.mark.parametrize("rule", ["ocp", "nki"])
@pytest.mark.parametrize("dtype", sorted(PACKED), ids=name)
def test_quantize_against_rationals(dtype, rule):
    x = blocks()
    codes, scales = cast.quantize_mx(x.view(np.float32), dtype, rule=rule)
    assert codes.dtype == scales.dtype == np.uint8
    for block, got, scale in zip(x.tolist(), codes.tolist(), scales.tolist(), strict=True):
        assert (got, scale) == exact_block(block, dtype, rule)


@pytest.mark.parametrize("dtype", sorted(PACKED), ids=name)
def test_quantize_against_gfloat(dtype):
    """Rule `ocp`, where the other library's floating-point logarithm is safe: finite blocks that are not all zero."""
    info = {
        DType.E4M3X4: gf.format_info_mxfp8_e4m3,
        DType.E5M2X4: gf.format_info_mxfp8_e5m2,
        DType.E2M1X4: gf.format_info_mxfp4_e2m1,
    }[dtype]
    x = blocks().view(np.float32)
    x = x[np.isfinite(x).all(axis=-1) & (np.abs(x).max(axis=-1) > 0)].astype(np.float64)
    mantissa, _ = np.frexp(np.abs(x).max(axis=-1))
    x = x[mantissa < 0.999]
    codes, scales = cast.quantize_mx(x.astype(np.float32), dtype)
    for block, got, scale in zip(x, codes, scales, strict=True):
        theirs = gfloat.compute_scale_amax(info.etype.emax, block)
        assert float(cast.decode(DType.E8M0, np.array([scale], np.uint32))[0]) == theirs
        rounded = gfloat.round_ndarray(info.etype, block / theirs, sat=True)
        assert np.array_equal(gfloat.encode_ndarray(info.etype, rounded), got)


def test_rule_nki_never_saturates():
    x = np.random.default_rng(SEED).uniform(1.9, 2, (50, MX_BLOCK)).astype(np.float32)
    for dtype, fmt in PACKED.items():
        low, _ = cast.quantize_mx(x, dtype, rule="ocp")
        high, _ = cast.quantize_mx(x, dtype, rule="nki")
        assert low.max() == fmt.max_code
        assert high.max() < fmt.max_code


def test_bad_arguments_are_named():
    one = np.zeros(1, np.uint32)
    with pytest.raises(ValueError, match="codes must be from 0 to 255 for e4m3, not 256"):
        cast.decode_float(E4M3, np.array([1, 256]))
    with pytest.raises(ValueError, match="codes must be from 0 to 15 for e2m1, not -1"):
        cast.decode_float(E2M1, np.array([-1]))
    for dtype in (DType.E8M0, *PACKED):
        with pytest.raises(ValueError, match=rf"dtype must be one of FP32, .*UINT32, not {dtype.name}"):
            cast.encode(dtype, one.view(np.float32), saturate=True)
    for dtype in PACKED:
        with pytest.raises(ValueError, match=rf"dtype must be one of FP32, .*E8M0, not {dtype.name}"):
            cast.decode(dtype, one)
    with pytest.raises(ValueError, match="dtype must be one of E4M3X4, E5M2X4, E2M1X4, not E4M3"):
        cast.pack_x4(DType.E4M3, np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match=r"codes must have a last axis of 4, not shape \(3,\)"):
        cast.pack_x4(DType.E4M3X4, np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="rule must be one of ocp, nki, not 'floor'"):
        cast.quantize_mx(np.zeros(32, np.float32), DType.E4M3X4, rule="floor")
    with pytest.raises(ValueError, match=r"x must have a last axis of 32, not shape \(31,\)"):
        cast.quantize_mx(np.zeros(31, np.float32), DType.E4M3X4)
    with pytest.raises(ValueError, match="dtype must be one of E4M3X4, E5M2X4, E2M1X4, not BF16"):
        cast.quantize_mx(np.zeros(32, np.float32), DType.BF16)


def test_every_float_type_goes_through_decode_and_encode():
    for dtype, fmt in FLOATS.items():
        raw = np.array([0, 1, fmt.max_code, (1 << (fmt.width - 1)) | 1], np.uint32)
        values = cast.decode(dtype, raw)
        assert bits(values) == bits(cast.decode_float(fmt, raw))
        assert cast.encode(dtype, values, saturate=False).tolist() == raw.tolist()
        assert struct.unpack("<f", struct.pack("<f", float(values[2])))[0] == float(values[2])
