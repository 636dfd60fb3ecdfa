"""Functional model: the scalar engine's instructions."""

import numpy as np
import pytest

from models import cast, fp, functions
from models.access import row
from models.formats import DType
from models.functions import ActFunc
from models.isa import AluOp, ErrorCode, Flag, Opcode
from models.program import Program, ProgramError
from tb.models.machines import NANO, get, put, random_f32, run, start


def test_activate():
    x, bias = random_f32((8, 9), 5), random_f32((8, 1), 6)
    p = Program(NANO)
    p.scalar.activate(
        row(1024, DType.FP16, 9),
        row(0, DType.FP32, 9),
        ActFunc.SILU,
        parts=8,
        scale=0.5,
        bias=row(128, DType.FP32, 1),
    )
    p.scalar.activate(row(2048, DType.FP32, 9), row(0, DType.FP32, 9), ActFunc.RSQRT, parts=7)

    def prepare(core):
        put(core, 0, x)
        put(core, 128, bias)

    core = run(p, prepare)
    want = functions.activate(ActFunc.SILU, x, np.float32(0.5), bias)
    assert np.array_equal(get(core, 1024, "u2", (8, 9)), cast.encode(DType.FP16, want, saturate=False))
    got = get(core, 2048, "u4", (8, 9))
    assert np.array_equal(got[:7], functions.evaluate(ActFunc.RSQRT, x[:7]).view(np.uint32))
    assert not got[7].any()


@pytest.mark.parametrize("biased", [False, True])
def test_prelu_takes_its_slope_from_the_instruction(biased):
    x, bias = random_f32((8, 9), 5), random_f32((8, 1), 6)
    p = Program(NANO)
    more = {"bias": row(128, DType.FP32, 1)} if biased else {}
    for n, f in enumerate((ActFunc.PRELU, ActFunc.D_PRELU)):
        dst = row(1024 + 64 * n, DType.FP32, 9)
        p.scalar.activate(dst, row(0, DType.FP32, 9), f, parts=8, scale=2.0, slope=0.25, **more)

    def prepare(core):
        put(core, 0, x)
        put(core, 128, bias)

    core = run(p, prepare)
    y = (x.astype(np.float64) * 2 + (bias if biased else 0)).astype(np.float32)
    assert np.array_equal(get(core, 1024, "f4", (8, 9)), np.where(y < 0, y / 4, y))
    assert np.array_equal(get(core, 1088, "f4", (8, 9)), np.where(y > 0, 1, 0.25))


def _sums(start, *results):
    """Written from the contract: element i of each instruction is added to partial i mod 4, one after the other; [partitions, 4]."""
    partial = np.array(start, dtype=np.float32)
    for values in results:
        for i in range(values.shape[1]):
            partial[:, i % 4] = fp.add(values[:, i], partial[:, i % 4])
    return partial


def _total(partial):
    return fp.add(fp.add(partial[:, 0], partial[:, 1]), fp.add(partial[:, 2], partial[:, 3]))


def test_accumulators_go_on_or_start_afresh():
    x, y = random_f32((8, 9), 5), random_f32((8, 6), 6)
    x[0, :2], y[1, 3] = [-0.0, 1e-40], np.nan
    p = Program(NANO)
    scratch = row(1024, DType.BF16, 9)
    a, b = row(0, DType.FP32, 9), row(128, DType.FP32, 6)
    s = p.scalar
    s.read_accumulator(row(2048, DType.FP32, 1), parts=8)
    s.activate(scratch, a, ActFunc.TANH, parts=8, accumulate=True, fresh=True)
    s.activate(row(1024, DType.BF16, 6), b, ActFunc.COPY, parts=8, accumulate=True)
    s.read_accumulator(row(2052, DType.FP32, 1), parts=8)
    s.activate(scratch, a, ActFunc.EXP, parts=8)
    s.read_accumulator(row(2056, DType.FP32, 1), parts=8, negate=True)
    s.activate(row(1024, DType.FP32, 6), b, ActFunc.COPY, parts=3, accumulate=True, fresh=True)
    s.read_accumulator(row(2060, DType.BF16, 1), parts=8, saturate=True)

    def prepare(core):
        put(core, 0, x)
        put(core, 128, y)

    core = run(p, prepare)
    first = _sums(
        np.full((8, 4), -0.0), functions.evaluate(ActFunc.TANH, x), functions.evaluate(ActFunc.COPY, y)
    )
    again = _sums(np.full((8, 4), -0.0), y)
    last = np.concatenate([again[:3], first[3:]])
    assert not get(core, 2048, "u4", (8, 1)).any(), "+0 after reset"
    assert np.array_equal(get(core, 2052, "u4", (8, 1))[:, 0], _total(first).view(np.uint32))
    negated = np.where(np.isnan(_total(first)), np.float32(np.nan), -_total(first)).astype(np.float32)
    assert np.array_equal(get(core, 2056, "u4", (8, 1))[:, 0], fp.canonical(negated).view(np.uint32))
    want = cast.encode(DType.BF16, _total(last), saturate=True)
    assert np.array_equal(get(core, 2060, "u2", (8, 1))[:, 0], want)


