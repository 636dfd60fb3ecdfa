"""Softmax attention: what the program computes is attention, for other shapes too; the chip does what the model does."""

import dataclasses

import numpy as np
import pytest

from models.config import MemoryConfig, SbufConfig, find
from models.formats import DType
from models.machine import Machine
from sim.run import run_image
from sim.workloads import attention
from sim.workloads.attention_shape import Options, sbuf_sizes, shape
from sim.workloads.dataflow import Dataflow
from sim.workloads.layout import WorkloadError

NANO = find("nano")
MINI = find("mini")
SHAPES = {
    "least": Options(heads=1, sequence=8, head=8),
    "least, causal": Options(heads=1, sequence=8, head=8, causal=True, seed=1),
    "one block a head": Options(heads=3, sequence=16, head=16, seed=2),
    "last block shorter": Options(heads=2, sequence=56, head=8, seed=3),
    "last block shorter, causal": Options(heads=2, sequence=56, head=24, causal=True, seed=4),
    "scale is no power of two": Options(heads=1, sequence=32, head=24, seed=5),
    "causal": Options(heads=2, sequence=64, head=16, causal=True, seed=6),
}


def _model(job, config=NANO):
    machine = Machine(config)
    machine.load(job.image)
    machine.run()
    assert [core.error for core in machine.cores] == [None] * config.cores
    return machine.outputs(job.image)


@pytest.mark.parametrize("name", list(SHAPES))
def test_chip_is_the_model_word_for_word_and_both_are_attention(name):
    job = attention.build(NANO, SHAPES[name])
    want = _model(job)
    checks = attention.check(job, job.result(want))
    assert len(checks) == SHAPES[name].heads
    for check in checks:
        assert check.ok, check
        assert check.error > 1e-5, "BF16 is not FP64: the comparison is of different computations"
    for weather in ({}, {"latency": 60, "bandwidth": 0.5, "stall_seed": 7}):
        result = run_image(NANO, job.image, **weather)
        assert result.cores[0].error is None
        assert not result.timed_out
        assert result.outputs.segments == want.segments


@pytest.mark.parametrize("causal", [False, True])
def test_mini_is_attention(causal):
    job = attention.build(MINI, Options(sequence=96, head=64, causal=causal))
    assert job.shape.queries == 64
    assert all(c.ok for c in attention.check(job, job.result(_model(job, MINI))))


@pytest.mark.regress
@pytest.mark.parametrize("causal", [False, True])
def test_mini_is_the_model_word_for_word(causal):
    job = attention.build(MINI, Options(causal=causal))
    want = _model(job, MINI)
    result = run_image(MINI, job.image)
    assert result.cores[0].error is None
    assert result.outputs.segments == want.segments


def test_one_buffer_of_keys_where_two_do_not_fit():
    """Each head's keys and values take the place of those before, when these have been read."""
    options = Options(heads=3, sequence=32, head=32, seed=8)
    config = dataclasses.replace(NANO, sbuf=SbufConfig(bytes_per_partition=4096, banks=4))
    one, two = (sum(sbuf_sizes(shape(config, options), n).values()) for n in (1, 2))
    assert one < 4096 < two
    job = attention.build(config, options)
    assert all(c.ok for c in attention.check(job, job.result(_model(job, config))))


def test_large_scores_do_not_overflow(monkeypatch):
    """Scores far beyond what exp can take are weighed by their distance from the row's largest."""
    real = attention.inputs

    def large(s, seed):
        q, k, v = real(s, seed)
        return 64 * q, k, v

    monkeypatch.setattr(attention, "inputs", large)
    job = attention.build(NANO, Options(heads=1, sequence=32, head=16, causal=True))
    scores = job.q[0] @ job.k[0].T / 4
    assert scores.max() > 200, "exp of these is infinite in FP32"
    got = job.result(_model(job))
    want, _ = attention.reference.attention(job.q, job.k, job.v, causal=True)
    assert np.isfinite(got).all()
    assert np.linalg.norm(got - want) <= 0.01 * np.linalg.norm(want)


