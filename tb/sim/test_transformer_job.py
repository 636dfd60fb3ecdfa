"""`make sim WORKLOAD=transformer`: tables and verdict, and that whatever differs ends in a non-zero exit."""

import pytest
from rich.console import Console
from typer.testing import CliRunner

from models.config import find
from sim.cli import app
from sim.transformer_job import report, run_transformer
from sim.workloads import transformer
from sim.workloads.transformer_shape import Options
from tb.sim.jobs import spoil, stop

NANO = find("nano")
SMALL = Options(sequence=8, width=16, hidden=16)
COMMAND = ["sim", "--workload", "transformer", "--config", "nano"]


def _run():
    console = Console(record=True, width=80)
    outcome = run_transformer(NANO, "verilator", SMALL, console)
    report(outcome, console)
    return outcome, console.export_text()


def test_tables_and_verdict():
    outcome, text = _run()
    assert outcome.ok
    sizes = transformer.build(NANO, SMALL).shape.outputs
    assert [c.name for c in outcome.checks] == list(sizes)
    assert outcome.words == sum(rows * cols for rows, cols in sizes.values())
    assert 0.1 < outcome.streaming < 1
    for c in outcome.checks:
        line = next(x for x in text.splitlines() if x.split() and x.split()[0] == c.name)
        assert f"{c.error:.2%}" in line
        assert f"{c.limit:.2%}" in line
        assert line.split()[-1] == "ok"
    assert f"{outcome.streaming:.1%} of the cycles" in text
    assert "every one equals the golden model" in text
    assert "…" not in text, "the tables fit 80 columns"


def test_a_wrong_bit_is_seen(monkeypatch):
    spoil(monkeypatch, 2)
    outcome, text = _run()
    assert all(c.ok for c in outcome.checks), "a bit is far below every limit"
    assert outcome.wrong_words == 1
    assert not outcome.ok
    assert "1 DIFFER from the golden model" in text


def test_wrong_mathematics_is_seen(monkeypatch):
    """Chip and functional model agree on a block with another RoPE; FP64 does not."""
    real = transformer.constants
    monkeypatch.setattr(transformer, "constants", lambda s: real(s) | {"sin": -real(s)["sin"]})
    outcome, text = _run()
    assert outcome.wrong_words == 0
    assert not outcome.ok
    assert "TOO FAR" in text


def test_a_core_that_stops_is_seen(monkeypatch):
    stop(monkeypatch, 2000)
    outcome, text = _run()
    assert not outcome.ok
    assert "stopped after 2000 cycles" in text


@pytest.mark.parametrize("spoiled", [False, True])
def test_exit_status(monkeypatch, spoiled):
    if spoiled:
        spoil(monkeypatch, 2)
    done = CliRunner().invoke(app, COMMAND)
    assert done.exit_code == int(spoiled), done.output
    assert "transformer on nano: 16 positions, width 16, 2 heads, hidden 32" in done.output
