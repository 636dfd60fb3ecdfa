"""FP32 arithmetic: against exact rationals and NumPy's own operations, signs of zero, NaN, and maximum/minimum as IEEE 754-2019 has them."""

import operator

import numpy as np
import pytest

from models import fp
from models.isa import AluOp
from tb.models import exact

SEED = 2718
NAN = 0x7FC00000
CORNERS = [
    0x00000000,
    0x00000001,
    0x007FFFFF,
    0x00800000,
    0x33800000,
    0x3F7FFFFF,
    0x3F800000,
    0x3F800001,
    0x7F7FFFFF,
    0x7F800000,
    0x7F800001,
    0x7FC00000,
]
CORNERS += [c | 1 << 31 for c in CORNERS]


def f32(*codes: int) -> np.ndarray:
    return np.array(codes, dtype=np.uint32).view(np.float32)


def bits(values: np.ndarray) -> list[int]:
    return values.view(np.uint32).tolist()


def operands() -> tuple[np.ndarray, np.ndarray]:
    """All pairs of corner codes, random bits, and random pairs of near exponents."""
    corners = [x.reshape(-1) for x in np.meshgrid(CORNERS, CORNERS)]
    rng = np.random.default_rng(SEED)
    random = [rng.integers(0, 1 << 32, 20_000, dtype=np.uint32) for _ in range(2)]
    first = rng.integers(0x3F000000, 0x40000000, 20_000, dtype=np.uint32)
    second = first + rng.integers(-(1 << 25), 1 << 25, 20_000).astype(np.uint32)
    second |= rng.integers(0, 2, 20_000, dtype=np.uint32) << np.uint32(31)
    pairs = [(corners[0], corners[1]), (random[0], random[1]), (first, second)]
    a, b = (np.concatenate([p[i] for p in pairs]).astype(np.uint32).view(np.float32) for i in (0, 1))
    return a, b


@pytest.mark.parametrize(
    ("ours", "theirs"), [(fp.add, operator.add), (fp.sub, operator.sub), (fp.mul, operator.mul)]
)
def test_against_numpy(ours, theirs):
    a, b = operands()
    got = ours(a, b)
    with np.errstate(all="ignore"):
        want = theirs(a, b)
    nan = np.isnan(want)
    assert got.dtype == np.float32
    assert np.array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])
    assert set(bits(got[nan])) == {NAN}


def negated(x: exact.Number) -> exact.Number:
    return exact.Number(x.kind, not x.neg, x.mag)


@pytest.mark.parametrize("op", [AluOp.ADD, AluOp.SUB, AluOp.MUL], ids=lambda o: o.name.lower())
def test_against_rationals(op):
    a, b = (x[:: 1 + x.size // 3000] for x in operands())
    got = fp.alu(op, a, b)
    for x, y, g in zip(bits(a.copy()), bits(b.copy()), bits(got), strict=True):
        p, q = exact.decode(exact.FP32, x), exact.decode(exact.FP32, y)
        if op == AluOp.MUL:
            want = exact.product(p, q)
        else:
            want = exact.total([p, negated(q) if op == AluOp.SUB else q])
        assert g == exact.encode(exact.FP32, want), (op.name, hex(x), hex(y), hex(g))


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        (AluOp.MUL, 0x00000000, 0x998A3664, 0x80000000),
        (AluOp.SUB, 0x00000000, 0x00000000, 0x00000000),
        (AluOp.ADD, 0x80000000, 0x80000000, 0x80000000),
        (AluOp.ADD, 0x80000000, 0x00000000, 0x00000000),
        (AluOp.SUB, 0x80000000, 0x00000000, 0x80000000),
        (AluOp.SUB, 0x3F800000, 0x3F800000, 0x00000000),
        (AluOp.SUB, 0x7F800000, 0x7F800000, NAN),
        (AluOp.MUL, 0x7F800000, 0x80000000, NAN),
        (AluOp.MUL, 0x00000001, 0x3F000000, 0x00000000),
        (AluOp.MUL, 0x00000003, 0x3F000000, 0x00000002),
        (AluOp.ADD, 0xFFC00001, 0x3F800000, NAN),
        (AluOp.BYPASS, 0x80000000, 0x7FC00000, 0x80000000),
        (AluOp.BYPASS, 0xFF800001, 0x00000000, NAN),
    ],
)
def test_a14_signs_and_special_values(op, a, b, want):
    assert bits(fp.alu(op, f32(a), f32(b))) == [want]


def extreme(a: int, b: int, *, largest: bool) -> int:
    """IEEE 754-2019 maximum or minimum, by comparing exact values."""
    p, q = exact.decode(exact.FP32, a), exact.decode(exact.FP32, b)
    if "nan" in (p.kind, q.kind):
        return NAN

    def key(x: exact.Number) -> tuple[int, exact.Fraction, int]:
        return (0 if x.kind == "finite" else -1 if x.neg else 1, x.value, 0 if x.neg else 1)

    return a if (key(p) >= key(q)) == largest else b


