"""Functional model: the eight largest elements, where values stand, and their replacement, against plain Python."""

import numpy as np
import pytest

from models import cast
from models.access import AccessPattern, row
from models.formats import DType
from models.isa import ErrorCode, Flag, Opcode, Space
from models.program import Program, ProgramError
from models.ranking import EIGHT, MOST_RANKED, largest, matches
from tb.models.machines import NANO, get, put, random_f32, run, start

N = 29
FP32 = DType.FP32
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0, 1.0], dtype=np.float32)


def rows(addr, count=N, dtype=FP32):
    return row(addr, dtype, count)


def descending(x):
    """The eight largest of a row in Python's order: NaN first, +0 before -0."""
    return sorted(x.tolist(), key=lambda v: (np.isnan(v), v, not np.signbit(v)), reverse=True)[:EIGHT]


def places(x, values):
    """Places of values, one by one; None for one that is missing."""
    codes, taken, out = x.view(np.uint32).tolist(), set(), []
    for value in values.view(np.uint32).tolist():
        here = [n for n, code in enumerate(codes) if code == value and n not in taken]
        out.append(here[0] if here else None)
        taken.update(here[:1])
    return out


def test_largest_with_duplicates_zeros_infinities_and_nan():
    random = np.random.default_rng(1)
    x = np.concatenate([random_f32((6, 9), 2), np.tile(SPECIAL, (6, 1))], axis=1)
    x = random.permuted(x, axis=1)
    for mine, theirs in zip(largest(x), x, strict=True):
        want = np.array(descending(theirs), dtype=np.float32)
        assert np.array_equal(mine.view(np.uint32), cast.canonical(want).view(np.uint32))
    exactly = largest(np.tile(SPECIAL, (1, 1)))[0]
    assert exactly[1:].tolist() == [np.inf, 1, 1, 1, 0, 0, -np.inf]
    assert np.isnan(exactly[0])
    assert np.signbit(exactly[5:7]).tolist() == [False, True]


def test_each_value_takes_its_next_place():
    x = np.array([[3, 5, 3, -0.0, 5, 3, 7, np.nan, 0]], dtype=np.float32)
    values = np.array([[3, 5, 3, 0, -0.0, 3, 3, np.nan]], dtype=np.float32)
    assert matches(x, values).tolist() == [[0, 1, 2, 8, 3, 5, -1, 7]]


def test_top_sixteen_in_five_instructions():
    x = np.concatenate([random_f32((8, N - 4), 3), random_f32((8, 2), 4).repeat(2, axis=1)], axis=1)
    p = Program(NANO)
    for k in range(2):
        best = rows(512 + 32 * k, EIGHT)
        p.vector.max8(best, rows(0), parts=8)
        p.vector.find_index8(rows(640 + 32 * k, EIGHT, DType.UINT32), rows(256), best, parts=8)
        p.vector.match_replace8(rows(0), rows(0), best, float("-inf"), parts=8)

    def prepare(core):
        put(core, 0, x)
        put(core, 256, x)

    core = run(p, prepare)
    want = -np.sort(-x, axis=1)
    assert np.array_equal(get(core, 512, "f4", (8, 16)), want[:, :16])
    index = get(core, 640, "u4", (8, 16))
    for mine, theirs, values in zip(index, x, want, strict=True):
        assert mine[:EIGHT].tolist() == places(theirs, values[:EIGHT])
        assert theirs[mine[EIGHT:]].tolist() == values[EIGHT:16].tolist()
    left = get(core, 0, "f4", (8, N))
    assert np.array_equal(-np.sort(-left, axis=1)[:, : N - 16], want[:, 16:])


@pytest.mark.parametrize(
    ("dtype", "kind", "missing"),
    [(DType.UINT16, "u2", 0xFFFF), (DType.UINT32, "u4", 0xFFFFFFFF), (DType.INT32, "i4", 0x7FFFFFFF)],
)
def test_numbers_and_missing_values(dtype, kind, missing):
    x = random_f32((8, N), 5)
    values = np.concatenate([x[:, [20, 4, 4]], random_f32((8, 5), 6) + np.float32(1000)], axis=1)
    p = Program(NANO)
    p.vector.find_index8(rows(1024, EIGHT, dtype), rows(0), rows(512, EIGHT), parts=7, start=100)
    p.vector.find_index8(rows(1152, EIGHT, DType.INT32), rows(0), rows(512, EIGHT), parts=7, start=-20)

    def prepare(core):
        put(core, 0, x)
        put(core, 512, values)

    core = run(p, prepare)
    got = get(core, 1024, kind, (8, EIGHT))
    assert (got[:7] == [120, 104, *[missing] * 6]).all()
    assert not got[7].any()
    assert (get(core, 1152, "i4", (7, EIGHT))[:, :2] == [0, -16]).all()


