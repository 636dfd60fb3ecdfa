"""Transformer block: what the program computes is the block and its gradients, for other shapes too; the chip does what the model does."""

import dataclasses

import numpy as np
import pytest

from models.config import MemoryConfig, SbufConfig, find
from models.formats import DType
from models.isa import Engine
from models.machine import Machine
from sim.run import run_image
from sim.workloads import transformer
from sim.workloads.dataflow import Dataflow
from sim.workloads.layout import WorkloadError
from sim.workloads.transformer_program import BlockProgram
from sim.workloads.transformer_shape import Options, Shape

NANO = find("nano")
SHAPES = {
    "default": Options(),
    "least": Options(sequence=8, width=8, heads=1, hidden=8),
    "three tiles": Options(sequence=24, width=16, hidden=24, seed=1),
    "head of two tiles": Options(sequence=16, width=32, hidden=24, seed=2),
    "wide head": Options(sequence=8, width=24, heads=1, hidden=16, seed=3),
}


def _model(job, config=NANO):
    machine = Machine(config)
    machine.load(job.image)
    machine.run()
    assert [core.error for core in machine.cores] == [None] * config.cores
    return machine.outputs(job.image)


def _checks(options, config=NANO):
    job = transformer.build(config, options)
    return {c.name: c for c in transformer.check(job, job.results(_model(job, config)))}


@pytest.mark.parametrize("name", list(SHAPES))
def test_block_and_gradients_are_those_of_fp64(name):
    for check in _checks(SHAPES[name]).values():
        assert check.ok, check
        assert check.error > 1e-5, "BF16 is not FP64: the comparison is of different computations"


@pytest.mark.parametrize("seed", range(6))
def test_only_roundings_separate_it_from_fp64(seed):
    for check in _checks(Options(sequence=8, width=16, hidden=16, seed=seed)).values():
        assert check.ok, check


def test_the_sizes_asked_for_on_mini():
    config = find("mini")
    job = transformer.build(config, Options())
    assert job.shape == Shape(p=16, sequence=32, width=32, heads=2, hidden=64)
    results = job.results(_model(job, config))
    assert all(c.ok for c in transformer.check(job, results))
    assert {n: r.shape for n, r in results.items()} == job.shape.outputs
    later = ~np.tri(32, dtype=bool)
    assert (results["attention"].reshape(2, 32, 32)[:, later] == 0).all()


@pytest.mark.parametrize("name", list(SHAPES))
def test_chip_is_the_model_word_for_word(name):
    job = transformer.build(NANO, SHAPES[name])
    want = _model(job)
    for weather in ({}, {"latency": 60, "bandwidth": 0.5, "stall_seed": 7}):
        result = run_image(NANO, job.image, **weather)
        assert result.cores[0].error is None
        assert not result.timed_out
        assert result.outputs.segments == want.segments


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(6))
def test_mini_is_the_model_word_for_word(seed):
    config = find("mini")
    job = transformer.build(config, Options(sequence=48, hidden=96, seed=seed))
    want = _model(job, config)
    result = run_image(config, job.image, stall_seed=seed)
    assert result.cores[0].error is None
    assert result.outputs.segments == want.segments
    assert all(c.ok for c in transformer.check(job, job.results(result.outputs)))


def test_engines_overlap():
    """What the engines are busy for adds up to more than the time that it takes."""
    job = transformer.build(NANO, Options())
    counters = run_image(NANO, job.image).cores[0].counters
    busy = sum(counters[f"BUSY_{e.name}"] for e in Engine)
    assert busy > 1.3 * counters["CYCLES"]
    assert counters["COLUMNS"] > 0.2 * counters["CYCLES"]


def test_without_waits_the_numbers_are_wrong(monkeypatch):
    job = transformer.build(NANO, Options())
    want = _model(job)
    real = Dataflow.order
    monkeypatch.setattr(Dataflow, "order", lambda *a: real(*a) | {"wait": None})
    careless = transformer.build(NANO, Options())
    got = _model(careless)
    assert got.segments != want.segments
    assert not all(c.ok for c in transformer.check(careless, careless.results(got)))


def _no_mask(real):
    return lambda s: real(s) | {"mask": np.zeros((s.p, s.sequence), dtype="<f4")}


def _sine_of_the_other_sign(real):
    return lambda s: real(s) | {"sin": -real(s)["sin"]}


@pytest.mark.parametrize("change", [_no_mask, _sine_of_the_other_sign])
def test_a_wrong_constant_is_far_from_fp64(monkeypatch, change):
    monkeypatch.setattr(transformer, "constants", change(transformer.constants))
    checks = _checks(Options())
    for name in ("y", "attention", "dx", "dwqkv"):
        assert not checks[name].ok, name


def test_a_forgotten_term_is_far_from_fp64(monkeypatch):
    """dgu's gate half without silu's slope: gradients before it are wrong, those of w2 and what is forward are right."""
    real = BlockProgram.transpose

    def spoiled(self, src, dst, **more):
        if src == "dgu":
            gate = self.at["dgu"].columns(0, self.s.hidden)
            self.flow.copy(gate, self.at["da"].columns(0, self.s.hidden))
        real(self, src, dst, **more)

    monkeypatch.setattr(BlockProgram, "transpose", spoiled)
    checks = _checks(Options())
    assert {n for n, c in checks.items() if c.ok} == {"y", "attention", "dw2"}


def test_limits_are_limits():
    job = transformer.build(NANO, Options())
    results = {n: r.copy() for n, r in job.results(_model(job)).items()}
    results["dwo"].flat[3] = np.nan
    results["dx"] *= np.float32(1.01)
    results["y"].flat[5] += np.float32(0.03 * np.abs(results["y"]).max())
    bad = {c.name: c for c in transformer.check(job, results) if not c.ok}
    assert set(bad) == {"dwo", "dx", "y"}
    assert bad["dx"].error < bad["dx"].limit, (
        "the reference with BF16's roundings sees what FP64 alone lets pass"
    )
    assert bad["y"].largest > bad["y"].limit > bad["y"].error


def test_the_same_twice():
    a, b = (transformer.build(NANO, Options()).image.to_bytes() for _ in range(2))
    assert a == b


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sequence": 12}, "sequence must be a multiple of 8 .the partitions., not 12"),
        ({"hidden": 0}, "hidden must be a multiple of 8 .the partitions., not 0"),
        ({"width": 24}, "width must be a multiple of 16 .partitions x heads., not 24"),
        ({"heads": 0}, "heads must be at least 1, not 0"),
    ],
)
def test_bad_sizes(change, text):
    with pytest.raises(WorkloadError, match=text):
        transformer.build(NANO, Options(**change))


def test_what_does_not_fit():
    with pytest.raises(WorkloadError, match="PSUM partition of 2048 bytes is too small"):
        transformer.build(NANO, Options(sequence=8, width=16, hidden=136))
    small = dataclasses.replace(NANO, memory=MemoryConfig(bytes=1 << 16))
    with pytest.raises(WorkloadError, match="memory of 65536 bytes is too small"):
        transformer.build(small, Options())
    tight = dataclasses.replace(NANO, sbuf=SbufConfig(bytes_per_partition=4096, banks=4))
    with pytest.raises(WorkloadError, match="SBUF partition of 4096 bytes is too small"):
        transformer.build(tight, Options())
    other = dataclasses.replace(NANO, tensor=dataclasses.replace(NANO.tensor, formats=(DType.E4M3,)))
    with pytest.raises(WorkloadError, match="needs bf16"):
        transformer.build(other, Options())
