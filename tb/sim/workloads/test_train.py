"""Training: the program's arithmetic is SGD with momentum, it fits or says what does not, and the chip does what the model does."""

import dataclasses

import numpy as np
import pytest

from models.config import ChipConfig, MemoryConfig, PsumConfig, SbufConfig, find
from models.formats import DType
from models.machine import Machine
from sim.run import run_image
from sim.workloads import mlp, train
from sim.workloads.layout import WorkloadError
from sim.workloads.train_shape import Options

CONFIG = ChipConfig(
    name="train-test",
    partitions=8,
    cores=1,
    sbuf=SbufConfig(bytes_per_partition=32768, banks=4),
    psum=PsumConfig(banks=4, bank_bytes=2048),
    memory=MemoryConfig(bytes=1 << 22),
)
DATA = mlp.digits()


def _run(options, config=CONFIG):
    job = train.build(config, DATA, options)
    machine = Machine(config)
    machine.load(job.image)
    machine.run()
    assert [core.error for core in machine.cores] == [None] * config.cores
    return job, machine.outputs(job.image).segments


def test_steps_are_those_of_sgd_with_momentum():
    """FP64 with the same samples: BF16 operands leave a difference of a few thousandths."""
    options = Options(steps=5, tiles=2, rate=0.1)
    job, ((_, losses), (_, params)) = _run(options)
    s = job.shape
    start = job.network(train.initial(s, options.seed).astype("<f4").tobytes())
    p = [start.w1.copy(), start.b1.copy(), start.w2.copy(), start.b2.copy()]
    v = [np.zeros_like(x) for x in p]
    for n, pick in enumerate(job.samples.reshape(-1, s.batch)):
        x, y = DATA.x[pick], DATA.y[pick]
        pre = x @ p[0] + p[1]
        h = np.maximum(pre, 0)
        z = h @ p[2] + p[3]
        e = np.exp(z - z.max(axis=1, keepdims=True))
        prob = e / e.sum(axis=1, keepdims=True)
        want = -np.log(prob[np.arange(s.batch), y]).mean()
        assert job.loss(losses, n) == pytest.approx(want, rel=0.02)
        prob[np.arange(s.batch), y] -= 1
        g = prob * options.rate / s.batch
        dpre = (g @ p[2].T) * (pre > 0)
        for i, grad in enumerate((x.T @ dpre, dpre.sum(axis=0), h.T @ g, g.sum(axis=0))):
            v[i] = options.momentum * v[i] - grad
            p[i] = p[i] + v[i]
    got = job.network(params)
    for name, want in zip(("w1", "b1", "w2", "b2"), p, strict=True):
        change = np.linalg.norm(want - getattr(start, name))
        # units whose BF16 sum lies on the other side of 0 take the other branch of ReLU
        assert np.linalg.norm(getattr(got, name) - want) < 0.05 * change, name
    raw = np.frombuffer(params, dtype="<f4").reshape(s.p, s.words)
    for name in ("b1", "b2"):
        at, size = s.starts[name]
        assert (raw[:, at : at + size] == raw[0, at : at + size]).all(), (
            "biases are the same on all partitions"
        )


@pytest.mark.parametrize(
    "options", [Options(steps=60, tiles=4), Options(format="mxfp8")], ids=lambda o: o.format
)
def test_learns(options):
    job, ((_, losses), (_, params)) = _run(options, find("mini"))
    assert job.loss(losses, 59) < 0.4 * job.loss(losses, 0)
    net = job.network(params)
    right = net.logits(DATA.x).argmax(axis=1) == DATA.y
    assert right[DATA.held_out].mean() > 0.9


@pytest.mark.parametrize(("fmt", "tiles"), [("bf16", 2), ("bf16", 3), ("mxfp8", 4), ("mxfp8", 8)])
def test_chip_is_the_model_word_for_word(fmt, tiles):
    """Whole batches and halves, with stalls and without."""
    for stalls in (0, 5):
        options = Options(steps=3, tiles=tiles, format=fmt, seed=stalls)
        job, want = _run(options)
        result = run_image(CONFIG, job.image, stall_seed=stalls)
        assert result.cores[0].error is None
        assert not result.timed_out
        assert result.outputs.segments == want


@pytest.mark.parametrize("partitions", [8, 16, 32, 64])
def test_mxfp8_is_near_bf16_however_the_network_is_cut(partitions):
    """More partitions than 16 leave elements of x4 words empty; 64 are more than are used. Blocks of 32 differ with the cut, and MXFP8 rounds to four bits."""
    config = dataclasses.replace(
        CONFIG,
        partitions=partitions,
        sbuf=SbufConfig(bytes_per_partition=65536, banks=4),
        psum=PsumConfig(banks=8, bank_bytes=2048),
        memory=MemoryConfig(bytes=1 << 23),
    )
    changes = []
    for fmt in ("bf16", "mxfp8"):
        job, (_, (_, params)) = _run(Options(steps=2, tiles=4, format=fmt), config)
        start = job.network(train.initial(job.shape, 2026).astype("<f4").tobytes())
        end = job.network(params)
        changes.append([getattr(end, n) - getattr(start, n) for n in ("w1", "b1", "w2", "b2")])
    for plain, packed in zip(*changes, strict=True):
        assert np.linalg.norm(plain) > 0
        assert np.linalg.norm(packed - plain) < 0.15 * np.linalg.norm(plain)


def test_the_same_twice():
    a, b = (train.build(CONFIG, DATA, Options(steps=2)).image.to_bytes() for _ in range(2))
    assert a == b


def test_samples_are_not_those_held_out():
    job = train.build(CONFIG, DATA, Options(steps=40))
    assert not DATA.held_out[job.samples].any()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"format": "fp8"}, "FORMAT must be one of bf16, mxfp8, not 'fp8'"),
        ({"format": "mxfp8", "tiles": 6}, "tiles must be a multiple of 4 with mxfp8, not 6"),
        ({"tiles": 0}, "tiles must be at least 1, not 0"),
        ({"rate": 0.0}, "rate must be above 0 and below 100, not 0.0"),
        ({"momentum": 1.0}, "momentum must be from 0 to below 1, not 1.0"),
    ],
)
def test_bad_options(change, text):
    with pytest.raises(WorkloadError, match=text):
        Options(**change)


def test_what_does_not_fit():
    with pytest.raises(WorkloadError, match="PSUM partition of 2048 bytes is too small"):
        train.build(find("nano"), DATA, Options())
    small = dataclasses.replace(CONFIG, memory=MemoryConfig(bytes=1 << 16))
    with pytest.raises(WorkloadError, match=r"steps must be from 1 to 3, .* memory of 65536 bytes, not 50"):
        train.build(small, DATA, Options(steps=50))
    with pytest.raises(WorkloadError, match="memory of 65536 bytes is too small"):
        train.build(small, DATA, Options(steps=3))
    other = dataclasses.replace(CONFIG, tensor=dataclasses.replace(CONFIG.tensor, formats=(DType.FP16,)))
    with pytest.raises(WorkloadError, match="needs bf16"):
        train.build(other, DATA, Options())
    other = dataclasses.replace(CONFIG, tensor=dataclasses.replace(CONFIG.tensor, formats=(DType.BF16,)))
    with pytest.raises(
        WorkloadError, match=r"in mxfp8 needs e4m3x4 in tensor\.formats, which train-test has not"
    ):
        train.build(other, DATA, Options(format="mxfp8"))