def test_replacement_is_cast():
    x = np.tile(np.arange(N, dtype=np.float32), (8, 1))
    p = Program(NANO)
    p.vector.match_replace8(rows(1024, N, DType.E4M3), rows(0), rows(512, EIGHT), 1e9, parts=8, saturate=True)
    p.vector.match_replace8(rows(1100, N, DType.INT8), rows(0), rows(512, EIGHT), float("nan"), parts=8)

    def prepare(core):
        put(core, 0, x)
        put(core, 512, x[:, ::3][:, :EIGHT])

    core = run(p, prepare)
    at = np.isin(np.arange(N), np.arange(0, 24, 3))
    want = cast.encode(DType.E4M3, np.where(at, np.float32(1e9), x[0]), saturate=True)
    assert np.array_equal(get(core, 1024, "u1", (1, N))[0], want)
    assert np.array_equal(get(core, 1100, "i1", (1, N))[0], np.where(at, 0, np.arange(N)))


def test_values_of_another_type_and_memory():
    x = np.tile(np.arange(N, dtype=np.float32), (8, 1))
    p = Program(NANO)
    values = row(0, DType.INT8, EIGHT, space=Space.PSUM)
    p.vector.find_index8(rows(1024, EIGHT, DType.INT32), rows(0), values, parts=8)

    def prepare(core):
        put(core, 0, x)
        put(core, 0, np.tile(np.arange(9, 1, -1, dtype=np.int8), (8, 1)), space=Space.PSUM)

    assert (get(run(p, prepare), 1024, "i4", (8, EIGHT)) == np.arange(9, 1, -1)).all()


def emit_raw(stream, opcode, dst, src, values=None, fields=None):
    """One of these instructions past the builder's checks."""
    aps = {"dst": dst, "src0": src}
    stream.emit(opcode, {"parts": 1} | (fields or {}), aps if values is None else aps | {"src1": values})


@pytest.mark.parametrize(
    ("opcode", "dst", "src", "values", "flags"),
    [
        (Opcode.MAX8, rows(512, 8), rows(0, 7), None, 0),
        (Opcode.MAX8, rows(512, 7), rows(0), None, 0),
        (Opcode.MAX8, rows(512, 8), AccessPattern(0, FP32, ((0, 2), (0, MOST_RANKED))), None, 0),
        (Opcode.MAX8, rows(512, 8), rows(0), None, int(Flag.NEGATE)),
        (Opcode.MAX8, rows(512, 8, DType.E8M0), rows(0), None, 0),
        (Opcode.MAX8, rows(512, 8), rows(0, 8, DType.E4M3X4), None, 0),
        (Opcode.FIND_INDEX8, rows(512, 8), rows(0), rows(1024, 8), 0),
        (Opcode.FIND_INDEX8, rows(512, 8, DType.INT32), rows(0), rows(1024, 9), 0),
        (Opcode.MATCH_REPLACE8, rows(512, 8), rows(0), rows(1024, 8), 0),
        (Opcode.MATCH_REPLACE8, rows(512), rows(0), rows(1024, 8, DType.E2M1X4), 0),
    ],
)
def test_illegal_fields(opcode, dst, src, values, flags):
    p = Program(NANO)
    emit_raw(p.vector, opcode, dst, src, values, {"flags": flags} if flags else None)
    core = start(p)
    assert core.error is not None
    assert (core.error.code, core.error.index) == (ErrorCode.ILLEGAL_FIELD, 0)


def test_sixteen_thousand_elements_are_legal():
    p = Program(NANO)
    p.vector.max8(rows(512, 8), AccessPattern(0, FP32, ((0, MOST_RANKED // 16), (1, 16))), parts=2)
    core = run(p, lambda core: put(core, 0, random_f32((2, 16), 7)))
    best = get(core, 0, "f4", (2, 16)).max(axis=1, keepdims=True)
    assert (get(core, 512, "f4", (2, 8)) == best).all()


def test_addresses_out_of_range():
    p = Program(NANO)
    emit_raw(p.vector, Opcode.MAX8, rows(512, 8), rows(NANO.sbuf.bytes_per_partition - 16, 8))
    core = start(p)
    assert core.error is not None
    assert core.error.code == ErrorCode.SBUF_RANGE
    assert core.error.addr == NANO.sbuf.bytes_per_partition


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda v: v.max8(rows(512, 8), rows(0, 7), parts=1),
            "src0 must have from 8 to 16384 elements, not 7",
        ),
        (lambda v: v.max8(rows(512, 9), rows(0), parts=1), "dst must be 8 elements a partition, not 9"),
        (
            lambda v: v.find_index8(rows(512, 8), rows(0), rows(256, 8), parts=1),
            "one of UINT16, UINT32, INT32, not FP32",
        ),
        (
            lambda v: v.find_index8(rows(512, 8, DType.INT32), rows(0), rows(256, 4), parts=1),
            "values must be 8 elements a partition, not 4",
        ),
        (
            lambda v: v.find_index8(rows(512, 8, DType.INT32), rows(0), rows(256, 8), parts=1, start=1 << 31),
            "start must fit in 32 bits",
        ),
        (
            lambda v: v.match_replace8(rows(512, 8), rows(0), rows(256, 8), 0.0, parts=1),
            "dst must have src0's 29 elements, not 8",
        ),
    ],
)
def test_builder_refuses(build, text):
    with pytest.raises(ProgramError, match=text):
        build(Program(NANO).vector)
