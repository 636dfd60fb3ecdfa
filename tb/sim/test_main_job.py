"""The digits job's own judgement: it counts what differs, and says so."""

import dataclasses

import pytest
from rich.console import Console

from models.config import find
from models.image import Image
from sim import main_job
from sim.main_job import Outcome, compare, report, run_digits
from sim.workloads.layout import WorkloadError

GOOD = Outcome(4, 1.0, 1.0, 1.0, 100, 0.5, 1000.0, 40, 0, [])


def _outputs(*segments):
    image = Image.empty(find("nano"))
    for address, data in segments:
        image.add(address, data)
    return image


def test_compare_counts_words():
    first = _outputs((0, bytes(range(16))), (64, bytes(8)))
    second = _outputs((0, bytes(range(15)) + b"\xff"), (64, bytes(4) + b"\1\0\0\0"))
    assert compare(first, first) == (6, 0)
    assert compare(first, second) == (6, 2)
    with pytest.raises(ValueError, match="0x40 and 0x80"):
        compare(first, _outputs(first.segments[0], (128, bytes(8))))


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
    real = main_job.run_image

    def spoiled(*args, **kwargs):
        result = real(*args, **kwargs)
        address, data = result.outputs.segments[0]
        result.outputs.segments[0] = (address, bytes([data[0] ^ 1]) + data[1:])
        return result

    monkeypatch.setattr(main_job, "run_image", spoiled)
    outcome = run_digits(find("nano"), "bf16", "verilator", 3, Console(quiet=True))
    assert outcome.wrong_words == 1
    assert not outcome.ok
