"""Random operations: legal, of every kind, the same for the same seed."""

import random
from collections import Counter

import pytest

from models.config import find
from models.isa import OPS, Opcode
from models.machine import Machine
from sim.fuzz.ops import Generator
from sim.fuzz.schedule import build
from tb.lib.simulate import rng

CONFIGS = ["nano", "mini"]


@pytest.mark.parametrize("name", CONFIGS)
def test_programs_are_legal(name):
    config, base = find(name), rng().randrange(1 << 30)
    for seed in range(base, base + 8):
        machine = Machine(config)
        machine.load(build(config, Generator(config, random.Random(seed)).ops(40), seed))
        machine.run()
        assert machine.cores[0].error is None, f"seed {seed}: {machine.cores[0].error}"


def test_every_opcode_comes():
    counts: Counter[Opcode] = Counter()
    for seed in range(130):
        for op in Generator(find("nano"), random.Random(seed)).ops(30):
            counts.update(part.opcode for part in op.parts)
    missing = set(OPS) - set(counts) - {Opcode.NOP, Opcode.HALT}
    assert not missing
    assert min(counts.values()) > 40


def test_a_seed_says_it_all():
    config = find("nano")
    one, two = (build(config, Generator(config, random.Random(5)).ops(30), 5).to_bytes() for _ in range(2))
    other = build(config, Generator(config, random.Random(6)).ops(30), 6).to_bytes()
    assert one == two
    assert one != other
