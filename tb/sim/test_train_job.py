"""`make sim WORKLOAD=train`: curve, plot, verdict."""

import json

from rich.console import Console

from sim import train_job
from sim.train_job import report, run_training
from sim.workloads.train_shape import Options
from tb.sim.jobs import spoil
from tb.sim.workloads.test_train import CONFIG


def test_curve_plot_and_verdict(tmp_path):
    console = Console(record=True, width=120)
    outcome = run_training(CONFIG, "verilator", Options(steps=3, tiles=2), console, folder=tmp_path)
    report(outcome, console, tmp_path)
    text = console.export_text()
    assert outcome.ok
    assert outcome.words == 3 * 16 + 8 * (8 * 64 + 64 + 2 * 64 + 10)
    for step in range(3):
        assert f"step {step:4d}  loss {outcome.losses[step]:.4f}" in text
    assert "every one equals the golden model" in text
    assert json.loads((tmp_path / "losses.json").read_text())["losses"] == outcome.losses
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"


def test_a_wrong_word_is_seen(tmp_path, monkeypatch):
    spoil(monkeypatch, 1, byte=-1, module=train_job)
    console = Console(record=True, width=120)
    outcome = run_training(CONFIG, "verilator", Options(steps=1, tiles=1), console, folder=tmp_path)
    report(outcome, console, tmp_path)
    assert outcome.wrong_words == 1
    assert not outcome.ok
    assert "1 DIFFER from the golden model" in console.export_text()
