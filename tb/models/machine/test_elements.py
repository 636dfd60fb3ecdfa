"""Functional model: the vector engine's instructions."""

import numpy as np
import pytest

from models import cast, fp
from models.access import AccessPattern, row
from models.formats import FLOATS, INTS, DType, dtype_bytes
from models.isa import AluOp, Space
from models.program import Program, ProgramError
from tb.models.machines import NANO, SEED, get, put, random_f32, run


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("dst", [*FLOATS, *INTS], ids=lambda d: d.name)
def test_tensor_copy_casts(dst, saturate):
    x = random_f32((8, 12), dst) * np.float32(300)
    x[0, :4] = [np.inf, -np.inf, np.nan, -0.0]
    x[1, :2] = [1e9, -1e9]
    p = Program(NANO)
    p.vector.tensor_copy(row(512, dst, 12), row(0, DType.FP32, 12), parts=8, saturate=saturate)
    core = run(p, lambda c: put(c, 0, x))
    got = get(core, 512, f"u{dtype_bytes(dst)}", (8, 12)).astype(np.uint32)
    # equal types copy bits, and have nothing to saturate
    want = x.view(np.uint32) if dst == DType.FP32 else cast.encode(dst, x, saturate=saturate)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("src", [*FLOATS, *INTS, DType.E8M0], ids=lambda d: d.name)
def test_tensor_copy_reads_every_type(src):
    kind = f"u{dtype_bytes(src)}"
    raw = np.random.default_rng([SEED, src]).integers(0, 1 << (8 * dtype_bytes(src)), (8, 20)).astype(kind)
    p = Program(NANO)
    ps = row(64, DType.BF16, 20, space=Space.PSUM)
    p.vector.tensor_copy(ps, row(256, src, 20), parts=8)
    core = run(p, lambda c: put(c, 256, raw))
    got = get(core, 64, "u2", (8, 20), space=Space.PSUM)
    values = cast.decode(src, raw.astype(np.uint32))
    same = raw if src == DType.BF16 else cast.encode(DType.BF16, values, saturate=False)
    assert np.array_equal(got.astype(np.uint32), same.astype(np.uint32))


@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_equal_types_copy_bits(dtype):
    size = dtype_bytes(dtype)
    raw = np.random.default_rng([SEED, dtype]).integers(0, 256, (8, 16 * size)).astype(np.uint8)
    p = Program(NANO)
    p.vector.tensor_copy(row(1024, dtype, 16), row(0, dtype, 16), parts=8, saturate=True)
    core = run(p, lambda c: put(c, 0, raw))
    assert np.array_equal(core.sbuf[:, 1024 : 1024 + 16 * size], raw)


def test_a17_strided_and_repeated_elements():
    p = Program(NANO)
    x = np.arange(128, dtype=np.uint8).reshape(8, 16)
    two = AccessPattern(0, DType.UINT8, ((0, 1), (0, 1), (0, 1), (2, 8)))
    p.vector.tensor_copy(row(100, DType.UINT8, 8), two, parts=8)
    p.vector.tensor_copy(row(200, DType.UINT8, 8), row(3, DType.UINT8, 8, stride=0), parts=8)
    p.vector.tensor_copy(row(300, DType.UINT8, 8), row(7, DType.UINT8, 8, stride=-1), parts=8)
    p.vector.tensor_copy(row(400, DType.UINT8, 8, stride=0), row(0, DType.UINT8, 8), parts=8)
    core = run(p, lambda c: put(c, 0, x))
    assert np.array_equal(core.sbuf[:, 100:108], x[:, 0:16:2])
    assert np.array_equal(core.sbuf[:, 200:208], np.repeat(x[:, 3:4], 8, axis=1))
    assert np.array_equal(core.sbuf[:, 300:308], x[:, 7::-1])
    # the last write to an address stays
    assert np.array_equal(core.sbuf[:, 400:402], np.stack([x[:, 7], np.zeros(8, np.uint8)], axis=1))


