"""Spoilt programs: the functional model ends each in an error of its kind."""

import random
from collections import Counter

from models.config import find
from models.machine import Machine
from sim.fuzz.check import program
from sim.fuzz.mistakes import CODES, KINDS, spoil
from sim.fuzz.schedule import build
from tb.lib.simulate import rng

CONFIG = find("nano")


def test_each_kind_ends_in_its_error():
    base = rng().randrange(1 << 30)
    kinds: Counter[str] = Counter()
    codes = Counter()
    for seed in range(base, base + 100):
        image, kind = spoil(CONFIG, build(CONFIG, program(CONFIG, seed, 24), seed), random.Random(seed))
        machine = Machine(CONFIG)
        machine.load(image)
        machine.run()
        error = machine.cores[0].error
        assert error is not None, f"seed {seed}: {kind}"
        assert error.code in CODES[kind], f"seed {seed}: {kind}: {error}"
        kinds[kind] += 1
        codes[error.code] += 1
    assert set(kinds) == set(KINDS)
    assert len(codes) >= 4
