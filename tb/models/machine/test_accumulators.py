"""Functional model: accumulators, division, exp and selections of the vector engine, against NumPy."""

import numpy as np
import pytest

from models import cast, fp
from models.access import AccessPattern, row
from models.exponential import exponential
from models.formats import DType
from models.isa import AluOp, ErrorCode, Flag, Opcode
from models.program import Program, ProgramError
from tb.models.machines import NANO, get, put, random_f32, run, start

N = 11


def rows(addr, count=N, dtype=DType.FP32):
    return row(addr, dtype, count)


def partials(x, op=fp.add, start=-0.0):
    """Four interleaved running values, in plain Python order."""
    sums = [np.full(x.shape[0], start, dtype=np.float32) for _ in range(4)]
    for n in range(x.shape[1]):
        sums[n % 4] = op(x[:, n], sums[n % 4])
    return sums


def combined(sums, op=fp.add):
    return op(op(sums[0], sums[1]), op(sums[2], sums[3]))


def test_sum_of_products_over_two_instructions():
    a, b = random_f32((8, 2 * N), 1), random_f32((8, 2 * N), 2)
    p = Program(NANO)
    for k in range(2):
        at = 4 * N * k
        p.vector.tensor_tensor(
            rows(512 + at), rows(at), rows(128 + at), AluOp.MUL, parts=7, accumulate=AluOp.ADD, fresh=k == 0
        )
    p.vector.read_accumulator(rows(1024, 1), AluOp.ADD, parts=8)
    p.vector.read_accumulator(rows(1028, 1), AluOp.ADD, parts=8, negate=True)

    def prepare(core):
        put(core, 0, a)
        put(core, 128, b)

    core = run(p, prepare)
    product = fp.mul(a, b)
    assert np.array_equal(get(core, 512, "f4", (7, 2 * N)), product[:7])
    # each instruction begins with partial 0
    one, two = partials(product[:, :N]), product[:, N:]
    for n in range(N):
        one[n % 4] = fp.add(two[:, n], one[n % 4])
    got = get(core, 1024, "f4", (8, 2))
    assert np.array_equal(got[:7, 0], combined(one)[:7])
    assert np.array_equal(got[:7, 1], -combined(one)[:7])
    # what no instruction used holds what reset left
    assert got[7].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("op", [AluOp.MAX, AluOp.MIN, AluOp.ABS_MAX, AluOp.MUL])
def test_reductions_beside_a_scalar_operation(op):
    x, s = random_f32((8, N), 3), random_f32((8, 1), 4)
    p = Program(NANO)
    p.vector.tensor_scalar(rows(512), rows(0), AluOp.SUB, rows(256, 1), parts=8, accumulate=op, fresh=True)
    p.vector.read_accumulator(rows(1024, 1), op, parts=8)

    def prepare(core):
        put(core, 0, x)
        put(core, 256, s)

    core = run(p, prepare)
    value = fp.sub(x, s)
    assert np.array_equal(get(core, 512, "f4", (8, N)), value)
    assert np.array_equal(get(core, 1024, "f4", (8, 1))[:, 0], fp.reduce(op, value))


def test_softmax_in_four_instructions():
    x = random_f32((8, N), 5) * np.float32(20)
    # A11: single -inf are shares of 0, a row of nothing else is NaN, and the largest number takes all
    x[0] = [-np.inf, 0, 0, *[-np.inf] * (N - 3)]
    x[1] = [3e38, -3e38, *[0] * (N - 2)]
    x[2] = -np.inf
    x[3] = -7.25
    p = Program(NANO)
    p.vector.tensor_reduce(rows(256, 1), rows(0), AluOp.MAX, parts=8)
    p.vector.exponential(
        rows(512), rows(0), AluOp.SUB, rows(256, 1), parts=8, accumulate=AluOp.ADD, fresh=True
    )
    p.vector.read_accumulator(rows(260, 1), AluOp.ADD, parts=8)
    p.vector.tensor_scalar(rows(768), rows(512), AluOp.DIVIDE, rows(260, 1), parts=8)
    core = run(p, lambda c: put(c, 0, x))
    e = exponential(fp.sub(x, x.max(axis=1, keepdims=True)))
    want = fp.divide(e, combined(partials(e))[:, None])
    got = get(core, 768, "f4", (8, N))
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
    assert got[0].tolist() == [0, 0.5, 0.5, *[0] * (N - 3)]
    assert got[1].tolist() == [1, *[0] * (N - 1)]
    assert np.isnan(got[2]).all()
    assert np.array_equal(got[3], np.full(N, np.float32(1) / np.float32(N)))


def test_reciprocal_is_ieee_division():
    x = random_f32((8, N), 6)
    x[0, :6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45]
    x[1, :3] = [3.4e38, -1e-38, 3.0]
    p = Program(NANO)
    p.vector.reciprocal(rows(512), rows(0), parts=8)
    core = run(p, lambda c: put(c, 0, x))
    with np.errstate(all="ignore"):
        want = cast.canonical(np.float32(1) / x)
    assert np.array_equal(get(core, 512, "u4", (8, N)), want.view(np.uint32))


