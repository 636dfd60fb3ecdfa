"""Functional model: XORWOW, what is filled with it, and dropout; against a generator in plain Python, and statistics."""

import math

import numpy as np
import pytest

from models import cast
from models.access import AccessPattern, row
from models.formats import FLOATS, DType
from models.isa import AluOp, ErrorCode, Flag, Opcode, StateOp
from models.program import Program, ProgramError
from models.random_stream import resolution
from models.xorwow import ALL, ROUNDS, START, STEP, WORDS, draw, seeded, threshold
from tb.models.machines import NANO, get, put, random_f32, run, start

FP32, UINT32 = DType.FP32, DType.UINT32
MASK = 0xFFFFFFFF


def step(state, *, seeding=False):
    """One step of a state as a list, in Python's integers; what it gives."""
    x, y, z, w, v, d = state
    t = x ^ x >> 2
    new = (v ^ v << 4 ^ t ^ t << 1) & MASK
    d = (d + STEP) & MASK
    out = (new + d) & MASK
    state[:] = [y, z, w, v, out if seeding else new, d]
    return out


def generator(seed, lane):
    state = [START[0] ^ seed, START[1] ^ lane, *START[2:]]
    for _ in range(ROUNDS):
        step(state, seeding=True)
    return state


def words(seed, lane, count):
    state = generator(seed, lane)
    return [step(state) for _ in range(count)]


def test_published_step():
    """Marsaglia's xorwow from the published state: x, y, z, w, v and d as START has them."""
    state = list(START)
    got = [step(state) for _ in range(5)]
    model = np.array([START], dtype=np.uint32)
    assert draw(model, 5)[0].tolist() == got
    assert model[0].tolist() == state


@pytest.mark.parametrize("seed", [0, 1, MASK, 0xDEADBEEF])
def test_a_seed_gives_each_lane_its_own_words(seed):
    p = Program(NANO)
    p.vector.seed_random(seed, parts=8)
    p.vector.random_bits(row(0, UINT32, 30), parts=8)
    got = get(run(p), 0, "u4", (8, 30))
    assert got.tolist() == [words(seed, lane, 30) for lane in range(8)]


def test_reset_is_seed_zero_and_words_go_on():
    """In walking order, one for each element, only of the lanes that take part."""
    p = Program(NANO)
    p.vector.random_bits(AccessPattern(4 * 4, UINT32, ((-1, 5),)), parts=3)
    p.vector.random_bits(row(64, DType.INT8, 4), parts=8)
    p.vector.random_bits(row(128, UINT32, 2), parts=8)
    core = run(p)
    want = [words(0, lane, 11) for lane in range(8)]
    backwards = get(core, 0, "u4", (8, 5))
    assert backwards[:3].tolist() == [w[4::-1] for w in want[:3]]
    for lane in range(8):
        first = 5 if lane < 3 else 0
        assert get(core, 64, "u1", (8, 4))[lane].tolist() == [w & 255 for w in want[lane][first : first + 4]]
        assert get(core, 128, "u4", (8, 2))[lane].tolist() == want[lane][first + 4 : first + 6]


def test_states_are_stored_and_loaded():
    """The same words come again after a load; a state that is stored stays."""
    p = Program(NANO)
    p.vector.random_bits(row(0, UINT32, 7), parts=8)
    p.vector.store_random_state(row(512, UINT32, WORDS), parts=8)
    p.vector.random_bits(row(64, UINT32, 9), parts=8)
    p.vector.seed_random(5, parts=4)
    p.vector.load_random_state(row(512, DType.INT32, WORDS), parts=6)
    p.vector.random_bits(row(128, UINT32, 9), parts=8)
    core = run(p)
    first, again = get(core, 64, "u4", (8, 9)), get(core, 128, "u4", (8, 9))
    assert (first[:6] == again[:6]).all()
    assert (first[6:] != again[6:]).all()
    assert get(core, 512, "u4", (8, WORDS))[0].tolist() != generator(0, 0)


def test_bits_words_and_lanes_are_alike():
    """Ones, bytes, correlations of lanes and of neighbours, of a half million words: each within four standard deviations."""
    lanes, count = 128, 4096
    w = draw(seeded(7, lanes), count)
    total = lanes * count
    ones = np.array([(w >> np.uint32(b) & np.uint32(1)).sum() for b in range(32)])
    assert (np.abs(ones - total / 2) < 4 * math.sqrt(total) / 2).all()
    for shift in (0, 8, 16, 24):
        hist = np.bincount((w >> np.uint32(shift) & np.uint32(255)).ravel(), minlength=256)
        chi = ((hist - total / 256) ** 2 / (total / 256)).sum()
        assert abs(chi - 255) < 4 * math.sqrt(2 * 255)
    u = (w / 2.0**32 - 0.5) * math.sqrt(12)
    assert abs(u.mean()) < 4 / math.sqrt(total)
    lane = (u[:-1] * u[1:]).mean(axis=1) * math.sqrt(count)
    assert np.abs(lane).max() < 4.5
    assert abs((u[:, :-1] * u[:, 1:]).mean()) < 4 / math.sqrt(total)
    # the linear part of four neighbours' states does not cancel
    states = seeded(7, lanes)[:, :5]
    assert (np.bitwise_xor.reduce(states.reshape(32, 4, 5), axis=1) != 0).all()


