"""Convolution network: its patterns are a convolution, the chip does what the model does, what cannot be is refused."""

import dataclasses
import random

import numpy as np
import pytest

from models.config import MemoryConfig, TensorConfig, find
from models.formats import DType
from sim.conv_job import examine
from sim.run import run_image
from sim.workloads import conv
from sim.workloads.conv_program import ConvProgram
from sim.workloads.conv_shape import KERNELS, PADDINGS, STRIDES, Options, default, shape
from sim.workloads.layout import WorkloadError
from tb.lib.simulate import rng
from tb.sim.images import NANO, model

PAIR = dataclasses.replace(NANO, name="conv-test", cores=2)
KINDS = [(k, s, p) for k in KERNELS for s in STRIDES for p in PADDINGS]


def random_options(r: random.Random, kernel: int, stride: int, padding: int) -> Options:
    """A small network of a random shape."""
    least = max(1, kernel - 2 * padding)
    sizes = {
        "images": r.randint(1, 5),
        "channels": r.randint(1, 8),
        "filters": r.randint(1, 8),
        "height": r.randint(least, 7),
        "width": r.randint(least, 9),
        "classes": r.randint(1, 12),
    }
    return Options(**sizes, kernel=kernel, stride=stride, padding=padding)


def integers(o: Options, seed: int) -> conv.Data:
    """Data whose convolution is exact in FP32."""
    r, s = np.random.default_rng(seed), conv.shapes(o)
    small = {n: r.integers(-8, 9, s[n]).astype(float) for n in ("x", "w", "bias")}
    return dataclasses.replace(conv.draw(o, seed), **small)


def direct(o: Options, d: conv.Data) -> list[float]:
    """The definition, number by number: [images, filters, rows, columns], flat."""
    x, w, bias = d.x.tolist(), d.w.tolist(), d.bias.tolist()
    out = []
    for image in x:
        for f in range(o.filters):
            for y in range(o.out_height):
                for column in range(o.out_width):
                    total = bias[f]
                    for c in range(o.channels):
                        for i in range(o.kernel):
                            for j in range(o.kernel):
                                h, v = y * o.stride + i - o.padding, column * o.stride + j - o.padding
                                if 0 <= h < o.height and 0 <= v < o.width:
                                    total += image[c][h][v] * w[f][c][i][j]
                    out.append(total)
    return out


def on_model(o: Options, d: conv.Data, config=NANO):
    """The job, and its outputs by the functional model."""
    job = conv.build(config, o, d)
    machine = model(job.image, config)
    assert [core.error for core in machine.cores] == [None] * config.cores
    return job, machine.outputs(job.image)


@pytest.mark.parametrize(("kernel", "stride", "padding"), KINDS)
def test_convolution_is_the_direct_one(kernel, stride, padding):
    r = rng()
    for _ in range(3):
        o = random_options(r, kernel, stride, padding)
        d = integers(o, r.getrandbits(32))
        job, out = on_model(o, d)
        assert job.tensor(out, "conv").ravel().tolist() == direct(o, d), o
        assert all(check.ok for check in examine(job, out, out)), o


def test_images_larger_than_a_psum_buffer_come_in_chunks_of_rows():
    for size, images, chunks in ((19, 2, 2), (30, 1, 4)):
        o = Options(images, channels=2, filters=3, height=size, width=size, classes=3)
        groups = shape(NANO, o).groups(images)
        assert [len(g) for g in groups] == [chunks] * images
        d = integers(o, size)
        job, out = on_model(o, d)
        assert job.tensor(out, "conv").ravel().tolist() == direct(o, d)
        assert all(check.ok for check in examine(job, out, out))


def test_images_are_dealt_to_the_cores():
    for images, counts in ((1, [1]), (3, [2, 1]), (16, [8, 8])):
        o = Options(images, channels=3, filters=2, height=5, width=4, classes=4)
        d = conv.draw(o, images)
        job, out = on_model(o, d, PAIR)
        assert [count for _, count in job.shape.cores] == counts
        assert all(check.ok for check in examine(job, out, out))
        if images <= NANO.partitions:
            alone, single = on_model(o, d)
            for name in conv.OUTPUTS:
                assert np.array_equal(job.codes(out, name), alone.codes(single, name)), name