@pytest.mark.parametrize("reverse", [False, True])
def test_select(reverse):
    x = random_f32((8, N), 7)
    mask = np.random.default_rng(8).integers(0, 2, (8, N)).astype(np.uint8)
    p = Program(NANO)
    p.vector.select(
        rows(512, dtype=DType.BF16),
        rows(0),
        rows(128, dtype=DType.UINT8),
        -2.5,
        parts=8,
        reverse=reverse,
        accumulate=AluOp.MAX,
        fresh=True,
    )
    p.vector.read_accumulator(rows(1024, 1), AluOp.MAX, parts=8)

    def prepare(core):
        put(core, 0, x)
        put(core, 128, mask)

    core = run(p, prepare)
    want = np.where((mask == 0) == reverse, x, np.float32(-2.5))
    got = get(core, 512, "u2", (8, N)).astype(np.uint32)
    assert np.array_equal(got, cast.encode(DType.BF16, want, saturate=False))
    assert np.array_equal(get(core, 1024, "f4", (8, 1))[:, 0], want.max(axis=1))


def test_range_select_masks_what_a_query_may_not_see():
    x = random_f32((8, N), 9)
    bounds = np.stack([np.arange(8) - 2.5, np.arange(8) + 2.0], axis=1).astype(np.float32)
    p = Program(NANO)
    p.vector.range_select(
        rows(512),
        rows(0),
        rows(256, 2),
        AluOp.IS_GE,
        AluOp.IS_LE,
        -np.inf,
        parts=8,
        start=-2,
        accumulate=True,
        fresh=True,
    )
    p.vector.read_accumulator(rows(1024, 1), AluOp.MAX, parts=8)

    def prepare(core):
        put(core, 0, x)
        put(core, 256, bounds)

    core = run(p, prepare)
    i = np.arange(N) - 2
    want = np.where((i >= bounds[:, :1]) & (i <= bounds[:, 1:]), x, np.float32(-np.inf))
    assert np.array_equal(get(core, 512, "f4", (8, N)), want)
    assert np.array_equal(get(core, 1024, "f4", (8, 1))[:, 0], want.max(axis=1))


def test_range_select_counts_across_the_largest_number():
    p = Program(NANO)
    p.vector.range_select(
        rows(512, 4), rows(0, 4), rows(256, 2), AluOp.IS_GE, AluOp.IS_GE, 0.0, parts=8, start=(1 << 31) - 2
    )

    def prepare(core):
        put(core, 0, np.ones((8, 4), dtype=np.float32))
        put(core, 256, np.full((8, 2), 2.0**31, dtype=np.float32))

    core = run(p, prepare)
    # 2^31 - 2 and 2^31 - 1 round to 2^31; then numbers are negative
    assert get(core, 512, "f4", (1, 4)).tolist() == [[1.0, 1.0, 0.0, 0.0]]


def test_what_the_builder_refuses():
    v = Program(NANO).vector
    cases = [
        (lambda: v.tensor_tensor(rows(512), rows(0), rows(0), AluOp.ADD, parts=8, fresh=True), "fresh needs"),
        (
            lambda: v.tensor_tensor(rows(512), rows(0), rows(0), AluOp.ADD, parts=8, accumulate=AluOp.SUB),
            "accumulate must be one of ADD, .* not SUB",
        ),
        (
            lambda: v.tensor_scalar(
                rows(512), rows(0), AluOp.ADD, 1.0, AluOp.MUL, 2.0, parts=8, accumulate=AluOp.ADD
            ),
            "op1 must be BYPASS with accumulate, not MUL",
        ),
        (lambda: v.read_accumulator(rows(512), AluOp.ADD, parts=8), "one element a partition, not 11"),
        (lambda: v.read_accumulator(rows(512, 1), AluOp.IS_EQ, parts=8), "op must be one of ADD"),
        (
            lambda: v.range_select(rows(512), rows(0), rows(256, 3), AluOp.IS_GE, AluOp.IS_GE, 0.0, parts=8),
            "bounds must be two FP32 words a partition, not 3 of FP32",
        ),
        (
            lambda: v.range_select(rows(512), rows(0), rows(256, 2), AluOp.ADD, AluOp.IS_GE, 0.0, parts=8),
            "compare0 must be one of IS_EQ, .* not ADD",
        ),
        (
            lambda: v.range_select(
                rows(512), rows(0), rows(256, 2), AluOp.IS_GE, AluOp.IS_GE, 0.0, parts=8, start=1 << 31
            ),
            "start must fit in 32 bits",
        ),
    ]
    for emit, text in cases:
        with pytest.raises(ProgramError, match=text):
            emit()


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        (Opcode.SCALAR_TENSOR_TENSOR, {"op0": AluOp.DIVIDE}),
        (Opcode.EXPONENTIAL, {"op0": AluOp.DIVIDE}),
        (Opcode.TENSOR_SCALAR, {"op1": AluOp.DIVIDE}),
        (Opcode.TENSOR_TENSOR, {"op1": AluOp.ADD}),
        (Opcode.TENSOR_TENSOR, {"flags": int(Flag.FRESH)}),
        (Opcode.TENSOR_TENSOR, {"op1": AluOp.IS_EQ, "flags": int(Flag.ACCUMULATE)}),
        (Opcode.TENSOR_SCALAR, {"op1": AluOp.ADD, "flags": int(Flag.ACCUMULATE | Flag.REVERSE1)}),
        (Opcode.SELECT, {"op1": AluOp.ADD}),
    ],
)
def test_illegal_operations(opcode, fields):
    p = Program(NANO)
    pattern = AccessPattern(0, DType.FP32, ((1, 4),))
    aps = {"dst": pattern, "src0": pattern}
    if opcode != Opcode.TENSOR_SCALAR and opcode != Opcode.EXPONENTIAL:
        aps["src1"] = pattern
    p.vector.emit(opcode, {"parts": 8} | {k: int(v) for k, v in fields.items()}, aps)
    core = start(p)
    assert core.error is not None
    assert core.error.code == ErrorCode.ILLEGAL_FIELD
