"""Many random programs in a row; the first that differs is made small and kept."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models import assembly
from models.config import ChipConfig
from models.image import Image
from sim.fuzz.check import Outcome, check, program
from sim.fuzz.operands import Op
from sim.fuzz.shrink import shrink

OUT = Path(__file__).parent.parent.parent / "build" / "fuzz"


@dataclass(frozen=True, slots=True)
class Failure:
    """What differed, at which seed, and the operations (of a legal program the fewest that still differ); what ran is kept in `image`."""

    seed: int
    difference: str
    ops: list[Op]
    image: Path


def campaign(
    config: ChipConfig,
    seeds: range,
    length: int,
    *,
    illegal: bool = False,
    simulator: str = "verilator",
    progress: Callable[[int, int], None] | None = None,
) -> Failure | None:
    """Run one program of `length` operations for each seed; None when chip and model agree on all; stops at the first that differs.

    `progress` is called with (programs done, words compared). Raises ToolError, SimulationError.
    """
    words = 0
    for n, seed in enumerate(seeds):
        ops = program(config, seed, length)
        outcome = check(config, ops, seed, illegal=illegal, simulator=simulator)
        if outcome.difference is not None:
            return _kept(config, seed, *_reduced(config, ops, seed, outcome, illegal, simulator))
        words += outcome.words
        if progress is not None:
            progress(n + 1, words)
    return None


def _reduced(
    config: ChipConfig, ops: list[Op], seed: int, outcome: Outcome, illegal: bool, simulator: str
) -> tuple[list[Op], Outcome]:
    """The fewest operations that still differ, and how. A spoilt program stays whole: which instruction is spoilt depends on all."""
    if illegal:
        return ops, outcome

    def fails(some: list[Op]) -> bool:
        return check(config, some, seed, simulator=simulator).difference is not None

    ops = shrink(ops, fails)
    return ops, check(config, ops, seed, simulator=simulator)


def _kept(config: ChipConfig, seed: int, ops: list[Op], outcome: Outcome) -> Failure:
    """The failure, with the image that ran and its assembly written to OUT."""
    path = OUT / f"{config.name}-{seed}.img"
    outcome.image.save(path)
    path.with_suffix(".asm").write_text(
        "".join(
            f".engine {engine.name.lower()}\n{assembly.disassemble(_stream(outcome.image, address))}"
            for _, engine, address in outcome.image.entries
        )
    )
    return Failure(seed, str(outcome.difference), ops, path)


def _stream(image: Image, address: int) -> bytes:
    return next(data for start, data in image.segments if start == address)
