"""`make bench` judges what it measures, and its measurements that take no simulator are real."""

import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from models import config as configs
from models.addressing import memory_address
from models.image import Image
from models.program import Program
from sim import bench
from sim.bench import Figure, at_least, at_most, model_figures, run_bench_suite


def test_bounds():
    assert at_least("a", 5.0, "x", 5).ok
    assert not at_least("a", 4.9, "x", 5).ok
    assert at_most("a", 5.0, "x", 5).ok
    assert not at_most("a", 5.1, "x", 5).ok
    assert at_least("a", 1.0, "x", 2).target == ">= 2"


@pytest.mark.parametrize(("seconds", "ok"), [(0.25, True), (2.0, False)])
def test_model_rate_is_measured_against_numpy(seconds, ok):
    """One matmul of 128 x 128 x 512 on the model in `seconds`, ten of them in NumPy in half a second."""
    times = iter([7.0, 7.0 + seconds, 20.0, 20.5])
    rate, ratio = model_figures(lambda: next(times))
    millions = 128 * 128 * 512 / 1e6
    assert rate.value == millions / seconds
    assert (rate.target, rate.ok) == (">= 20", ok)
    assert ratio.value == rate.value / (10 * 128 * 128 * 512 / 0.5 / 1e6)
    assert next(times, None) is None


def test_table_and_json(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "OUT", tmp_path / "build" / "bench.json")
    figures = [Figure("one", 1.5, "s", "<= 2", True), Figure("two", 3.0, "s", "<= 2", False)]
    for name in ("model_figures", "speed_figures", "gemm_figures", "loop_figures", "functional_figures"):
        monkeypatch.setattr(bench, name, lambda *_: [])
    monkeypatch.setattr(bench, "digits_figures", lambda console: figures)
    monkeypatch.setattr(bench, "attention_figures", lambda console: [])
    console = Console(record=True, width=120)
    assert not run_bench_suite(console, quick=True), "a missed target is a failure"
    assert "MISSED" in console.export_text()
    stored = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert [f["value"] for f in stored["figures"]] == [1.5, 3.0]


def test_functional_model_and_rtl_must_agree(monkeypatch):
    """Ratios of the same image on both; an output that differs is no figure but an error."""
    cfg = configs.find("nano")
    program = Program(cfg)
    memory = 1 << 12
    program.sync.dma(memory_address(memory), memory_address(memory + 64), row_bytes=64, rows=1)
    program.finish()
    image = Image.empty(cfg)
    image.add(memory, bytes(range(64)))
    image.add_program(0, program, 0x4000)
    image.add_output(memory + 64, 64)

    def on_chip(data):
        outputs = Image.empty(cfg)
        outputs.add(memory + 64, data)
        return lambda *_: SimpleNamespace(outputs=outputs, seconds=2.0)

    monkeypatch.setattr(bench, "run_image", on_chip(bytes(range(64))))
    monkeypatch.setattr(bench, "jobs", lambda _: {"train": image, "conv": image})
    train, conv = bench.functional_figures("nano")
    assert train.target == ">= 50"
    assert train.ok == (train.value >= 50)
    assert conv.ok
    assert "conv on nano" in conv.name
    monkeypatch.setattr(bench, "run_image", on_chip(bytes(64)))
    with pytest.raises(RuntimeError, match="outputs on nano"):
        bench.functional_figures("nano")
