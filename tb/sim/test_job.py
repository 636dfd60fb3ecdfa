"""What jobs share: model and chip run the same image, every word is compared, errors of both are lines of the verdict."""

from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.table import Table

from models.config import find
from models.image import Image
from sim.job import add_verdict, compare, errors_of, golden, on_chip
from tb.sim.images import broken, model, vector_image
from tb.sim.jobs import spoil, stop

NANO = find("nano")


def _outputs(*segments):
    image = Image.empty(NANO)
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


def test_model_and_chip_agree(monkeypatch):
    image, console = vector_image(NANO, 6), Console(record=True, width=80)
    want = golden(NANO, image, console)
    assert want.outputs.segments == model(image).outputs(image).segments
    assert want.errors == []
    assert f"functional model: {want.seconds:.1f} s" in console.export_text()
    got = on_chip(NANO, image, "verilator", console, latency=20, total=1000)
    words, wrong = compare(want.outputs, got.outputs)
    assert (words > 0, wrong, errors_of(got)) == (True, 0, [])
    spoil(monkeypatch, 0)
    got = on_chip(NANO, image, "verilator", console, latency=20)
    assert compare(want.outputs, got.outputs) == (words, 1)
    stop(monkeypatch, 10)
    assert errors_of(on_chip(NANO, image, "verilator", console, latency=20)) == [
        "stopped after 10 cycles without an end"
    ]


def test_errors_of_both():
    image, console = broken("dma"), Console(quiet=True)
    (line,) = golden(NANO, image, console).errors
    assert line.startswith("functional model, core 0: ")
    assert "DMA_RANGE" in line
    (line,) = errors_of(on_chip(NANO, image, "verilator", console, latency=20))
    assert line.startswith("core 0: DMA_RANGE in sync[0], address ")


def test_verdict():
    def text(**outcome):
        table, console = Table(), Console(record=True, width=100)
        add_verdict(table, SimpleNamespace(**outcome), "some words")
        console.print(table)
        return console.export_text()

    good = text(words=1234, wrong_words=0, errors=[])
    assert "some words" in good
    assert "1,234: every one equals the golden model" in good
    assert "error" not in good
    bad = text(words=1234, wrong_words=5, errors=["core 1 stopped", "core 2 too"])
    assert "1,234: 5 DIFFER from the golden model" in bad
    assert "core 1 stopped" in bad
    assert "core 2 too" in bad