@pytest.mark.parametrize("op", list(AluOp), ids=lambda o: o.name)
def test_tensor_tensor(op):
    a, b = random_f32((6, 10), 1), random_f32((6, 10), 2)
    a[0, :3], b[0, :3] = [np.nan, -0.0, np.inf], [1, 0.0, -np.inf]
    p = Program(NANO)
    p.vector.tensor_tensor(
        row(512, DType.FP32, 10), row(0, DType.FP32, 10), row(128, DType.FP32, 10, part=2), op, parts=6
    )

    def prepare(core):
        put(core, 0, a)
        put(core, 128, b, part=2)

    core = run(p, prepare)
    got = get(core, 512, "u4", (8, 10))
    assert np.array_equal(got[:6], fp.alu(op, a, b).view(np.uint32))
    assert not got[6:].any()


@pytest.mark.parametrize("op0", list(AluOp), ids=lambda o: o.name)
@pytest.mark.parametrize("scalar", [False, True], ids=["immediate", "per-partition"])
def test_tensor_scalar(op0, scalar):
    x = random_f32((8, 9), op0)
    bias = random_f32((8, 1), 77)
    p = Program(NANO)
    operand = row(640, DType.FP32, 1) if scalar else -1.25
    p.vector.tensor_scalar(
        row(1024, DType.BF16, 9), row(0, DType.FP32, 9), op0, operand, AluOp.MAX, 0.0, parts=8, saturate=True
    )

    def prepare(core):
        put(core, 0, x)
        put(core, 640, bias)

    core = run(p, prepare)
    first = fp.alu(op0, x, np.broadcast_to(bias if scalar else np.float32(-1.25), x.shape))
    want = cast.encode(DType.BF16, fp.maximum(first, np.float32(0)), saturate=True)
    assert np.array_equal(get(core, 1024, "u2", (8, 9)).astype(np.uint32), want)


@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("reverse0", [False, True])
def test_scalar_tensor_tensor_and_reversed_operands(reverse0, reverse1):
    x, y = random_f32((8, 9), 3), random_f32((8, 9), 4)
    order = {"reverse0": reverse0, "reverse1": reverse1}
    src = row(0, DType.FP32, 9)
    p = Program(NANO)
    p.vector.scalar_tensor_tensor(
        row(1024, DType.FP32, 9), src, AluOp.SUB, 2.5, AluOp.IS_GT, row(128, DType.FP32, 9), parts=8, **order
    )
    p.vector.tensor_scalar(row(2048, DType.FP32, 9), src, AluOp.SUB, 2.5, AluOp.SUB, 0.75, parts=8, **order)

    def prepare(core):
        put(core, 0, x)
        put(core, 128, y)

    core = run(p, prepare)
    first = np.float32(2.5) - x if reverse0 else x - np.float32(2.5)
    want = (y > first if reverse1 else first > y).astype(np.float32)
    assert np.array_equal(get(core, 1024, "f4", (8, 9)), want)
    want = np.float32(0.75) - first if reverse1 else first - np.float32(0.75)
    assert np.array_equal(get(core, 2048, "f4", (8, 9)), want)


def test_empty_vector_access_does_nothing_and_completes_once():
    p = Program(NANO)
    done = p.semaphore("done")
    nothing = AccessPattern(0, DType.FP32, ((1, 3), (1, 0)))
    p.vector.tensor_copy(nothing, nothing, parts=8, update=done.add())
    p.vector.tensor_tensor(nothing, nothing, nothing, AluOp.ADD, parts=8, update=done.add())
    p.vector.tensor_scalar(nothing, nothing, AluOp.ADD, 1.0, parts=8, update=done.add())
    core = run(p)
    assert core.semaphores[done.index] == 3
    assert not core.sbuf.any()


