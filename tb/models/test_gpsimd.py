"""GpSimd instructions on the functional model, against NumPy written out, and what they refuse."""

import numpy as np
import pytest

from models import cast
from models.access import AccessPattern, row
from models.encoding import Instruction
from models.formats import DType
from models.fp import COMPARISONS
from models.gpsimd import REDUCING, affine, compare_with_zero, tree
from models.isa import AluOp, ErrorCode, Opcode, Space
from models.program import Program
from tb.models.machines import NANO, get, put, random_f32, run, start

FP32, BF16, INT32, UINT16 = DType.FP32, DType.BF16, DType.INT32, DType.UINT16
P = NANO.partitions


def test_numbers_written_out():
    pattern = AccessPattern(5, FP32, ((100, 2), (-3, 3), (7, 2)))
    want = [
        [5 + 100 * a - 3 * b + 7 * c - 11 * p for a in range(2) for b in range(3) for c in range(2)]
        for p in range(4)
    ]
    assert affine(pattern, 4, -11).view(np.int32).tolist() == want


def test_numbers_wrap_at_32_bits():
    pattern = AccessPattern(0xFFFFFFFF, FP32, (((1 << 31) - 1, 3),))
    assert affine(pattern, 2, 1 << 31).tolist() == [
        [0xFFFFFFFF, 0x7FFFFFFE, 0xFFFFFFFD],
        [0x7FFFFFFF, 0xFFFFFFFE, 0x7FFFFFFD],
    ]


def test_iota():
    p = Program(NANO)
    p.gpsimd.iota(row(0, INT32, 6), ((16, 2), (1, 3)), parts=4, start=-2, multiplier=100)
    p.gpsimd.iota(row(64, DType.UINT8, 6), ((100, 6),), parts=P)
    # 2^24 + 1 has no FP32 code: through FP32 it is even, as bits it is itself
    p.gpsimd.iota(row(128, FP32, 2), ((1, 2),), parts=1, start=1 << 24)
    p.gpsimd.iota(row(192, DType.UINT32, 2), ((1, 2),), parts=1, start=1 << 24)
    p.gpsimd.iota(row(256, DType.FP16, 2), ((1, 2),), parts=1, start=-70000, saturate=True)
    core = run(p)
    place = np.array([-2, -1, 0, 14, 15, 16])
    assert np.array_equal(get(core, 0, "i4", (4, 6)), place + 100 * np.arange(4)[:, None])
    assert not core.sbuf[4:, :24].any()
    assert np.array_equal(get(core, 64, "u1", (P, 6)), np.tile([0, 100, 200, 255, 255, 255], (P, 1)))
    assert get(core, 128, "f4", (1, 2)).tolist() == [[1 << 24, 1 << 24]]
    assert get(core, 192, "u4", (1, 2)).tolist() == [[1 << 24, (1 << 24) + 1]]
    assert get(core, 256, "u2", (1, 2)).tolist() == [[0xFBFF, 0xFBFF]]


def test_a_register_moves_the_numbers():
    p = Program(NANO)
    with p.gpsimd.loop(3, step=8) as i:
        p.gpsimd.iota(row(0, INT32, 2), ((1, 2),), parts=1, dynamic={"dst": i, "src1": i})
    core = run(p)
    assert get(core, 0, "i4", (1, 6)).tolist() == [[0, 1, 8, 9, 16, 17]]


@pytest.mark.parametrize("op", COMPARISONS, ids=lambda o: o.name)
def test_affine_select(op):
    x = random_f32((P, 9), 1)
    p = Program(NANO)
    p.gpsimd.affine_select(
        row(256, FP32, 9), row(0, FP32, 9), op, ((-1, 9),), -7.0, parts=P - 1, start=1, multiplier=1
    )
    core = run(p, lambda core: put(core, 0, x))
    v = 1 + np.arange(P)[:, None] - np.arange(9)
    holds = {
        "IS_EQ": v == 0,
        "NOT_EQ": v != 0,
        "IS_GT": v > 0,
        "IS_GE": v >= 0,
        "IS_LT": v < 0,
        "IS_LE": v <= 0,
    }
    want = np.where(holds[op.name], x, np.float32(-7))
    want[P - 1] = 0
    assert np.array_equal(get(core, 256, "f4", (P, 9)), want)
    assert np.array_equal(compare_with_zero(op, v.astype(np.uint32)), holds[op.name])


def test_affine_select_casts_and_canonicalises():
    words = np.array([[0xFFC12345, 0x47800000, 0x3F800001]], dtype=np.uint32)
    p = Program(NANO)
    select = {"parts": 1, "start": 1, "saturate": True}
    p.gpsimd.affine_select(row(256, BF16, 3), row(0, FP32, 3), AluOp.IS_GE, ((0, 3),), 0.0, **select)
    p.gpsimd.affine_select(row(512, DType.FP16, 3), row(0, FP32, 3), AluOp.IS_LT, ((0, 3),), 1e9, **select)
    core = run(p, lambda core: put(core, 0, words))
    assert get(core, 256, "u2", (1, 3)).tolist() == [[0x7FC0, 0x4780, 0x3F80]]
    assert get(core, 512, "u2", (1, 3)).tolist() == [[0x7BFF] * 3]


