"""Random programs, legal and spoilt, on the simulated chip and on the functional model."""

import dataclasses
import random

import pytest

from models.config import TensorConfig, find
from models.formats import MAC_CLASSES
from models.image import Image
from sim.fuzz import check as checks
from sim.fuzz.check import check, program
from tb.lib.simulate import rng

NANO = find("nano")
EACH = 10
"""Programs of a test; 50 in all for a change, 2,000 in a regression."""


def run(count, length, *, illegal=False, simulator="verilator", config=NANO):
    base = rng().randrange(1 << 30)
    for seed in range(base, base + count):
        ops = program(config, seed, length)
        outcome = check(config, ops, seed, illegal=illegal, simulator=simulator)
        assert outcome.difference is None, f"tesela fuzz --count 1 --seed {seed} --length {length}: {outcome}"
        assert illegal or outcome.words > 0


@pytest.mark.parametrize("batch", range(5))
def test_legal_programs(batch):
    run(EACH, 30)


@pytest.mark.parametrize("batch", range(3))
def test_illegal_programs(batch):
    run(EACH, 12, illegal=True)


def test_icarus():
    run(1, 12, simulator="icarus")


@pytest.mark.regress
@pytest.mark.parametrize("batch", range(40))
def test_many_legal_programs(batch):
    run(50, 60)


@pytest.mark.regress
@pytest.mark.parametrize("batch", range(20))
def test_many_illegal_programs(batch):
    run(50, 20, illegal=True)


@pytest.mark.regress
def test_programs_on_mini():
    run(40, 60, config=find("mini"))


@pytest.mark.regress
def test_programs_with_fp32_and_double_rows():
    """A tensor engine that has every format."""
    tensor = TensorConfig(
        formats=tuple(sorted(frozenset().union(*MAC_CLASSES))), double_row=NANO.tensor.double_row
    )
    run(40, 60, config=dataclasses.replace(NANO, name="nano-all", tensor=tensor))


def test_a_wrong_word_is_found(monkeypatch):
    real = checks.run_image

    def wrong(config, image, **options):
        done = real(config, image, **options)
        _, data = done.outputs.segments[3]
        changed = bytes([*data[:9], data[9] ^ 1, *data[10:]])
        outputs = Image(image.config_hash, image.memory_bytes)
        for n, (start, old) in enumerate(done.outputs.segments):
            outputs.add(start, changed if n == 3 else old)
        return dataclasses.replace(done, outputs=outputs)

    monkeypatch.setattr(checks, "run_image", wrong)
    outcome = check(NANO, program(NANO, 1, 5), 1)
    assert outcome.difference is not None
    assert outcome.difference.startswith("1 words differ from 0x43008 on: ")


def test_another_error_is_found(monkeypatch):
    real = checks.run_image

    def wrong(config, image, **options):
        done = real(config, image, **options)
        done.cores[0].error = None
        return done

    monkeypatch.setattr(checks, "run_image", wrong)
    outcome = check(NANO, program(NANO, 1, 5), 1, illegal=True)
    assert outcome.difference is not None
    assert outcome.difference.startswith("the chip ends with no error, the model with ")


def test_a_legal_program_must_not_end_in_an_error(monkeypatch):
    """An image that is wrong on both sides alike is no agreement."""
    real = checks.build

    def spoilt(config, ops, seed):
        return checks.spoil(config, real(config, ops, seed), random.Random(seed))[0]

    monkeypatch.setattr(checks, "build", spoilt)
    outcome = check(NANO, program(NANO, 2, 5), 2)
    assert outcome.difference is not None
    assert outcome.difference.endswith("not with NONE")


def test_a_wrong_count_of_columns_is_found(monkeypatch):
    real = checks.run_image

    def wrong(config, image, **options):
        done = real(config, image, **options)
        done.cores[0].counters["COLUMNS"] += 1
        return done

    monkeypatch.setattr(checks, "run_image", wrong)
    outcome = check(NANO, program(NANO, 1, 5), 1)
    assert outcome.difference is not None
    assert " columns, the model " in outcome.difference
