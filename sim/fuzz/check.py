"""One random program on the chip and on the functional model."""

import random
from dataclasses import dataclass

import numpy as np

from models.config import ChipConfig
from models.image import Image
from models.isa import ErrorCode
from models.machine import Core, ErrorRecord, Machine
from sim.fuzz.mistakes import CODES, spoil
from sim.fuzz.operands import Op
from sim.fuzz.ops import Generator
from sim.fuzz.schedule import build
from sim.run import CoreResult, run_image

LIMIT = 2_000_000
"""Cycles after which a program counts as hung."""
WATCHDOG = 20_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """`difference`: what the chip did otherwise than the model, None when nothing. `words`: output words compared. `image`: what ran."""

    difference: str | None
    words: int
    image: Image


def program(config: ChipConfig, seed: int, length: int) -> list[Op]:
    """The operations of seed `seed`. Raises ValueError when `config` is too small for random programs."""
    return Generator(config, random.Random(seed)).ops(length)


def check(
    config: ChipConfig, ops: list[Op], seed: int, *, illegal: bool = False, simulator: str = "verilator"
) -> Outcome:
    """`ops` on contents and under stalls made from `seed` (Icarus has no stalls); `illegal`: with one instruction spoilt.

    A legal program must end without an error, a spoilt one with an error of its mistake's kind, on the model as on the chip.
    Raises ToolError or SimulationError.
    """
    image = build(config, ops, seed)
    codes: set[ErrorCode] = {ErrorCode.NONE}
    if illegal:
        image, kind = spoil(config, image, random.Random(seed))
        codes = CODES[kind]
    machine = Machine(config)
    machine.load(image)
    machine.run()
    core = machine.cores[0]
    if (core.error.code if core.error else ErrorCode.NONE) not in codes:
        wanted = " or ".join(code.name for code in sorted(codes))
        return Outcome(f"the model ends with {_text(core.error)}, not with {wanted}", 0, image)
    stall_seed = 0 if simulator == "icarus" else seed % 4
    done = run_image(
        config, image, simulator=simulator, stall_seed=stall_seed, limit=LIMIT, watchdog=WATCHDOG
    )
    if done.timed_out:
        return Outcome(f"the chip still runs after {LIMIT} cycles", 0, image)
    if not _same_end(core, done.cores[0]):
        text = f"the chip ends with {_text(done.cores[0].error)}, the model with {_text(core.error)}"
        return Outcome(text, 0, image)
    if illegal:
        return Outcome(None, 0, image)
    columns = done.cores[0].counters["COLUMNS"]
    if columns != core.counters.columns:
        return Outcome(f"the chip counts {columns} columns, the model {core.counters.columns}", 0, image)
    return _compared(image, machine.outputs(image), done.outputs)


def _compared(image: Image, wanted: Image, got: Image) -> Outcome:
    """Every output word."""
    words = 0
    for (address, want), (_, have) in zip(wanted.segments, got.segments, strict=True):
        a, b = np.frombuffer(want, "<u4"), np.frombuffer(have, "<u4")
        words += a.size
        bad = np.flatnonzero(a != b)
        if bad.size:
            at = int(bad[0])
            text = f"{bad.size} words differ from {address + 4 * at:#x} on: {b[at]:#010x}, not {a[at]:#010x}"
            return Outcome(text, words, image)
    return Outcome(None, words, image)


def _same_end(core: Core, chip: CoreResult) -> bool:
    """Cause, engine, index and address are the same. Of several streams that wait for ever the chip may name any, where it stands."""
    want, got = core.error, chip.error
    if want is None or got is None or want.code != ErrorCode.WATCHDOG:
        return want == got
    state = core.engines[got.engine]
    return got.code == want.code and state.running and state.index == got.index


def _text(error: ErrorRecord | None) -> str:
    if error is None:
        return "no error"
    return f"{error.code.name} in {error.engine.name.lower()}[{error.index}], address {error.addr:#x}"