def test_the_vector_engines_accumulators_are_others():
    p = Program(NANO)
    done = p.semaphore("done")
    x = row(0, DType.FP32, 5)
    p.scalar.activate(x, x, ActFunc.COPY, parts=8, accumulate=True, fresh=True, update=done.add())
    p.vector.emit(
        Opcode.READ_ACCUMULATOR,
        {"parts": 8, "op0": AluOp.ADD},
        {"dst": row(512, DType.FP32, 1)},
        wait=done.ge(1),
    )
    core = run(p, lambda c: put(c, 0, random_f32((8, 5), 7)))
    assert core.scalar_accumulators.all()
    assert not core.accumulators.any()
    assert not get(core, 512, "u4", (8, 1)).any()


def test_no_elements_and_fresh_leave_the_identity():
    p = Program(NANO)
    nothing = row(0, DType.FP32, 0)
    p.scalar.activate(nothing, nothing, ActFunc.COPY, parts=8, accumulate=True, fresh=True)
    p.scalar.read_accumulator(row(512, DType.FP32, 1), parts=8)
    core = run(p)
    assert (get(core, 512, "u4", (8, 1)) == 0x80000000).all()


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        (Opcode.ACTIVATE, {"flags": Flag.FRESH}),
        (Opcode.ACTIVATE, {"flags": Flag.NEGATE}),
        (Opcode.ACTIVATE, {"op0": max(ActFunc) + 1}),
        (Opcode.READ_ACCUMULATOR, {"op0": AluOp.MAX}),
        (Opcode.READ_ACCUMULATOR, {"op0": AluOp.BYPASS}),
        (Opcode.READ_ACCUMULATOR, {"op0": AluOp.ADD, "flags": Flag.ACCUMULATE}),
    ],
)
def test_illegal_fields(opcode, fields):
    p = Program(NANO)
    aps = {"dst": row(0, DType.FP32, 1)} | (
        {"src0": row(8, DType.FP32, 1)} if opcode == Opcode.ACTIVATE else {}
    )
    p.scalar.emit(opcode, {"parts": 8} | fields, aps)
    core = start(p)
    assert core.error.code == ErrorCode.ILLEGAL_FIELD


def test_builder_refuses_what_the_engine_would():
    p = Program(NANO)
    one = row(0, DType.FP32, 1)
    with pytest.raises(ProgramError, match=r"scalar\[0\] ACTIVATE: fresh needs accumulate"):
        p.scalar.activate(one, one, ActFunc.COPY, parts=8, fresh=True)
    with pytest.raises(ProgramError, match="PRELU needs slope"):
        p.scalar.activate(one, one, ActFunc.PRELU, parts=8)
    with pytest.raises(ProgramError, match="RELU takes no slope"):
        p.scalar.activate(one, one, ActFunc.RELU, parts=8, slope=0.5)
    with pytest.raises(ProgramError, match=r"bias must be a pattern or -0.0 beside a slope, not 1.0"):
        p.scalar.activate(one, one, ActFunc.PRELU, parts=8, slope=0.5, bias=1.0)
    with pytest.raises(ProgramError, match=r"READ_ACCUMULATOR: op must be ADD on the scalar engine, not MAX"):
        p.scalar.read_accumulator(one, AluOp.MAX, parts=8)
    with pytest.raises(ProgramError, match="dst must be one element a partition, not 2"):
        p.scalar.read_accumulator(row(0, DType.FP32, 2), parts=8)
    p.vector.read_accumulator(one, AluOp.MAX, parts=8)