@pytest.mark.parametrize(("kind", "dtype"), [("u2", UINT16), ("i4", INT32), ("u4", DType.UINT32)])
def test_local_gather(kind, dtype):
    x = random_f32((P, 12), 2)
    index = np.random.default_rng(3).integers(0, 12, (P, 20)).astype(kind)
    # elements are counted in walking order: the pattern turns the row around
    source = AccessPattern(44, FP32, ((-1, 12),))
    p = Program(NANO)
    p.gpsimd.local_gather(row(256, FP32, 20), source, row(128, dtype, 20), parts=P)
    p.gpsimd.local_gather(row(512, BF16, 20), source, row(128, dtype, 20), parts=2)

    def prepare(core):
        put(core, 0, x)
        put(core, 128, index)

    core = run(p, prepare)
    want = np.take_along_axis(x[:, ::-1], index.astype(np.int64), axis=1)
    assert np.array_equal(get(core, 256, "f4", (P, 20)), want)
    narrow = get(core, 512, "u2", (P, 20))
    assert np.array_equal(narrow[:2].astype(np.uint32), cast.encode(BF16, want[:2], saturate=False))
    assert not narrow[2:].any()


def test_gathers_of_equal_types_copy_bits():
    words = np.arange(P * 4, dtype=np.uint32).reshape(P, 4) * 0x01010101 + 0x7F812345
    p = Program(NANO)
    scale = row(0, DType.E4M3X4, 4)
    p.gpsimd.local_gather(row(256, DType.E4M3X4, 4), scale, row(64, UINT16, 4), parts=P)

    def prepare(core):
        put(core, 0, words)
        put(core, 64, np.tile(np.array([3, 3, 0, 1], dtype="u2"), (P, 1)))

    assert np.array_equal(get(run(p, prepare), 256, "u4", (P, 4)), words[:, [3, 3, 0, 1]])


@pytest.mark.parametrize("bad", [12, 0xFFFF, -1])
def test_an_index_beyond_the_source(bad):
    index = np.zeros((P, 20), dtype="i4")
    index[3, 5], index[1, 5], index[0, 9] = 999, bad, 777
    p = Program(NANO)
    p.gpsimd.nop()
    p.gpsimd.local_gather(row(256, FP32, 20), row(0, FP32, 12), row(128, INT32, 20), parts=P - 1)
    core = start(p, lambda core: put(core, 128, index))
    assert core.error is not None
    # element 5 before element 9, lane 1 before lane 3
    assert (core.error.code, core.error.index, core.error.addr) == (
        ErrorCode.INDEX_RANGE,
        1,
        bad & 0xFFFFFFFF,
    )
    assert core.error.engine == 4


def test_lanes_beyond_parts_need_no_indices():
    index = np.zeros((P, 4), dtype="u2")
    index[P - 1] = 9
    p = Program(NANO)
    p.gpsimd.local_gather(row(256, FP32, 4), row(0, FP32, 2), row(128, UINT16, 4), parts=P - 1)
    run(p, lambda core: put(core, 128, index))