def test_the_array_is_busy():
    job = attention.build(NANO, Options())
    counters = run_image(NANO, job.image).cores[0].counters
    assert counters["BUSY_TENSOR"] > 0.8 * counters["CYCLES"]
    assert counters["COLUMNS"] > 0.6 * counters["CYCLES"]


def test_without_waits_the_numbers_are_wrong(monkeypatch):
    options = Options(heads=2, sequence=32, head=16)
    want = _model(attention.build(NANO, options))
    real = Dataflow.order
    monkeypatch.setattr(Dataflow, "order", lambda *a: real(*a) | {"wait": None})
    careless = attention.build(NANO, options)
    got = _model(careless)
    assert got.segments != want.segments
    assert not all(c.ok for c in attention.check(careless, careless.result(got)))


def test_no_mask_is_far_from_fp64(monkeypatch):
    monkeypatch.setattr(attention, "mask", lambda s: np.zeros((s.p, s.queries // s.p * s.queries), "<f4"))
    job = attention.build(NANO, SHAPES["causal"])
    assert not any(c.ok for c in attention.check(job, job.result(_model(job))))


def test_limits_are_limits():
    job = attention.build(NANO, Options(heads=3, sequence=16, head=8))
    got = job.result(_model(job)).copy()
    got[0, 3, 2] = np.nan
    got[1] *= np.float32(1.002)
    got[2, 0, 0] += np.float32(0.02 * np.abs(job.v).max())
    nan, scaled, moved = attention.check(job, got)
    assert not nan.ok
    assert not scaled.ok
    assert scaled.error < attention.BOUND, "the rounded reference sees what FP64 alone lets pass"
    assert not moved.ok
    assert moved.largest > attention.BOUND


def test_blocks_cover_every_query_once():
    for causal in (False, True):
        s = shape(NANO, Options(heads=2, sequence=72, head=8, causal=causal))
        rows = [(b.head, b.first + i) for b in s.blocks() for i in range(b.queries)]
        assert sorted(rows) == [(h, n) for h in range(2) for n in range(72)]
        assert all(b.keys == (b.first + b.queries if causal else 72) for b in s.blocks())


def test_the_same_twice():
    a, b = (attention.build(NANO, Options(sequence=16)).image.to_bytes() for _ in range(2))
    assert a == b


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sequence": 12}, "sequence must be a multiple of 8 .the partitions., not 12"),
        ({"head": 0}, "head must be a multiple of 8 .the partitions., not 0"),
        ({"head": 256}, "head must be at most 248 .a PSUM bank's columns, one of them the sum., not 256"),
        ({"heads": 0}, "heads must be at least 1, not 0"),
    ],
)
def test_bad_sizes(change, text):
    with pytest.raises(WorkloadError, match=text):
        attention.build(NANO, Options(**change))


def test_what_does_not_fit():
    with pytest.raises(WorkloadError, match=r"PSUM partition of 2048 bytes is too small: .* for 8 queries"):
        attention.build(NANO, Options(sequence=512))
    tight = dataclasses.replace(NANO, sbuf=SbufConfig(bytes_per_partition=4096, banks=4))
    with pytest.raises(WorkloadError, match="SBUF partition of 4096 bytes is too small"):
        attention.build(tight, Options(head=64))
    small = dataclasses.replace(NANO, memory=MemoryConfig(bytes=1 << 16))
    with pytest.raises(WorkloadError, match="heads must be from 1 to 1 in a memory of 65536 bytes, not 2"):
        attention.build(small, Options())
    with pytest.raises(WorkloadError, match="memory of 65536 bytes is too small"):
        attention.build(small, Options(heads=1))
    other = dataclasses.replace(NANO, tensor=dataclasses.replace(NANO.tensor, formats=(DType.E4M3,)))
    with pytest.raises(WorkloadError, match="needs bf16"):
        attention.build(other, Options())
