"""The digits job's own judgement: it counts what differs, and says so."""

import dataclasses

import pytest
from rich.console import Console

from models.config import find
from sim.main_job import Outcome, report, run_digits
from sim.workloads.layout import WorkloadError
from tb.sim.jobs import spoil

GOOD = Outcome(4, 1.0, 1.0, 1.0, 100, 0.5, 1000.0, 40, 0, [])


def test_only_equal_words_without_errors_are_ok():
    assert GOOD.ok
    assert not dataclasses.replace(GOOD, wrong_words=1).ok
    assert not dataclasses.replace(GOOD, words=0).ok
    assert not dataclasses.replace(GOOD, errors=["core 0: DMA_RANGE"]).ok


def test_report_names_what_differs(capsys):
    report(dataclasses.replace(GOOD, wrong_words=3, errors=["core 1 stopped"]), Console(width=120))
    text = capsys.readouterr().out
    assert "3 DIFFER from the golden model" in text
    assert "core 1 stopped" in text


@pytest.mark.parametrize("count", [0, -1, 1798])
def test_image_count(count):
    with pytest.raises(WorkloadError, match=f"1 to 1797, not {count}"):
        run_digits(find("nano"), "bf16", "verilator", count, Console(quiet=True))


def test_a_wrong_word_is_seen(monkeypatch):
    spoil(monkeypatch, 0, byte=0)
    outcome = run_digits(find("nano"), "bf16", "verilator", 3, Console(quiet=True))
    assert outcome.wrong_words == 1
    assert not outcome.ok
