"""Tensor array: bit for bit against exact rational arithmetic, in every format, and the field's cases of shapes and padding."""

import random
import struct

import numpy as np
import pytest

from models import array, cast, fp
from models.formats import DOUBLE_ROWS, FLOATS, MAC_CLASSES, PACKED, DType
from tb.models import exact

SEED = 20260
PAIRS = sorted((a, b) for c in MAC_CLASSES for a in c for b in c)


def spec_of(dtype: DType) -> exact.Spec:
    return exact.SPECS[(PACKED | FLOATS)[dtype].name]


def bits(values: np.ndarray) -> list:
    return values.view(np.uint32).tolist()


def elements(dtype: DType, codes: np.ndarray) -> np.ndarray:
    """Words [K, columns] of codes [K, columns, 1, 2 or 4]."""
    if codes.shape[-1] == 2:
        return array.pairs(*codes.astype(np.uint32).transpose(2, 0, 1))
    return cast.pack_x4(dtype, codes) if dtype in PACKED else codes[..., 0].astype(np.uint32)


def oracle(s, m, a, b, sa=None, sb=None) -> list:
    """Codes a [K, M, e], b [K, N, e], scales [groups, M], [groups, N]."""
    left, right = spec_of(s), spec_of(m)
    values_a = [[[exact.decode(left, c) for c in w] for w in r] for r in a.tolist()]
    values_b = [[[exact.decode(right, c) for c in w] for w in r] for r in b.tolist()]

    def pairs(k, i, j):
        return list(zip(values_a[k][i], values_b[k][j], strict=True))

    def scales(k, i, j):
        return () if sa is None else (int(sa[k // 8, i]), int(sb[k // 8, j]))

    return exact.matmul(len(a), (a.shape[1], b.shape[1]), pairs, scales)


def check(s, m, a, b, sa=None, sb=None) -> None:
    got = array.matmul(elements(s, a), elements(m, b), s, m, sa, sb, double=a.shape[-1] == 2)
    assert got.dtype == np.float32
    want = oracle(s, m, a, b, sa, sb)
    assert bits(got) == want, [
        (i, j, hex(g), hex(w))
        for i, (gr, wr) in enumerate(zip(bits(got), want, strict=True))
        for j, (g, w) in enumerate(zip(gr, wr, strict=True))
        if g != w
    ][:5]


def codes(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], mix: str) -> np.ndarray:
    """Random codes: `any` of all codes, `finite` without Inf and NaN, `near` 1 in magnitude, `edge` of extremes, subnormals and zeros."""
    fmt = (PACKED | FLOATS)[dtype]
    sign = 1 << (fmt.width - 1)
    if mix == "any":
        return rng.integers(0, 2 * sign, shape)
    if mix == "finite":
        return rng.integers(0, fmt.max_code + 1, shape) | sign * rng.integers(0, 2, shape)
    if mix == "near":
        one = fmt.bias << fmt.man_bits
        low, high = max(0, one - (2 << fmt.man_bits)), min(fmt.max_code, one + (2 << fmt.man_bits))
        return rng.integers(low, high + 1, shape) | sign * rng.integers(0, 2, shape)
    pool = [0, 1, (1 << fmt.man_bits) - 1, 1 << fmt.man_bits, fmt.max_code, fmt.max_code - 1]
    return rng.choice(pool, shape) | sign * rng.integers(0, 2, shape)


@pytest.mark.parametrize("mix", ["near", "finite", "edge", "any"])
@pytest.mark.parametrize(
    ("s", "m", "double"),
    [(*p, False) for p in PAIRS] + [(*p, True) for p in PAIRS if p[0] in DOUBLE_ROWS],
    ids=lambda v: getattr(v, "name", "double" * v),
)
def test_against_rationals(s, m, double, mix):
    rng = np.random.default_rng([SEED, s, m, len(mix), double])
    k, columns_m, columns_n = 19, 5, 6
    e = 4 if s in PACKED else 2 if double else 1
    a, b = codes(rng, s, (k, columns_m, e), mix), codes(rng, m, (k, columns_n, e), mix)
    if mix == "any" and s not in PACKED:
        # keep most results away from NaN: special codes in few places only
        calm_a, calm_b = codes(rng, s, a.shape, "finite"), codes(rng, m, b.shape, "finite")
        a, b = np.where(rng.random(a.shape) < 0.1, a, calm_a), np.where(rng.random(b.shape) < 0.1, b, calm_b)
    if e < 4:
        check(s, m, a, b)
        return
    groups = -(-k // 8)
    low, high = {"near": (120, 135), "finite": (100, 155), "edge": (0, 255), "any": (0, 255)}[mix]
    sa = rng.integers(low, high, (groups, columns_m)).astype(np.uint8)
    sb = rng.integers(low, high, (groups, columns_n)).astype(np.uint8)
    check(s, m, a, b, sa, sb)


@pytest.mark.parametrize(("s", "m"), [p for p in PAIRS if p[0] in PACKED], ids=lambda p: p.name)
def test_scales_beyond_fp32_meet_any_partial_sum(s, m):
    """Scales that make S vanish, become a lone sticky bit below a tie, land among the subnormals, or overflow."""
    rng = np.random.default_rng([SEED, s, m, 7])
    k = 24
    a, b = codes(rng, s, (k, 6, 4), "finite"), codes(rng, m, (k, 8, 4), "finite")
    sa = rng.choice([0, 1, 2, 60, 64, 100, 127, 190, 253, 254], (3, 6)).astype(np.uint8)
    sb = rng.choice([0, 1, 40, 50, 64, 110, 127, 200, 254], (3, 8)).astype(np.uint8)
    check(s, m, a, b, sa, sb)
    sa[1, 2], sb[2, 3] = 0xFF, 0xFF
    check(s, m, a, b, sa, sb)


def test_nan_scale_wins_over_zero():
    """A4: scale ff times anything, also 0, is NaN."""
    a = np.zeros((8, 1, 4), dtype=np.int64)
    one, nan = np.full((1, 1), 127, np.uint8), np.full((1, 1), 255, np.uint8)
    for sa, sb in ((nan, one), (one, nan), (nan, nan)):
        got = array.matmul(
            elements(DType.E4M3X4, a), elements(DType.E4M3X4, a), DType.E4M3X4, DType.E4M3X4, sa, sb
        )
        assert bits(got) == [[0x7FC00000]]


def test_sum_of_four_is_exact_where_float64_is_not():
    """E5M2 products span 66 bits: a large pair that cancels must leave the small one, and leave +0 when that cancels too."""
    s = DType.E5M2X4
    for row in ([0x7B, 0x01, 0xFB, 0x00], [0x7B, 0x01, 0xFB, 0x81], [0x7B, 0x81, 0xFB, 0x00]):
        a = np.array([[row]])
        b = np.array([[[0x7B, 0x01, 0x7B, 0x01]]])
        unit = np.full((1, 1), 127, np.uint8)
        check(s, s, a, b, unit, unit)


def test_sum_of_two_is_exact_where_float64_is_not():
    """The largest product and the smallest one, 64 bits apart, meet a partial sum that cancels the large one."""
    s = DType.E5M2
    for small in (0x01, 0x81):
        for order in (1, -1):
            a = np.array([[[0xFB, 0x00]], [[0x7B, small][::order]]])
            b = np.array([[[0x7B, 0x00]], [[0x7B, 0x01][::order]]])
            check(s, s, a, b)
    # FP32 cannot hold the sum of the second row, so two roundings would leave nothing
    words = elements(s, a), elements(s, b)
    assert bits(array.matmul(*words, s, s, double=True)) == [[0xAF800000]]


@pytest.mark.parametrize("dtype", DOUBLE_ROWS, ids=lambda d: d.name)
def test_a_zero_of_two(dtype):
    """S is -0 only where both products are -0: a partial sum that is -0 shows which. Infinities and NaN of either product count."""
    inf, top = (0x7C, 0x7B) if dtype == DType.E5M2 else (0x7F, 0x7E)
    for x in (
        [0x80, 0x80],
        [0x80, 0x00],
        [0x00, 0x80],
        [inf, 0x01],
        [0x01, inf],
        [inf, 0x80],
        [top, top],
        [0x7F, 0],
    ):
        for y in ([0x01, 0x01], [0x00, 0x01], [0x81, 0x01], [0x00, inf], [inf, inf | 0x80]):
            check(dtype, dtype, np.array([[x]]), np.array([[y]]))


def test_a_double_row_is_not_two_rows():
    """1 + 2^-24 is a tie to even, twice; together 2^-23 is a place of its own."""
    one, tiny = np.array([[[0x3C, 0x00]]]), 0x0C  # 1 and 2^-12
    a = np.concatenate([one, [[[tiny, tiny]]]])
    words = elements(DType.E5M2, a)
    assert bits(array.matmul(words, words, DType.E5M2, DType.E5M2, double=True)) == [[0x3F800001]]
    rows = elements(DType.E5M2, a.transpose(0, 2, 1).reshape(4, 1, 1))
    assert bits(array.matmul(rows, rows, DType.E5M2, DType.E5M2)) == [[0x3F800000]]
    # with a zero row beside it, it is the same as a single one
    a[:, :, 1] = 0
    got = array.matmul(elements(DType.E5M2, a), elements(DType.E5M2, a), DType.E5M2, DType.E5M2, double=True)
    single = elements(DType.E5M2, a[..., :1])
    assert bits(got) == bits(array.matmul(single, single, DType.E5M2, DType.E5M2))


@pytest.mark.parametrize("dtype", sorted(PACKED), ids=lambda d: d.name)
def test_negative_zero_partial_sum_of_four(dtype):
    """A partial sum that underflowed to -0 stays -0 under four -0 products, and becomes +0 under any other zero."""
    a, b = np.ones((16, 1, 4), dtype=np.int64), np.ones((16, 2, 4), dtype=np.int64)
    minus = 1 << (PACKED[dtype].width - 1)
    b[0] |= minus
    b[1:8] = minus
    b[8:] = minus
    b[8, 1, 3] = 0
    scale = np.zeros((2, 1), np.uint8)
    check(dtype, dtype, a, b, scale, np.zeros((2, 2), np.uint8))
    words = elements(dtype, a), elements(dtype, b)
    assert bits(array.matmul(*words, dtype, dtype, scale, np.zeros((2, 2), np.uint8))) == [[0x80000000, 0]]


def one_row(dtype: DType, pairs: list[tuple[int, int]]) -> int:
    """Bits of the array's result for rows of one product each."""
    a = np.array([[[p]] for p, _ in pairs])
    b = np.array([[[q]] for _, q in pairs])
    return bits(array.matmul(elements(dtype, a), elements(dtype, b), dtype, dtype))[0][0]


@pytest.mark.parametrize(
    ("pairs", "want"),
    [
        ([(0x8000, 0x3F80)], 0x00000000),  # +0 + -0: the start value decides
        ([(0x8001, 0x0001)], 0x80000000),  # a negative product that underflows leaves -0
        ([(0x8001, 0x0001), (0x8000, 0x3F80)], 0x80000000),  # A14: FMA(-0, 1, -0)
        ([(0x8001, 0x0001), (0x0000, 0x3F80)], 0x00000000),
        ([(0x3F80, 0x3F80), (0xBF80, 0x3F80)], 0x00000000),  # exact cancellation
        ([(0x7F80, 0x0000)], 0x7FC00000),
        ([(0x7F80, 0x3F80), (0xFF80, 0x3F80)], 0x7FC00000),
        ([(0x7F80, 0x3F80), (0xBF80, 0x3F80)], 0x7F800000),
        ([(0xFF80, 0x3F80), (0x7F7F, 0x7F7F)], 0xFF800000),
        ([(0x7F7F, 0x7F7F), (0xFF80, 0x3F80)], 0x7FC00000),  # overflow to Inf is an infinity like any other
        ([(0xFF81, 0x3F80)], 0x7FC00000),
        # 1 + 2**-24 is a tie, and a crumb far below decides it only if it comes in the same row
        ([(0x3F80, 0x3F80), (0x3380, 0x3F80)], 0x3F800000),
        ([(0x3F80, 0x3F80), (0x3381, 0x3F80)], 0x3F800001),
    ],
)
def test_special_values(pairs, want):
    assert one_row(DType.BF16, pairs) == want


@pytest.mark.parametrize(
    ("s", "m", "big", "small"),
    [
        # (codes of a power of two in both types, its exponent), (codes of the smallest numbers, whose product is far below)
        (DType.E4M3X4, DType.E4M3X4, (0x78, 0x78, 16), (0x01, 0x01)),
        (DType.E4M3X4, DType.E5M2X4, (0x78, 0x78, 23), (0x01, 0x01)),
        (DType.E5M2X4, DType.E5M2X4, (0x78, 0x78, 30), (0x01, 0x01)),
    ],
    ids=["e4m3", "mixed", "e5m2"],
)
@pytest.mark.parametrize("sign", [0, 0x80])
def test_one_rounding_a_row(s, m, big, small, sign):
    """Psum 1 plus (half its last place +- a crumb 58 to 86 bits below 1): only a single rounding sees the crumb."""
    a, b = np.zeros((9, 1, 4), dtype=np.int64), np.zeros((9, 1, 4), dtype=np.int64)
    a[0, 0, 0], b[0, 0, 0] = big[:2]
    a[8, 0, :2], b[8, 0, :2] = [big[0], small[0] | sign], [big[1], small[1]]
    scale = np.array([[127 - big[2]], [127 - big[2] - 24]], np.uint8)
    unit = np.full((2, 1), 127, np.uint8)
    got = array.matmul(elements(s, a), elements(m, b), s, m, scale, unit)
    assert bits(got) == [[0x3F800000 if sign else 0x3F800001]]
    check(s, m, a, b, scale, unit)


@pytest.mark.parametrize("dtype", sorted(PACKED), ids=lambda d: d.name)
@pytest.mark.parametrize("k_elements", [40, 1504])
def test_zero_padding_changes_nothing(dtype, k_elements):
    """A6: K of 40 and 1504 elements, N = 1, padded with zero elements and whole zero blocks of any scale but NaN.

    What lies in unused partitions of the memory is tested on the machine (test_machine.py): the array is not given it.
    """
    rng = np.random.default_rng([SEED, k_elements, dtype])
    rows, groups = k_elements // 4, -(-k_elements // 32)
    words = [elements(dtype, codes(rng, dtype, (rows, n, 4), "near")) for n in (3, 1)]
    scales = [rng.integers(120, 130, (groups, n)).astype(np.uint8) for n in (3, 1)]
    want = array.matmul(*words, dtype, dtype, *scales)
    wide = [np.concatenate([w, np.zeros((8 * groups + 8 - rows, w.shape[1]), np.uint32)]) for w in words]
    more = [np.concatenate([x, np.full((1, x.shape[1]), 0xFE, np.uint8)]) for x in scales]
    assert bits(array.matmul(*wide, dtype, dtype, *more)) == bits(want)
    assert np.isfinite(want).all()


@pytest.mark.parametrize("shape", [(24, 16, 16), (33, 32, 1), (1, 33, 17)])
def test_shapes_against_float64(shape):
    """A7: M x K x N of odd sizes, in values whose sums are exact."""
    m, k, n = shape
    rng = np.random.default_rng([SEED, *shape])
    a, b = (rng.integers(-8, 9, (k, c)).astype(np.float32) for c in (m, n))
    for dtype in (DType.BF16, DType.FP16, DType.E4M3, DType.E5M2):
        words = [cast.encode(dtype, x, saturate=True) for x in (a, b)]
        exact_a, exact_b = (cast.decode(dtype, w).astype(np.float64) for w in words)
        got = array.matmul(*words, dtype, dtype)
        assert got.shape == (m, n)
        assert np.array_equal(got.astype(np.float64), exact_a.T @ exact_b)


def test_columns_do_not_depend_on_their_neighbours():
    """Results are worked out in chunks of columns: no chunk border may show."""
    rng = np.random.default_rng(SEED)
    a = codes(rng, DType.BF16, (8, 16, 1), "finite")
    b = codes(rng, DType.BF16, (8, 2 * array.CHUNK // 16 + 3, 1), "finite")
    whole = array.matmul(elements(DType.BF16, a), elements(DType.BF16, b), DType.BF16, DType.BF16)
    for first in (0, array.CHUNK // 16 - 1, b.shape[1] - 2):
        part = array.matmul(
            elements(DType.BF16, a), elements(DType.BF16, b[:, first : first + 2]), DType.BF16, DType.BF16
        )
        assert bits(part) == bits(np.ascontiguousarray(whole[:, first : first + 2]))


def test_empty_sizes():
    """A9: K = 0 gives +0, M = 0 or N = 0 an empty result."""
    words = np.zeros((0, 3), np.uint32), np.zeros((0, 5), np.uint32)
    assert bits(array.matmul(*words, DType.BF16, DType.BF16)) == [[0] * 5] * 3
    for m, n in ((0, 4), (4, 0), (0, 0)):
        got = array.matmul(np.zeros((8, m), np.uint32), np.zeros((8, n), np.uint32), DType.BF16, DType.BF16)
        assert got.shape == (m, n)


def test_random_partial_sums_and_ties():
    """Psum of any size against products built to fall on, just above and just below its rounding ties."""
    rnd = random.Random(SEED)
    for _ in range(400):
        top = rnd.randrange(0x3F80, 0x3FFF)
        exponent = rnd.randrange(-4, 12)
        tail = rnd.choice([0x3F80, 0x3F81, 0x3FC0, 0xBF80, 0xBF7F, 0x3F7F])
        low = (127 - 24 + exponent) << 7
        pairs = [(top, 0x3F80), (low, tail), (1, rnd.choice([0x0001, 0x8001]))]
        got = one_row(DType.BF16, pairs)
        want = 0
        for p, q in pairs:
            spec = exact.SPECS["bf16"]
            want = exact.step(want, [(exact.decode(spec, p), exact.decode(spec, q))])
        assert got == want, (pairs, hex(got), hex(want))


def test_accumulate_is_an_fp32_add():
    values = np.array([0x00000000, 0x80000000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000], np.uint32)
    a, b = (x.reshape(-1) for x in np.meshgrid(values.view(np.float32), values.view(np.float32)))
    got = array.accumulate(a, b)
    assert bits(got) == bits(fp.add(a, b))
    for x, y, g in zip(bits(a), bits(b), bits(got), strict=True):
        want = exact.encode(
            exact.FP32, exact.total([exact.decode(exact.FP32, x), exact.decode(exact.FP32, y)])
        )
        assert g == want


def test_bad_arguments_are_named():
    w = np.zeros((8, 4), np.uint32)
    s = np.zeros((1, 4), np.uint8)
    with pytest.raises(ValueError, match="types must be of one class, not BF16 and FP16"):
        array.matmul(w, w, DType.BF16, DType.FP16)
    with pytest.raises(
        ValueError, match=r"operands must be \[K, M\] and \[K, N\], not \(8, 4\) and \(7, 4\)"
    ):
        array.matmul(w, w[:7], DType.BF16, DType.BF16)
    with pytest.raises(ValueError, match=r"s_scale must have shape \(1, 4\), not None"):
        array.matmul(w, w, DType.E4M3X4, DType.E4M3X4)
    with pytest.raises(ValueError, match=r"m_scale must have shape \(1, 4\), not \(2, 4\)"):
        array.matmul(w, w, DType.E4M3X4, DType.E4M3X4, s, np.zeros((2, 4), np.uint8))
    with pytest.raises(ValueError, match=r"types of a double row must be E4M3, E5M2, not BF16"):
        array.matmul(w, w, DType.BF16, DType.BF16, double=True)
    with pytest.raises(ValueError, match=r"s_scale must have shape None, not \(1, 4\)"):
        array.matmul(w, w, DType.BF16, DType.BF16, s, s)


def test_oracle_knows_binary32():
    """The oracle itself, against the machine's own conversion of doubles to FP32."""
    rnd = random.Random(SEED)
    for _ in range(300):
        x = rnd.uniform(-2, 2) * 2.0 ** rnd.randrange(-160, 127)
        number = exact.Number("finite", x < 0, abs(exact.Fraction(x)))
        assert exact.encode(exact.FP32, number) == struct.unpack("<I", struct.pack("<f", x))[0]