@pytest.mark.parametrize("op", [AluOp.MAX, AluOp.MIN], ids=lambda o: o.name.lower())
def test_maximum_and_minimum(op):
    a, b = (x[:4000].copy() for x in operands())
    got = bits(fp.alu(op, a, b))
    assert got == [extreme(x, y, largest=op == AluOp.MAX) for x, y in zip(bits(a), bits(b), strict=True)]
    assert bits(fp.maximum(f32(0x80000000), f32(0))) == bits(fp.maximum(f32(0), f32(0x80000000))) == [0]
    assert bits(fp.minimum(f32(0x80000000), f32(0))) == bits(fp.minimum(f32(0), f32(0x80000000)))
    assert bits(fp.minimum(f32(0), f32(0x80000000))) == [0x80000000]


def test_operands_broadcast():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    for op in AluOp:
        assert fp.alu(op, a, np.broadcast_to(np.float32(2), a.shape)).shape == (2, 3)
    assert fp.maximum(a, np.float32(2)).tolist() == [[2, 2, 2], [3, 4, 5]]


def test_two_sum_and_round_to_odd():
    """The pair is the exact sum; rounding it to odd and then to FP32 equals rounding the exact sum once."""
    rng = np.random.default_rng(SEED)
    a = rng.standard_normal(3000) * np.exp2(rng.integers(-60, 60, 3000))
    b = rng.standard_normal(3000) * np.exp2(rng.integers(-60, 60, 3000))
    # ties of FP32 with a crumb that float64 cannot hold
    a[:500] = (1 + 2.0**-24) * np.exp2(rng.integers(-10, 10, 500))
    b[:500] = a[:500] * 2.0**-70 * rng.choice([-1, 1], 500)
    s, e = fp.two_sum(a, b)
    odd = fp.round_to_odd(s, e).astype(np.float32)
    for x, y, high, low, g in zip(a.tolist(), b.tolist(), s.tolist(), e.tolist(), bits(odd), strict=True):
        total = exact.Fraction(x) + exact.Fraction(y)
        assert exact.Fraction(high) + exact.Fraction(low) == total
        assert g == exact.encode(exact.FP32, exact.Number("finite", total < 0, abs(total)))


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        (AluOp.IS_EQ, 0.0, -0.0, 1),
        (AluOp.NOT_EQ, 0.0, -0.0, 0),
        (AluOp.IS_GT, 0.0, -0.0, 0),
        (AluOp.IS_GE, -0.0, 0.0, 1),
        (AluOp.IS_LT, -1.0, 1e-45, 1),
        (AluOp.IS_LE, np.inf, np.inf, 1),
        (AluOp.IS_EQ, np.nan, np.nan, 0),
        (AluOp.NOT_EQ, np.nan, np.nan, 1),
        (AluOp.IS_GE, np.nan, 1.0, 0),
        (AluOp.IS_LT, 1.0, np.nan, 0),
        (AluOp.ABS_MAX, -3.0, 2.0, 3),
        (AluOp.ABS_MAX, -np.inf, 2.0, np.inf),
        (AluOp.LOGICAL_AND, np.nan, -1.0, 1),
        (AluOp.LOGICAL_AND, -0.0, 1.0, 0),
        (AluOp.LOGICAL_OR, -0.0, 0.0, 0),
        (AluOp.LOGICAL_OR, -0.0, 1e-45, 1),
        (AluOp.LOGICAL_XOR, 2.0, -7.0, 0),
        (AluOp.LOGICAL_XOR, 0.0, np.nan, 1),
    ],
)
def test_comparisons_and_logic(op, a, b, want):
    got = fp.alu(op, np.array([a], dtype=np.float32), np.array([b], dtype=np.float32))
    assert got.dtype == np.float32
    assert got.view(np.uint32)[0] == np.float32(want).view(np.uint32)


@pytest.mark.parametrize("op", [AluOp.ADD, AluOp.MUL])
@pytest.mark.parametrize("n", [1, 4, 7, 8, 9, 40])
def test_sums_of_zeros_keep_their_sign(op, n):
    """Many elements at once give what one round after the other gives: signs of zeros too."""
    for values in ([-0.0], [0.0, -0.0], [-0.0, -0.0, -0.0, 0.0], [-1.0, -0.0, 1.0]):
        x = np.resize(np.array(values, dtype=np.float32), (3, n))
        at_once = np.full((3, fp.PARTIALS), fp.identity(op))
        one_by_one = at_once.copy()
        fp.accumulate(op, x, at_once)
        for k in range(n):
            lane = one_by_one[:, k % fp.PARTIALS]
            lane[...] = fp.alu(op, x[:, k], lane)
        assert np.array_equal(at_once.view(np.uint32), one_by_one.view(np.uint32))