def test_every_bit_of_a_seed_reaches_every_bit_of_a_state():
    base = seeded(12345, 128)[:, :5]
    for bit in range(32):
        other = seeded(12345 ^ (1 << bit), 128)[:, :5]
        flips = np.unpackbits(np.ascontiguousarray(base ^ other).view(np.uint8), axis=1).mean(axis=0)
        assert (np.abs(flips - 0.5) < 5 * 0.5 / math.sqrt(128)).all()


@pytest.mark.parametrize("dtype", list(FLOATS), ids=lambda d: d.name)
@pytest.mark.parametrize("bounds", [(0, 1), (-1, 1), (100, 101), (0.1, 0.3), (-3, -2.5), (0, 448)])
def test_uniform_numbers_stay_inside(dtype, bounds):
    """Even the largest number that can be drawn is below the upper bound after its cast, where the type can tell the bounds apart."""
    low, high = (cast.decode(dtype, cast.encode(dtype, np.float32(b), saturate=True)) for b in bounds)
    if not low < high:
        with pytest.raises(ProgramError, match="finite distance apart"):
            Program(NANO).vector.random(row(0, dtype, 4), float(low), float(high), parts=1)
        return
    p = Program(NANO)
    p.vector.random(row(0, dtype, 800), float(low), float(high), parts=8)
    core = run(p)
    kind = {1: "u1", 2: "u2", 4: "u4"}[len(get(core, 0, "u1", (1, 1))[0]) * max(1, FLOATS[dtype].width // 8)]
    got = cast.decode(dtype, get(core, 0, kind, (8, 800)).astype(np.uint32)).astype(np.float64)
    assert got.min() >= low
    assert got.max() < high
    bits = resolution(dtype, float(low), float(high))
    if bits >= 4:
        spread = (high - low) / math.sqrt(12)
        assert abs(got.mean() - (low + high) / 2 + (high - low) / 2 ** (bits + 1)) < 5 * spread / 80


def test_resolution():
    """As many bits as the numbers between have: all of FP32's in [0, 1), fewer where they lie apart."""
    assert resolution(FP32, 0, 1) == resolution(FP32, -1, 1) == 24
    assert resolution(FP32, 1, 2) == 23
    assert resolution(FP32, 100, 101) == 17
    assert resolution(DType.BF16, 0, 1) == 8
    assert resolution(FP32, 1, 1 + 2.0**-23) == 1  # both are the lower bound


def test_a_full_draw_of_fp32():
    p = Program(NANO)
    p.vector.random(row(0, FP32, 16), 0.0, 1.0, parts=1)
    got = get(run(p), 0, "f4", (1, 16))[0]
    assert got.tolist() == [(w >> 8) / 2**24 for w in words(0, 0, 16)]


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_dropout(probability):
    x = np.abs(random_f32((8, 1000), 3)) + np.float32(1)
    p = Program(NANO)
    p.vector.dropout(row(4096, FP32, 1000), row(0, FP32, 1000), probability, parts=8)
    got = get(run(p, lambda core: put(core, 0, x)), 4096, "f4", (8, 1000))
    code = np.float32(probability)
    drops = np.array([[w < float(code) * 2.0**32 for w in words(0, lane, 1000)] for lane in range(8)])
    assert (got.view(np.uint32) == np.where(drops, np.float32(0), x).view(np.uint32)).all()
    assert abs(drops.mean() - probability) <= 4 * math.sqrt(probability * (1 - probability) / 8000)


def test_thresholds_are_exact():
    assert threshold(0) == 0
    assert threshold(ALL) == 1 << 32
    assert threshold(1) == 1
    assert threshold(ALL - 1) == (1 << 32) - 256
    assert threshold(0x2F800000) == 1
    assert threshold(0x2F800001) == 2


def test_dropout_keeps_bits_and_casts():
    """Equal types keep their bits, 32-bit integers too; others are cast; dst may be src."""
    p = Program(NANO)
    p.vector.dropout(row(0, DType.INT32, 64), row(0, DType.INT32, 64), 0.25, parts=8)
    p.vector.dropout(row(512, DType.E4M3, 64), row(256, FP32, 64), 0.5, parts=8, saturate=True)
    numbers = np.arange(512, dtype=np.int32).reshape(8, 64) + 0x7FFF0000
    floats = np.full((8, 64), 1e9, dtype=np.float32)

    def prepare(core):
        put(core, 0, numbers)
        put(core, 256, floats)

    core = run(p, prepare)
    got = get(core, 0, "i4", (8, 64))
    assert (got[got != 0] == numbers[got != 0]).all()
    assert 0 < (got == 0).sum() < 512
    assert set(get(core, 512, "u1", (8, 64)).ravel().tolist()) == {0, 0x7E}


EMPTY = row(0, FP32, 0)


@pytest.mark.parametrize(
    ("opcode", "fields", "aps"),
    [
        (Opcode.RANDOM, {"axes": 25}, {"dst": row(0, FP32, 4)}),
        (Opcode.RANDOM, {"axes": 1}, {"dst": row(0, UINT32, 4)}),
        (Opcode.RANDOM, {"op0": AluOp.ADD}, {"dst": row(0, DType.INT8, 4)}),
        (Opcode.RANDOM, {"op0": AluOp.DIVIDE}, {"dst": row(0, FP32, 4)}),
        (Opcode.RANDOM, {"flags": Flag.NEGATE}, {"dst": row(0, FP32, 4)}),
        (Opcode.RANDOM, {}, {"dst": row(0, DType.E8M0, 4)}),
        (Opcode.RANDOM_STATE, {"op0": 3}, {}),
        (Opcode.RANDOM_STATE, {"op0": StateOp.STORE}, {"dst": row(0, FP32, 6)}),
        (Opcode.RANDOM_STATE, {"op0": StateOp.STORE}, {"dst": row(0, UINT32, 5)}),
        (Opcode.RANDOM_STATE, {"op0": StateOp.STORE}, {"dst": row(0, UINT32, 6), "src0": row(64, UINT32, 6)}),
        (Opcode.RANDOM_STATE, {"op0": StateOp.LOAD}, {"dst": row(0, UINT32, 6)}),
        (Opcode.RANDOM_STATE, {"op0": StateOp.SEED}, {"src0": row(0, UINT32, 6)}),
        (Opcode.DROPOUT, {"imm0": ALL + 1}, {"dst": row(0, FP32, 4), "src0": row(64, FP32, 4)}),
        (Opcode.DROPOUT, {"imm0": 1 << 31}, {"dst": row(0, FP32, 4), "src0": row(64, FP32, 4)}),
        (Opcode.DROPOUT, {"imm0": 0x7FC00000}, {"dst": row(0, FP32, 4), "src0": row(64, FP32, 4)}),
        (Opcode.DROPOUT, {}, {"dst": row(0, FP32, 4), "src0": row(64, FP32, 5)}),
        (Opcode.DROPOUT, {}, {"dst": row(0, DType.E4M3X4, 4), "src0": row(64, DType.E4M3X4, 4)}),
    ],
)
def test_illegal_fields(opcode, fields, aps):
    p = Program(NANO)
    p.vector.emit(opcode, {"parts": 1} | {k: int(v) for k, v in fields.items()}, aps)
    core = start(p)
    assert core.error is not None
    assert (core.error.code, core.error.index) == (ErrorCode.ILLEGAL_FIELD, 0)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda v: v.random(row(0, UINT32, 4), 0, 1, parts=1),
            "must be a float type, not UINT32; random_bits",
        ),
        (lambda v: v.random(row(0, FP32, 4), 1, 1, parts=1), "low below high, not 1, 1"),
        (lambda v: v.random(row(0, FP32, 4), 0, math.inf, parts=1), "finite distance apart"),
        (
            lambda v: v.random_bits(row(0, FP32, 4), parts=1),
            "must be an integer type, not FP32; random fills",
        ),
        (
            lambda v: v.dropout(row(0, FP32, 4), row(64, FP32, 4), 1.5, parts=1),
            "probability must be from 0 to 1, not 1.5",
        ),
        (
            lambda v: v.dropout(row(0, FP32, 4), row(64, FP32, 4), float("nan"), parts=1),
            "probability must be from 0 to 1, not nan",
        ),
        (lambda v: v.seed_random(1 << 32, parts=1), "seed must be from 0 to 2\\^32 - 1, not 4294967296"),
        (lambda v: v.seed_random(1, parts=9), "parts must be from 1 to 8, not 9"),
        (
            lambda v: v.store_random_state(row(0, FP32, 6), parts=1),
            "dst must be 6 elements of INT32 or UINT32 a partition, not 6 of FP32",
        ),
        (lambda v: v.load_random_state(row(0, UINT32, 4), parts=1), "src0 must be 6 elements"),
    ],
)
def test_builder_refuses(build, text):
    with pytest.raises(ProgramError, match=text):
        build(Program(NANO).vector)