@pytest.mark.parametrize("op", REDUCING, ids=lambda o: o.name)
@pytest.mark.parametrize("parts", [1, 3, P])
def test_partition_reduce(op, parts):
    x = random_f32((P, 5), 4)
    part = NANO.partitions // 4 * 2
    p = Program(NANO)
    p.gpsimd.partition_reduce(
        AccessPattern(256, FP32, ((1, 5),), part=part), row(0, FP32, 5), op, parts=parts
    )
    core = run(p, lambda core: put(core, 0, x))
    got = get(core, 256, "f4", (P, 5))
    simple = {AluOp.ADD: np.add, AluOp.MUL: np.multiply, AluOp.MAX: np.maximum, AluOp.MIN: np.minimum}
    start = {AluOp.ADD: -0.0, AluOp.MUL: 1.0, AluOp.MAX: -np.inf, AluOp.MIN: np.inf, AluOp.ABS_MAX: 0.0}[op]
    # the contract in NumPy: identities beyond `parts`, neighbours first
    level = list(np.where(np.arange(P)[:, None] < parts, x, np.float32(start)))
    if op == AluOp.ABS_MAX:
        level = [np.abs(row) for row in level]
    while len(level) > 1:
        level = [simple.get(op, np.maximum)(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    assert np.array_equal(got[part], level[0])
    others = [i for i in range(P) if i != part]
    assert not got[others].any()


def test_the_order_of_a_sum():
    """((0 + 1) + (2 + 3)) + (4 + identity): not the order of a running sum."""
    x = np.array([[1e8], [-1e8], [1.0], [1e-8], [-0.0]], dtype=np.float32)
    f = np.float32
    want = f(f(f(1e8) + f(-1e8)) + f(f(1.0) + f(1e-8))) + f(-0.0)
    assert tree(AluOp.ADD, x, 8)[0] == want == f(1.0)
    # one lane alone stays as it is, -0 too
    assert np.signbit(tree(AluOp.ADD, x[4:], 8)[0])


def test_empty_accesses_complete():
    p = Program(NANO)
    done = p.semaphore("done")
    none = row(0, FP32, 0)
    more = {"parts": P, "update": done.add()}
    p.gpsimd.iota(none, ((1, 0),), **more)
    p.gpsimd.affine_select(none, none, AluOp.IS_EQ, ((1, 0),), 0.0, **more)
    p.gpsimd.local_gather(none, row(0, FP32, 4), row(0, UINT16, 0), **more)
    p.gpsimd.partition_reduce(none, none, AluOp.ADD, **more)
    assert run(p).semaphores[0] == 4


def fields(**changes):
    return {"parts": 2} | changes


A, PS = row(0, FP32, 4), row(0, FP32, 4, space=Space.PSUM)
N = AccessPattern(0, FP32, ((1, 4),))


@pytest.mark.parametrize(
    ("opcode", "given", "aps"),
    [
        (Opcode.IOTA, fields(parts=0), {"dst": A, "src1": N}),
        (Opcode.IOTA, fields(parts=P + 1), {"dst": A, "src1": N}),
        (Opcode.IOTA, fields(flags=4), {"dst": A, "src1": N}),
        (Opcode.IOTA, fields(), {"dst": PS, "src1": N}),
        (Opcode.IOTA, fields(), {"dst": A, "src1": row(0, FP32, 3)}),
        (Opcode.IOTA, fields(), {"dst": A, "src1": PS}),
        (Opcode.IOTA, fields(), {"dst": A, "src1": row(0, INT32, 4)}),
        (Opcode.IOTA, fields(), {"dst": A, "src1": row(0, FP32, 4, part=P // 4)}),
        (Opcode.IOTA, fields(), {"dst": row(0, DType.E8M0, 4), "src1": N}),
        (Opcode.AFFINE_SELECT, fields(op0=AluOp.ADD), {"dst": A, "src0": A, "src1": N}),
        (Opcode.AFFINE_SELECT, fields(op0=AluOp.IS_EQ), {"dst": A, "src0": row(0, FP32, 3), "src1": N}),
        (Opcode.AFFINE_SELECT, fields(op0=AluOp.IS_EQ), {"dst": A, "src0": PS, "src1": N}),
        (Opcode.LOCAL_GATHER, fields(), {"dst": A, "src0": A, "src1": A}),
        (Opcode.LOCAL_GATHER, fields(), {"dst": A, "src0": A, "src1": row(0, UINT16, 3)}),
        (Opcode.LOCAL_GATHER, fields(), {"dst": A, "src0": row(0, FP32, 65535, stride=0), "src1": PS}),
        (
            Opcode.LOCAL_GATHER,
            fields(),
            {"dst": A, "src0": AccessPattern(0, FP32, ((0, 65535), (0, 2))), "src1": row(0, UINT16, 4)},
        ),
        (
            Opcode.LOCAL_GATHER,
            fields(),
            {"dst": A, "src0": row(0, DType.E4M3X4, 4), "src1": row(0, UINT16, 4)},
        ),
        (Opcode.PARTITION_REDUCE, fields(op0=AluOp.SUB), {"dst": A, "src0": A}),
        (Opcode.PARTITION_REDUCE, fields(op0=AluOp.LOGICAL_OR), {"dst": A, "src0": A}),
        (Opcode.PARTITION_REDUCE, fields(op0=AluOp.ADD), {"dst": PS, "src0": A}),
        (Opcode.PARTITION_REDUCE, fields(op0=AluOp.ADD), {"dst": A, "src0": row(0, FP32, 3)}),
    ],
)
def test_fields_that_are_not_allowed(opcode, given, aps):
    p = Program(NANO)
    p.gpsimd.instructions.append(Instruction(opcode, {k: int(v) for k, v in given.items()}, aps))
    core = start(p)
    assert core.error is not None
    assert core.error.code == ErrorCode.ILLEGAL_FIELD


def test_the_last_quarter_can_take_a_reduction_of_all_partitions():
    """dst is one partition: only that one must be there."""
    p = Program(NANO)
    dst = AccessPattern(256, FP32, ((1, 4),), part=3 * P // 4)
    p.gpsimd.partition_reduce(dst, A, AluOp.MAX, parts=P)
    run(p)
