"""`make sim WORKLOAD=attention`: tables and verdict, and that whatever differs ends in a non-zero exit."""

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from models.config import find
from sim.attention_job import report, run_attention
from sim.cli import app
from sim.workloads import attention
from sim.workloads.attention_shape import Options
from tb.sim.jobs import spoil, stop

NANO = find("nano")
SMALL = Options(sequence=16, head=8, causal=True)
COMMAND = "sim --workload attention --config nano --heads 3 --sequence 16 --head 8 --causal".split()


def _run():
    console = Console(record=True, width=80)
    outcome = run_attention(NANO, "verilator", SMALL, console)
    report(outcome, console)
    return outcome, console.export_text()


def test_tables_and_verdict():
    outcome, text = _run()
    assert outcome.ok
    assert [c.head for c in outcome.checks] == [0, 1]
    assert outcome.words == 2 * 16 * 8
    assert 0.02 < outcome.useful < outcome.streaming < outcome.busy["tensor"] < 1
    assert f"{outcome.busy['tensor']:.1%} of the cycles" in text
    assert f"{outcome.streaming:.1%} of the cycles" in text
    for c in outcome.checks:
        assert f"{c.largest:.3%}" in text
        assert f"{c.error:.3%}" in text
    assert "every one equals the golden model" in text
    assert "…" not in text, "the tables fit 80 columns"


def test_a_wrong_bit_is_seen(monkeypatch):
    spoil(monkeypatch, 0)
    outcome, text = _run()
    assert all(c.ok for c in outcome.checks), "a bit is far below every limit"
    assert outcome.wrong_words == 1
    assert not outcome.ok
    assert "1 DIFFER from the golden model" in text


def test_wrong_mathematics_is_seen(monkeypatch):
    """Chip and functional model agree on attention to later positions; FP64 does not."""
    monkeypatch.setattr(attention, "mask", lambda s: np.zeros((s.p, s.queries // s.p * s.queries), "<f4"))
    outcome, text = _run()
    assert outcome.wrong_words == 0
    assert not outcome.ok
    assert "TOO FAR" in text


def test_a_core_that_stops_is_seen(monkeypatch):
    stop(monkeypatch, 1000)
    outcome, text = _run()
    assert not outcome.ok
    assert "stopped after 1000 cycles" in text


@pytest.mark.parametrize("spoiled", [False, True])
def test_exit_status(monkeypatch, spoiled):
    if spoiled:
        spoil(monkeypatch, 0)
    done = CliRunner().invoke(app, COMMAND)
    assert done.exit_code == int(spoiled), done.output
    assert "attention on nano: 3 heads, 16 positions, 8 features, causal" in done.output
