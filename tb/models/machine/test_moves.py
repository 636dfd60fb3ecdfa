"""Functional model: shuffles inside quadrants and transposed blocks, against plain Python."""

from dataclasses import replace

import numpy as np
import pytest

from models import cast, encoding
from models.access import AccessPattern, row
from models.config import from_dict
from models.encoding import Instruction
from models.formats import DType, dtype_bytes
from models.isa import ErrorCode, Flag, Opcode, Space
from models.moves import STAYS, mask_entries, mask_field
from models.program import Program, ProgramError
from tb.models.machines import NANO, get, put, run, start

WIDE = from_dict(NANO.to_dict() | {"name": "wide", "partitions": 64})
"""Two quadrants of 32."""
KINDS = {1: "u1", 2: "u2", 4: "u4"}
MASK = [STAYS, *range(1, 8), 0, 0, 31, 30, *range(12, 30), STAYS, 5]


def bits(shape, width):
    return np.random.default_rng(shape).integers(0, 1 << 8 * width, shape, dtype=KINDS[width])


def shuffled(before, x, mask):
    """Element by element."""
    out = before.copy()
    for p in range(x.shape[0]):
        entry = mask[p % len(mask)]
        if entry != STAYS:
            out[p] = x[p // len(mask) * len(mask) + entry]
    return out


def transposed(x, q):
    """Element by element."""
    out = np.empty_like(x)
    for p in range(x.shape[0]):
        for f in range(x.shape[1]):
            out[p, f] = x[p // q * q + f % q, f // q * q + p % q]
    return out


@pytest.mark.parametrize("dtype", [DType.FP32, DType.BF16, DType.UINT8, DType.E8M0, DType.E4M3X4, DType.E4M3])
def test_bits_move(dtype):
    width, n = dtype_bytes(dtype), 64
    x, before = bits((64, n), width), bits((64, n + 1), width)[:, 1:]
    p = Program(WIDE)
    p.vector.stream_shuffle(row(512, dtype, n), row(0, dtype, n), MASK, parts=64)
    p.vector.lane_transpose(row(1024, dtype, n), row(0, dtype, n), parts=64)

    def prepare(core):
        put(core, 0, x)
        put(core, 512, before)

    core = run(p, prepare)
    assert np.array_equal(get(core, 512, KINDS[width], (64, n)), shuffled(before, x, MASK))
    assert np.array_equal(get(core, 1024, KINDS[width], (64, n)), transposed(x, 32))


def test_from_one_quadrant_to_another_and_back_in_place():
    x = bits((32, 32), 2)
    p = Program(WIDE)
    here, there = row(64, DType.BF16, 32), replace(row(64, DType.BF16, 32, space=Space.PSUM), part=32)
    back = [MASK.index(n) if n in MASK else 0 for n in range(32)]
    p.vector.lane_transpose(there, here, parts=32)
    p.vector.stream_shuffle(there, there, back, parts=32)
    p.vector.lane_transpose(there, there, parts=32)
    core = run(p, lambda core: put(core, 64, x))
    assert np.array_equal(np.ascontiguousarray(core.psum[32:, 64:128]).view("u2"), transposed(x, 32)[back].T)


def test_casts():
    x = np.random.default_rng(5).standard_normal((8, 16)).astype(np.float32) * np.float32(1e5)
    p = Program(NANO)
    p.vector.lane_transpose(row(256, DType.FP16, 16), row(0, DType.FP32, 16), parts=8)
    p.vector.stream_shuffle(
        row(512, DType.FP16, 16), row(0, DType.FP32, 16), [*range(7, -1, -1)], parts=8, saturate=True
    )
    core = run(p, lambda core: put(core, 0, x))
    want = cast.encode(DType.FP16, transposed(x, 8), saturate=False)
    assert np.array_equal(get(core, 256, "u2", (8, 16)), want)
    want = cast.encode(DType.FP16, x[::-1], saturate=True)
    assert np.array_equal(get(core, 512, "u2", (8, 16)), want)


def test_a_transposition_by_patterns():
    """Blocks in any walking order: a 16 x 16 matrix as four blocks of 8, those beside the diagonal exchanged."""
    x = bits((8, 16), 4)
    p = Program(NANO)
    swapped = AccessPattern(128 + 4 * 8, DType.FP32, ((-8, 2), (1, 8)))
    p.vector.lane_transpose(swapped, row(0, DType.FP32, 16), parts=8)
    core = run(p, lambda core: put(core, 0, x))
    assert np.array_equal(get(core, 128, "u4", (8, 16)), np.concatenate([x[:, 8:].T, x[:, :8].T], axis=1))


def test_nothing_to_move():
    p, none = Program(NANO), row(0, DType.FP32, 0)
    p.vector.lane_transpose(none, none, parts=8)
    p.vector.stream_shuffle(none, none, [*range(8)], parts=8)
    p.vector.stream_shuffle(row(0, DType.FP32, 8), row(64, DType.FP32, 8), [STAYS] * 8, parts=8)
    core = run(p, lambda core: put(core, 64, bits((8, 8), 4)))
    assert not core.sbuf[:, :64].any()


def test_a_mask_is_what_the_word_says():
    mask = [3, STAYS, *range(2, 8)]
    p = Program(NANO)
    p.vector.stream_shuffle(row(0, DType.FP32, 8), row(64, DType.FP32, 8), mask, parts=8)
    word = encoding.encode(p.vector.instructions[0])
    assert list(word[96:]) == mask + [0] * 24
    assert mask_entries(mask_field(mask), 8) == mask


def _word(opcode, fields, dst, src):
    p = Program(NANO)
    p.vector.instructions.append(Instruction(opcode, fields, {"dst": dst, "src0": src}))
    return p


SHUFFLE = {"parts": 8, "mask": mask_field(range(8))}


@pytest.mark.parametrize(
    ("opcode", "fields", "count", "dtype"),
    [
        (Opcode.STREAM_SHUFFLE, SHUFFLE | {"parts": 4}, 8, DType.FP32),
        (Opcode.STREAM_SHUFFLE, SHUFFLE | {"mask": mask_field([0, 1, 8, *range(3, 8)])}, 8, DType.FP32),
        (Opcode.STREAM_SHUFFLE, SHUFFLE | {"mask": mask_field([*range(7), 254])}, 8, DType.FP32),
        (Opcode.STREAM_SHUFFLE, SHUFFLE | {"flags": int(Flag.REVERSE0)}, 8, DType.FP32),
        (Opcode.STREAM_SHUFFLE, SHUFFLE, 7, DType.FP32),
        (Opcode.STREAM_SHUFFLE, SHUFFLE, 8, DType.E8M0),
        (Opcode.LANE_TRANSPOSE, {"parts": 7}, 8, DType.FP32),
        (Opcode.LANE_TRANSPOSE, {"parts": 8}, 16, DType.FP32),
        (Opcode.LANE_TRANSPOSE, {"parts": 8, "flags": int(Flag.ACCUMULATE)}, 8, DType.FP32),
    ],
)
def test_illegal_fields(opcode, fields, count, dtype):
    p = _word(opcode, fields, row(512, dtype, count), row(0, DType.FP32, 8))
    core = start(p)
    assert core.error.code == ErrorCode.ILLEGAL_FIELD
    assert not core.sbuf.any()


def test_a_transposition_of_part_of_a_block():
    assert start(_word(Opcode.LANE_TRANSPOSE, {"parts": 8}, row(512, DType.FP32, 12), row(0, DType.FP32, 12))).error.code == ErrorCode.ILLEGAL_FIELD  # fmt: skip


X, Y = row(0, DType.FP32, 8), row(512, DType.FP32, 8)


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda v: v.stream_shuffle(Y, X, [*range(8)], parts=4), "parts must be a multiple of 8, not 4"),
        (lambda v: v.stream_shuffle(Y, X, [*range(7)], parts=8), "mask must have 8 entries, not 7"),
        (
            lambda v: v.stream_shuffle(Y, X, [*range(7), 8], parts=8),
            r"mask\[7\] must be from 0 to 7, or 255, not 8",
        ),
        (
            lambda v: v.stream_shuffle(Y, X, [-1, *range(7)], parts=8),
            r"mask\[0\] must be from 0 to 7, or 255, not -1",
        ),
        (
            lambda v: v.stream_shuffle(row(512, DType.FP32, 7), X, [*range(8)], parts=8),
            "src0 must have dst's 7 elements, not 8",
        ),
        (lambda v: v.lane_transpose(Y, X, parts=7), "parts must be a multiple of 8, not 7"),
        (
            lambda v: v.lane_transpose(row(512, DType.FP32, 12), row(0, DType.FP32, 12), parts=8),
            "src0 must have a multiple of 8 elements, not 12",
        ),
        (
            lambda v: v.lane_transpose(row(512, DType.E8M0, 8), X, parts=8),
            "dst.dtype must be a float or integer type, not E8M0",
        ),
    ],
)
def test_the_builder_refuses(emit, message):
    p = Program(NANO)
    with pytest.raises(ProgramError, match=message):
        emit(p.vector)
    assert not p.vector.instructions
