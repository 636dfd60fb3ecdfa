"""One random program on the chip and on the functional model."""

import random
from dataclasses import dataclass

import numpy as np

from models.config import ChipConfig
from models.image import Image
from models.isa import ErrorCode
from models.machine import ErrorRecord, Machine
from sim.fuzz.mistakes import CODES, spoil
from sim.fuzz.ops import Generator, Op
from sim.fuzz.schedule import build
from sim.run import run_image

LIMIT = 2_000_000
"""Cycles after which a program counts as hung."""
WATCHDOG = 20_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """`difference`: what the chip did otherwise than the model, None when nothing. `words`: output words compared."""

    difference: str | None
    words: int
    cycles: int


def program(config: ChipConfig, seed: int, length: int) -> list[Op]:
    """The operations of seed `seed`."""
    return Generator(config, random.Random(seed)).ops(length)


def compare(
    config: ChipConfig, image: Image, *, simulator: str = "verilator", stall_seed: int = 0
) -> Outcome:
    """Run `image` on both. Raises ToolError or SimulationError."""
    machine = Machine(config)
    machine.load(image)
    machine.run()
    done = run_image(
        config, image, simulator=simulator, stall_seed=stall_seed, limit=LIMIT, watchdog=WATCHDOG
    )
    if done.timed_out:
        return Outcome(f"the chip still runs after {LIMIT} cycles", 0, done.cycles)
    want_error, got_error = machine.cores[0].error, done.cores[0].error
    if _named(want_error) != _named(got_error):
        return Outcome(
            f"the chip ends with {_text(got_error)}, the model with {_text(want_error)}", 0, done.cycles
        )
    if want_error is not None:
        return Outcome(None, 0, done.cycles)
    words = 0
    for (address, want), (_, got) in zip(machine.outputs(image).segments, done.outputs.segments, strict=True):
        a, b = np.frombuffer(want, "<u4"), np.frombuffer(got, "<u4")
        words += a.size
        bad = np.flatnonzero(a != b)
        if bad.size:
            at = int(bad[0])
            text = f"{bad.size} words differ from {address + 4 * at:#x} on: {b[at]:#010x}, not {a[at]:#010x}"
            return Outcome(text, words, done.cycles)
    return Outcome(None, words, done.cycles)


def _named(error: ErrorRecord | None) -> tuple[int, ...] | None:
    """What both must agree on. A range error's address may be another bad element's; of engines that wait for ever any may be named."""
    if error is None:
        return None
    if error.code == ErrorCode.WATCHDOG:
        return (error.code,)
    return (error.code, error.engine, error.index)


def _text(error: ErrorRecord | None) -> str:
    return "no error" if error is None else f"{error.code.name} in {error.engine.name.lower()}[{error.index}]"


def check(
    config: ChipConfig, ops: list[Op], seed: int, *, illegal: bool = False, simulator: str = "verilator"
) -> Outcome:
    """`ops` on contents and under stalls made from `seed` (Icarus has no stalls); `illegal`: with one instruction spoilt."""
    image = build(config, ops, seed)
    if illegal:
        image, kind = spoil(config, image, random.Random(seed))
        machine = Machine(config)
        machine.load(image)
        machine.run()
        error = machine.cores[0].error
        if error is None or error.code not in CODES[kind]:
            return Outcome(f"the model ends a mistake of kind {kind!r} with {_text(error)}", 0, 0)
    stall_seed = 0 if simulator == "icarus" else seed % 4
    return compare(config, image, simulator=simulator, stall_seed=stall_seed)
