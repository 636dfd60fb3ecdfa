"""Campaigns: what differs is made small, kept, and can be run again."""

import pytest
from typer.testing import CliRunner

from models import fp
from models import image as images
from models.config import find
from models.isa import Opcode
from models.machine import Machine
from sim.cli import app
from sim.fuzz import campaign as campaigns
from sim.fuzz.campaign import campaign

NANO = find("nano")


def test_a_planted_difference_is_made_small(monkeypatch, tmp_path):
    """The model's MAX of a reduction is wrong in its last bit: what is left of the program is that one reduction, and what feeds it."""
    real = fp.reduce

    def wrong(op, x):
        out = real(op, x)
        return (out.view("u4") ^ 1).view("f4")

    monkeypatch.setattr(fp, "reduce", wrong)
    monkeypatch.setattr(campaigns, "OUT", tmp_path)
    failure = campaign(NANO, range(100, 120), 30)
    assert failure is not None
    assert len(failure.ops) <= 2
    assert any(part.opcode == Opcode.TENSOR_REDUCE for op in failure.ops for part in op.parts)
    assert "TENSOR_REDUCE" in failure.image.with_suffix(".asm").read_text()
    machine = Machine(NANO)
    machine.load(images.load(failure.image))
    machine.run()
    assert machine.cores[0].error is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "--count must be at least 1, not 0"),
        (["--length", "-3"], "--length must be at least 1, not -3"),
        (["--seed", "-1"], "--seed must be at least 0, not -1"),
        (["--simulator", "spice"], "--simulator must be one of verilator, icarus, not 'spice'"),
    ],
)
def test_bad_arguments(arguments, message):
    result = CliRunner().invoke(app, ["fuzz", *arguments])
    assert result.exit_code != 0
    assert str(result.exception) == message


def test_the_command():
    result = CliRunner().invoke(app, ["fuzz", "--count", "3", "--length", "8"])
    assert result.exit_code == 0, result.output
    assert "3 programs from seed 0 on: chip and functional model agree" in result.output
