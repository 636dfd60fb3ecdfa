"""`make bench` judges what it measures, and its measurements that take no simulator are real."""

import json

from rich.console import Console

from sim import bench
from sim.bench import Figure, at_least, at_most, model_figures, run_bench_suite


def test_bounds():
    assert at_least("a", 5.0, "x", 5).ok
    assert not at_least("a", 4.9, "x", 5).ok
    assert at_most("a", 5.0, "x", 5).ok
    assert not at_most("a", 5.1, "x", 5).ok
    assert at_least("a", 1.0, "x", 2).target == ">= 2"


def test_model_rate_is_measured_against_numpy():
    rate, ratio = model_figures()
    assert rate.value > 0
    assert 0 < ratio.value < 1, "exact rounding after every step is not as fast as a BLAS"


def test_table_and_json(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "OUT", tmp_path / "build" / "bench.json")
    figures = [Figure("one", 1.5, "s", "<= 2", True), Figure("two", 3.0, "s", "<= 2", False)]
    for name in ("model_figures", "speed_figures", "gemm_figures", "loop_figures"):
        monkeypatch.setattr(bench, name, lambda: [])
    monkeypatch.setattr(bench, "digits_figures", lambda console: figures)
    monkeypatch.setattr(bench, "attention_figures", lambda console: [])
    console = Console(record=True, width=120)
    assert not run_bench_suite(console, quick=True), "a missed target is a failure"
    assert "MISSED" in console.export_text()
    stored = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert [f["value"] for f in stored["figures"]] == [1.5, 3.0]
