"""Schedules: whatever turns the engines take, a program ends with the same memory."""

import random

import pytest

from models.config import find
from models.isa import Engine
from models.machine import Machine
from sim.fuzz.ops import Generator
from sim.fuzz.schedule import build
from tb.lib.simulate import rng

CONFIG = find("nano")


def run_in_any_order(machine, chance):
    """Single instructions of engines drawn at random, until none of them moves."""
    core = machine.cores[0]
    while True:
        engines = list(Engine)
        chance.shuffle(engines)
        if not any(core.step(engine) for engine in engines):
            break
    assert not any(state.running for state in core.engines.values())
    assert core.error is None


@pytest.mark.parametrize("program", range(4))
def test_order_does_not_matter(program):
    chance = rng()
    seed = chance.randrange(1 << 30)
    image = build(CONFIG, Generator(CONFIG, random.Random(seed)).ops(30), seed)
    results = []
    for order in range(4):
        machine = Machine(CONFIG)
        machine.load(image)
        if order:
            run_in_any_order(machine, chance)
        else:
            machine.run()
        results.append(machine.outputs(image).to_bytes())
    assert len(set(results)) == 1


def test_outputs_are_what_the_program_made():
    """Not what was loaded: slots that were written have changed."""
    image = build(CONFIG, Generator(CONFIG, random.Random(1)).ops(40), 1)
    machine = Machine(CONFIG)
    machine.load(image)
    machine.run()
    loaded = {bytes(data) for _, data in image.segments}
    changed = [data for _, data in machine.outputs(image).segments if data not in loaded]
    assert len(changed) > len(image.outputs) // 2