def test_no_copy_of_the_images_is_made():
    """Moving operands of the convolution read the padded images themselves, a pattern for each place of the kernel."""
    o = Options(4, channels=3, filters=2, height=5, width=6, stride=2)
    program = conv.build(NANO, o, conv.draw(o, 0)).programs[0]
    moving = [i.aps["src0"] for i in program.tensor.instructions if "dst" in i.aps][: o.taps]
    row, image = 8, 7 * 8
    start = min(ap.addr for ap in moving)
    assert [(ap.addr - start) // 2 for ap in moving] == [i * row + j for i in range(3) for j in range(3)]
    assert {ap.dims for ap in moving} == {((image, 4), (2 * row, 3), (2, 3))}


def test_sums_over_partitions_lose_no_bit():
    """Equal numbers of 24 bits on all partitions are their own mean: nothing is left of them but the shift."""
    r = np.random.default_rng(8)
    for filters in (1, 2, 4, 8):
        o = Options(1, channels=1, filters=filters, height=1, width=1, kernel=1, padding=0)
        for value in r.normal(0, 1, 8) * 2.0 ** r.integers(-60, 60, 8):
            d = conv.draw(o, filters)
            d = dataclasses.replace(d, x=np.zeros_like(d.x), bias=np.full(filters, value))
            job, out = on_model(o, d)
            assert np.array_equal(job.tensor(out, "conv").ravel(), job.data.bias)
            assert np.array_equal(job.tensor(out, "norm").ravel(), job.data.shift.ravel())


@pytest.mark.parametrize("stalls", [0, 5])
def test_chip_is_the_model_word_for_word(stalls):
    r = rng()
    for kind in KINDS:
        o = random_options(r, *kind)
        job, want = on_model(o, conv.draw(o, r.getrandbits(32)))
        result = run_image(NANO, job.image, stall_seed=stalls)
        assert result.cores[0].error is None
        assert not result.timed_out
        assert result.outputs.segments == want.segments, o
        assert all(check.ok for check in examine(job, want, result.outputs)), o


def test_chip_with_groups_and_chunks():
    for o, groups in (
        (Options(7, channels=8, filters=8, classes=10), [[2], [2], [2], [1]]),
        (Options(2, channels=2, filters=3, height=19, width=19, classes=3), [[1, 1], [1, 1]]),
    ):
        job, want = on_model(o, conv.draw(o, 3))
        assert [[c.images for c in g] for g in job.shape.groups(o.images)] == groups
        assert run_image(NANO, job.image).outputs.segments == want.segments


def test_a_wrong_pattern_is_seen(monkeypatch):
    """One place of the kernel reads a column too far: the model does the same, FP64 does not."""
    right = ConvProgram.tap

    def wrong(self, c, i, j):
        return right(self, c, i, 0 if (i, j) == (1, 1) else j)

    monkeypatch.setattr(ConvProgram, "tap", wrong)
    o = Options(2, channels=2, filters=2, height=4, width=4, classes=3)
    job, out = on_model(o, conv.draw(o, 1))
    checks = {check.name: check for check in examine(job, out, out)}
    assert not checks["conv"].ok
    assert checks["conv"].differ == 0
    assert checks["conv"].whole.share > 1000
    assert checks["norm"].step.ok


def test_the_same_twice():
    o = Options(2, channels=2, filters=2, height=4, width=4, classes=3)
    a, b = (conv.build(NANO, o, conv.draw(o, 9)).image.to_bytes() for _ in range(2))
    assert a == b


def test_network_of_make_sim():
    for name, images, channels in (("nano", 8, 8), ("mini", 32, 16), ("small", 64, 16)):
        o = default(find(name))
        assert (o.images, o.channels, o.filters) == (images, channels, channels)
        assert len(shape(find(name), o).cores) == find(name).cores


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"images": 0}, "images must be at least 1, not 0"),
        ({"channels": 0}, "channels must be at least 1, not 0"),
        ({"filters": -1}, "filters must be at least 1, not -1"),
        ({"classes": 0}, "classes must be at least 1, not 0"),
        ({"kernel": 2}, "kernel must be 1 or 3, not 2"),
        ({"stride": 3}, "stride must be 1 or 2, not 3"),
        ({"padding": 2}, "padding must be 0 or 1, not 2"),
        ({"height": 2, "padding": 0}, "height must be at least 3 for kernel 3 and padding 0, not 2"),
        ({"width": 0}, "width must be at least 1 for kernel 3 and padding 1, not 0"),
        ({"epsilon": 0.0}, "epsilon must be above 0 and finite, not 0.0"),
        ({"epsilon": float("inf")}, "epsilon must be above 0 and finite, not inf"),
    ],
)
def test_networks_that_are_none(change, text):
    with pytest.raises(ValueError, match=text):
        Options(**({"images": 1, "channels": 1, "filters": 1} | change))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"images": 9}, "images must be from 1 to 8 on nano, not 9"),
        ({"channels": 9}, "channels must be from 1 to 8 on nano, not 9"),
        ({"filters": 9}, "filters must be from 1 to 8 on nano, not 9"),
        ({"classes": 257}, "classes must be from 1 to 256 on nano, a PSUM bank, not 257"),
        ({"width": 300}, "width must give at most 244 columns of output on nano, a PSUM buffer, not 300"),
        ({"height": 200, "width": 200}, "SBUF partition of 32768 bytes is too small"),
    ],
)
def test_what_does_not_fit(change, text):
    o = Options(**({"images": 1, "channels": 1, "filters": 1} | change))
    with pytest.raises(ValueError, match=text):
        conv.build(NANO, o, conv.draw(o, 0))


def test_chips_that_cannot():
    o = Options(8, channels=8, filters=1, height=32, width=32)
    d = conv.draw(o, 0)
    with pytest.raises(WorkloadError, match="memory of 65536 bytes is too small"):
        conv.build(dataclasses.replace(NANO, memory=MemoryConfig(bytes=1 << 16)), o, d)
    other = dataclasses.replace(NANO, tensor=TensorConfig(formats=(DType.FP16,)))
    with pytest.raises(WorkloadError, match=r"needs bf16 in tensor\.formats, which nano has not"):
        conv.build(other, o, d)


def test_data_of_another_network():
    o = Options(2, channels=1, filters=1, classes=3)
    d = conv.draw(o, 0)
    with pytest.raises(WorkloadError, match=r"x must be \(2, 1, 8, 8\), not \(1, 1, 8, 8\)"):
        conv.build(NANO, o, dataclasses.replace(d, x=d.x[:1]))
    with pytest.raises(WorkloadError, match=r"labels must be from 0 to 2, not \[0, 3\]"):
        conv.build(NANO, o, dataclasses.replace(d, labels=np.array([0, 3])))