def _reduced(op, x):
    """Written from the contract: four partials, each from the identity on, one element after the other."""
    out = np.empty(x.shape[:-1], dtype=np.float32)
    for at in np.ndindex(*out.shape):
        p = [np.array([fp.IDENTITY[op]], dtype=np.uint32).view(np.float32)] * 4
        for i, e in enumerate(x[at]):
            p[i % 4] = fp.alu(op, np.array([e]), p[i % 4])
        out[at] = fp.alu(op, fp.alu(op, p[0], p[1]), fp.alu(op, p[2], p[3]))[0]
    return out


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("op", list(fp.IDENTITY), ids=lambda o: o.name)
def test_tensor_reduce(op, negate):
    x = random_f32((8, 30), op + 40)
    x[0, :6] = [np.nan, -0.0, 0.0, np.inf, -np.inf, 1e-40]
    p = Program(NANO)
    # (3, 2, 5) and a repeat: one result for each of 3 places of 2 x 5 elements, read twice
    src = AccessPattern(0, DType.FP32, ((10, 3), (0, 2), (5, 2), (1, 5)))
    p.vector.tensor_reduce(
        row(512, DType.FP32, 6), AccessPattern(0, DType.FP32, ((5, 6), (1, 5))), op, parts=8, negate=negate
    )
    p.vector.tensor_reduce(row(640, DType.FP32, 3), src, op, parts=8, axes=3, negate=negate)
    core = run(p, lambda c: put(c, 0, x))
    sign = np.uint32(0x80000000 * negate)

    def want(values):
        bits = _reduced(op, values).view(np.uint32)
        return np.where(np.isnan(bits.view(np.float32)), np.uint32(0x7FC00000), bits ^ sign)

    assert np.array_equal(get(core, 512, "u4", (8, 6)), want(x.reshape(8, 6, 5)))
    twice = np.repeat(x.reshape(8, 3, 1, 10), 2, axis=2).reshape(8, 3, 20)
    assert np.array_equal(get(core, 640, "u4", (8, 3)), want(twice))


