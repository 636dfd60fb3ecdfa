"""`make sim WORKLOAD=conv`: tables and verdict, and that whatever differs is seen."""

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from models.config import find
from sim.cli import app
from sim.conv_job import distance, report, run_conv
from sim.workloads import conv
from sim.workloads.conv_program import ConvProgram
from sim.workloads.conv_reference import Bounded
from sim.workloads.conv_shape import Options
from sim.workloads.layout import WorkloadError
from tb.sim.jobs import spoil

NANO = find("nano")
SMALL = Options(2, channels=3, filters=4, height=5, width=5, classes=6)


def _run(options=SMALL, **more):
    console = Console(record=True, width=80)
    outcome = run_conv(NANO, "verilator", options, console, **more)
    report(outcome, console)
    return outcome, console.export_text()


def _spoil(monkeypatch, name: str, bit: int):
    """One bit of a tensor's first number changes on its way from the chip."""
    spoil(monkeypatch, list(conv.OUTPUTS).index(name), byte=bit // 8, bit=bit % 8)


def test_tables_and_verdict():
    outcome, text = _run()
    assert outcome.ok
    assert [c.name for c in outcome.checks] == list(conv.OUTPUTS)
    assert outcome.words == 200 + 200 + 100 + 12 + 2 + 12
    assert [c.numbers for c in outcome.checks] == [200, 200, 200, 12, 2, 12]
    columns = 9 * 50 + 25 * 6 + 2 * 3 * 2
    assert outcome.streaming == pytest.approx(columns / outcome.cycles, rel=0.01)
    for name in conv.OUTPUTS:
        assert name in text
    assert "every one equals the golden model" in text
    assert "WRONG" not in text
    assert "…" not in text, "the table fits 80 columns"


@pytest.mark.parametrize("name", list(conv.OUTPUTS))
def test_a_wrong_bit_is_seen(monkeypatch, name):
    _spoil(monkeypatch, name, 0)
    outcome, text = _run()
    assert outcome.wrong_words == 1
    assert [c.name for c in outcome.checks if c.differ] == [name]
    assert not outcome.ok
    assert "1 DIFFER from the golden model" in text
    assert text.count("WRONG") >= 1


def test_a_wrong_program_is_seen(monkeypatch):
    """Chip and model agree about a program that does not normalise by the features' count; FP64 does not."""
    real = ConvProgram.deviations

    def wrong(self, first, count):
        there = real(self, first, count)
        fields = self.a.instructions[-1].fields
        fields["imm0"] = int(np.float32(1 / (self.o.features - 1)).view(np.uint32))
        return there

    monkeypatch.setattr(ConvProgram, "deviations", wrong)
    outcome, text = _run()
    assert outcome.wrong_words == 0
    assert not outcome.ok
    assert "norm" in [c.name for c in outcome.checks if not c.ok]
    assert "WRONG" in text


def test_exit_status(monkeypatch):
    args = ["sim", "--workload", "conv", "--config", "nano", "--images", "1"]
    assert CliRunner().invoke(app, args).exit_code == 0
    _spoil(monkeypatch, "gradient", 3)
    assert CliRunner().invoke(app, args).exit_code == 1


def test_too_many_images_and_no_latency():
    done = CliRunner().invoke(app, ["sim", "--workload", "conv", "--config", "nano", "--images", "9"])
    assert str(done.exception) == "images must be from 1 to 8 on nano, not 9"
    with pytest.raises(WorkloadError, match="latency must be at least 1 cycle, not 0"):
        _run(latency=0)


def test_distance():
    nan, inf = float("nan"), float("inf")

    def near(got, value, bound):
        return distance(*(np.array([x]) for x in (got,)), Bounded(np.array([value]), np.array([bound])))

    assert near(1.5, 1.0, 1.0).share == 0.5
    assert near(1.0, 1.0, 0.0).ok
    assert not near(1.5, 1.0, 0.25).ok
    assert not near(1.5, 1.0, 0.0).ok
    assert near(nan, nan, 0.0).ok
    assert not near(nan, 1.0, 1.0).ok
    assert not near(1.0, nan, 1.0).ok
    assert not near(1.0, 1.5, nan).ok
    assert near(inf, inf, 1.0).ok
    assert not near(inf, -inf, 1.0).ok
    assert not near(inf, 1.0, 1.0).ok
