"""Campaigns: what differs is made small, kept, and can be run again."""

import dataclasses

import pytest
from typer.testing import CliRunner

from models import fp
from models import image as images
from models.config import PsumConfig, SbufConfig, find
from models.elements import REDUCES
from models.machine import Machine
from sim.cli import app
from sim.fuzz import campaign as campaigns
from sim.fuzz import check as checks
from sim.fuzz.campaign import campaign

NANO = find("nano")


def test_a_planted_difference_is_made_small(monkeypatch, tmp_path):
    """The model's reductions are wrong in their last bit: what is left of the program is that one reduction, and what feeds it."""
    real = fp.reduce

    def wrong(op, x):
        out = real(op, x)
        return (out.view("u4") ^ 1).view("f4")

    monkeypatch.setattr(fp, "reduce", wrong)
    monkeypatch.setattr(campaigns, "OUT", tmp_path)
    failure = campaign(NANO, range(100, 120), 30)
    assert failure is not None
    assert len(failure.ops) <= 2
    reduced = {part.opcode for op in failure.ops for part in op.parts} & {*REDUCES}
    assert reduced
    text = failure.image.with_suffix(".asm").read_text()
    assert all(opcode.name in text for opcode in reduced)
    machine = Machine(NANO)
    machine.load(images.load(failure.image))
    machine.run()
    assert machine.cores[0].error is None


def test_a_spoilt_program_that_differs_is_kept_as_it_ran(monkeypatch, tmp_path):
    """The chip is made to say nothing: the kept image is the one with the mistake."""
    real = checks.run_image

    def silent(config, image, **options):
        done = real(config, image, **options)
        done.cores[0].error = None
        return done

    monkeypatch.setattr(checks, "run_image", silent)
    monkeypatch.setattr(campaigns, "OUT", tmp_path)
    failure = campaign(NANO, range(3, 4), 8, illegal=True)
    assert failure is not None
    assert failure.difference.startswith("the chip ends with no error, the model with ")
    assert len(failure.ops) == 8
    machine = Machine(NANO)
    machine.load(images.load(failure.image))
    machine.run()
    assert machine.cores[0].error is not None


def test_a_chip_too_small_is_refused(tmp_path):
    small = dataclasses.replace(NANO, psum=PsumConfig(banks=2, bank_bytes=512))
    with pytest.raises(ValueError, match=r"psum.banks \* psum.bank_bytes must be at least 2048 .* not 1024"):
        campaign(small, range(1), 5)
    small = dataclasses.replace(NANO, sbuf=SbufConfig(bytes_per_partition=2048, banks=4))
    with pytest.raises(ValueError, match=r"sbuf.bytes_per_partition must be at least 3072 .* not 2048"):
        campaign(small, range(1), 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "--count must be at least 1, not 0"),
        (["--length", "-3"], "--length must be from 1 to 10000, not -3"),
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
