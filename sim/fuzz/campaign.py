"""Many random programs in a row; the first that differs is made small and kept."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models import assembly
from models.config import ChipConfig
from sim.fuzz.check import check, program
from sim.fuzz.ops import Op
from sim.fuzz.schedule import build
from sim.fuzz.shrink import shrink

OUT = Path(__file__).parent.parent.parent / "build" / "fuzz"


@dataclass(frozen=True, slots=True)
class Failure:
    """What differed, at which seed, and the fewest operations with which it still does; the image is kept in `image`."""

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
    """Run one program of `length` operations for each seed; None when chip and model agree on all.

    `progress` is called with (programs done, words compared). Raises ToolError, SimulationError.
    """
    words = 0
    for n, seed in enumerate(seeds):
        ops = program(config, seed, length)
        outcome = check(config, ops, seed, illegal=illegal, simulator=simulator)
        if outcome.difference is not None:
            return _reduced(config, ops, seed, outcome.difference, illegal, simulator)
        words += outcome.words
        if progress is not None:
            progress(n + 1, words)
    return None


def _reduced(
    config: ChipConfig, ops: list[Op], seed: int, difference: str, illegal: bool, simulator: str
) -> Failure:
    if not illegal:  # a mistake depends on all that is there

        def fails(some: list[Op]) -> bool:
            return check(config, some, seed, simulator=simulator).difference is not None

        ops = shrink(ops, fails)
        difference = check(config, ops, seed, simulator=simulator).difference or difference
    image = build(config, ops, seed)
    path = OUT / f"{config.name}-{seed}.img"
    image.save(path)
    path.with_suffix(".asm").write_text(
        "".join(
            f".engine {engine.name.lower()}\n{assembly.disassemble(_stream(image.segments, address))}"
            for _, engine, address in image.entries
        )
    )
    return Failure(seed, difference, ops, path)


def _stream(segments: list[tuple[int, bytes]], address: int) -> bytes:
    return next(data for start, data in segments if start == address)
