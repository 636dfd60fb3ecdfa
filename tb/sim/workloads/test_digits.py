"""The main job on the nano chip: every word right, in both formats and simulators."""

import io

import numpy as np
import pytest
from rich.console import Console

from models.config import find
from models.formats import DType
from sim import main_job
from sim.job import compare
from sim.workloads import digits, mlp
from sim.workloads.layout import WorkloadError

NANO = find("nano")


def _run(fmt, simulator, count, config=NANO):
    outcome = main_job.run_digits(config, fmt, simulator, count, Console(file=io.StringIO()))
    assert outcome.errors == []
    assert outcome.words == 10 * count
    assert outcome.wrong_words == 0
    assert outcome.ok
    return outcome


@pytest.mark.parametrize("fmt", ["mxfp8", "bf16"])
def test_verilator(fmt):
    outcome = _run(fmt, "verilator", 300)
    assert outcome.accuracy >= 0.95
    assert 0 < outcome.utilisation <= 1


def test_icarus():
    _run("mxfp8", "icarus", 3)


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["mini", "small"])
def test_larger_presets(preset):
    assert _run("mxfp8", "verilator", 1797, find(preset)).accuracy >= 0.95


def test_tilings():
    assert digits.tiling(NANO, "mxfp8").dtype == DType.E4M3X4
    assert digits.tiling(find("mini"), "bf16").k_tiles == 4
    with pytest.raises(WorkloadError, match="FORMAT must be one of mxfp8, bf16, not 'fp64'"):
        digits.tiling(NANO, "fp64")


def test_a_wrong_word_is_seen():
    data = mlp.digits()
    job = digits.build(NANO, mlp.trained(data), data.x[:5], "bf16")
    from tb.sim.images import model

    good = model(job.image).outputs(job.image)
    words, wrong = compare(good, good)
    assert (words, wrong) == (50, 0)
    address, raw = good.segments[0]
    bad = model(job.image).outputs(job.image)
    bad.segments[0] = (address, bytes([raw[0] ^ 1]) + raw[1:])
    assert compare(good, bad) == (50, 1)


def test_image_counts():
    for count in (0, 1798):
        with pytest.raises(WorkloadError, match=f"images must be from 1 to 1797, not {count}"):
            main_job.run_digits(NANO, "bf16", "verilator", count, Console(file=io.StringIO()))


def test_training_is_reproducible():
    data = mlp.digits()
    a, b = mlp._train(data), mlp._train(data)
    assert np.array_equal(a.w1, b.w1)
    right = a.logits(data.x).argmax(axis=1) == data.y
    assert right[data.held_out].mean() > 0.95