@pytest.mark.parametrize("op", list(fp.IDENTITY), ids=lambda o: o.name)
def test_reducing_one_element_gives_it(op):
    x = random_f32((8, 4), op + 60)
    p = Program(NANO)
    p.vector.tensor_reduce(
        row(512, DType.FP32, 4), AccessPattern(0, DType.FP32, ((1, 4), (0, 1))), op, parts=8
    )
    core = run(p, lambda c: put(c, 0, x))
    logical = op in (AluOp.LOGICAL_AND, AluOp.LOGICAL_OR, AluOp.LOGICAL_XOR)
    want = (x != 0).astype(np.float32) if logical else np.abs(x) if op == AluOp.ABS_MAX else x
    assert np.array_equal(get(core, 512, "f4", (8, 4)), want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dst", [DType.FP32, DType.BF16], ids=lambda d: d.name)
def test_tensor_copy_predicated(dst, reverse):
    x, old = random_f32((8, 9), 8), random_f32((8, 9), 9)
    chosen = np.random.default_rng(SEED).integers(0, 2, (8, 9)).astype(np.float32)
    chosen[0, :3] = [-0.0, np.nan, 1e-45]
    p = Program(NANO)
    target = row(512, dst, 9)
    p.vector.tensor_copy(target, row(256, DType.FP32, 9), parts=8)
    p.vector.tensor_copy_predicated(
        target, row(0, DType.FP32, 9), row(128, DType.FP32, 9), parts=6, reverse=reverse
    )

    def prepare(core):
        put(core, 0, x)
        put(core, 128, chosen)
        put(core, 256, old)

    core = run(p, prepare)
    take = (chosen != 0) ^ reverse
    take[6:] = False
    new, kept = (cast.encode(dst, v, saturate=False) for v in (x, old))
    got = get(core, 512, f"u{dtype_bytes(dst)}", (8, 9)).astype(np.uint32)
    assert np.array_equal(got, np.where(take, new, kept))


def test_predicated_writes_to_one_place_keep_their_order():
    """The last chosen element stays, in each partition another one."""
    x = np.arange(24, dtype=np.uint8).reshape(8, 3) + 1
    chosen = np.array([[n & 1, n >> 1 & 1, n >> 2] for n in range(8)], dtype=np.uint8)
    p = Program(NANO)
    p.vector.tensor_copy_predicated(
        row(100, DType.UINT8, 3, stride=0), row(0, DType.UINT8, 3), row(50, DType.UINT8, 3), parts=8
    )

    def prepare(core):
        put(core, 0, x)
        put(core, 50, chosen)

    core = run(p, prepare)
    want = [max([0, *(v for v, c in zip(x[n], chosen[n], strict=True) if c)]) for n in range(8)]
    assert core.sbuf[:, 100].tolist() == want


@pytest.mark.parametrize(
    ("op0", "op1"), [(AluOp.MUL, AluOp.ADD), (AluOp.ADD, AluOp.BYPASS), (AluOp.SUB, AluOp.MAX)]
)
def test_tensor_tensor_scan(op0, op1):
    x, y = random_f32((8, 11), 12), random_f32((8, 11), 13)
    p = Program(NANO)
    p.vector.tensor_tensor_scan(
        row(512, DType.FP32, 11),
        row(0, DType.FP32, 11),
        row(128, DType.FP32, 11),
        op0,
        op1,
        parts=7,
        initial=-1.5,
    )

    def prepare(core):
        put(core, 0, x)
        put(core, 128, y)

    core = run(p, prepare)
    got = get(core, 512, "f4", (8, 11))
    state = np.full(8, -1.5, dtype=np.float32)
    for n in range(11):
        state = fp.alu(op1, fp.alu(op0, state, x[:, n]), y[:, n])
        assert np.array_equal(got[:7, n], state[:7])
    if op1 == AluOp.BYPASS:
        assert np.array_equal(
            got[:7], np.cumsum(np.c_[np.full((7, 1), -1.5, np.float32), x[:7]], axis=1)[:, 1:]
        )
    assert not got[7:].any()


def test_memset():
    p = Program(NANO)
    p.vector.memset(row(100, DType.BF16, 7), -1.5, parts=3)
    p.vector.memset(row(200, DType.INT8, 5), 1e9, parts=8)
    p.vector.memset(row(300, DType.E4M3, 4), np.inf, parts=8, saturate=True)
    core = run(p, lambda c: put(c, 0, np.full((8, 128), 0xAB, dtype=np.uint32)))
    assert np.array_equal(get(core, 100, "u2", (3, 7)), np.full((3, 7), 0xBFC0))
    assert np.array_equal(
        get(core, 100, "u2", (8, 7))[3:], np.tile([0xAB, 0, 0xAB, 0, 0xAB, 0, 0xAB], (5, 1))
    )
    assert np.array_equal(get(core, 200, "u1", (8, 5)), np.full((8, 5), 127))
    assert np.array_equal(get(core, 300, "u1", (8, 4)), np.full((8, 4), 0x7E))


def test_what_reductions_refuse():
    p = Program(NANO)
    src = AccessPattern(0, DType.FP32, ((5, 6), (1, 5)))
    with pytest.raises(ProgramError, match=r"op must be one of ADD, .* not SUB"):
        p.vector.tensor_reduce(row(512, DType.FP32, 6), src, AluOp.SUB, parts=8)
    with pytest.raises(ProgramError, match="axes must be from 1 to 4, not 5"):
        p.vector.tensor_reduce(row(512, DType.FP32, 6), src, AluOp.ADD, parts=8, axes=5)
    with pytest.raises(ProgramError, match="dst must have 6 elements, not 30"):
        p.vector.tensor_reduce(row(512, DType.FP32, 30), src, AluOp.ADD, parts=8)
    with pytest.raises(ProgramError, match="one element or more"):
        p.vector.tensor_reduce(
            row(512, DType.FP32, 6), AccessPattern(0, DType.FP32, ((5, 6), (1, 0))), AluOp.ADD, parts=8
        )
    with pytest.raises(ProgramError, match="not E8M0"):
        p.vector.memset(row(512, DType.E8M0, 6), 1.0, parts=8)
