"""What the jobs of `make sim` have in common: an image on the functional model and on the chip, all words compared, and the verdict printed."""

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from models.config import ChipConfig
from models.image import Image
from models.machine import Machine
from sim.run import RunResult, run_image


class Judged(Protocol):
    """An outcome: 32-bit output words, those of them that differ from the functional model's, and what else went wrong."""

    words: int
    wrong_words: int
    errors: list[str]


@dataclass(frozen=True, slots=True)
class Golden:
    """What the functional model made of an image: its output regions, a line for each core that stopped on an error, wall seconds."""

    outputs: Image
    errors: list[str]
    seconds: float


def golden(config: ChipConfig, image: Image, console: Console) -> Golden:
    """Run `image` on the functional model, and print how long it took."""
    started = time.perf_counter()
    with console.status("functional model"):
        machine = Machine(config)
        machine.load(image)
        machine.run()
    seconds = time.perf_counter() - started
    console.print(f"functional model: {seconds:.1f} s")
    stopped = [(i, core.error) for i, core in enumerate(machine.cores) if core.error is not None]
    errors = [f"functional model, core {i}: {error}" for i, error in stopped]
    return Golden(machine.outputs(image), errors, seconds)


def on_chip(
    config: ChipConfig,
    image: Image,
    simulator: str,
    console: Console,
    *,
    latency: int,
    total: int | None = None,
) -> RunResult:
    """Run `image` on the simulated chip behind a progress bar of cycles, of which `total` are expected (None: unknown)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} cycles"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("building the simulator, then running", total=total)
        result = run_image(
            config,
            image,
            simulator=simulator,
            progress=lambda done: bar.update(task, completed=done, description="running"),
            latency=latency,
        )
        bar.update(task, total=result.cycles, completed=result.cycles, description="ran")
    return result


def errors_of(result: RunResult) -> list[str]:
    """What went wrong in a run, a line each."""
    out = list(result.notes)
    for number, core in enumerate(result.cores):
        if core.error is not None:
            e = core.error
            out.append(
                f"core {number}: {e.code.name} in {e.engine.name.lower()}[{e.index}], address {e.addr:#x}"
            )
    if result.timed_out:
        out.append(f"stopped after {result.cycles} cycles without an end")
    return out


def compare(expected: Image, actual: Image) -> tuple[int, int]:
    """(32-bit words, words that differ) over all output regions."""
    words = wrong = 0
    for (address, want), (other, got) in zip(expected.segments, actual.segments, strict=True):
        if address != other:
            raise ValueError(f"output regions differ: {address:#x} and {other:#x}")
        a, b = (np.frombuffer(x, dtype="<u4") for x in (want, got))
        words += a.size
        wrong += int((a != b).sum())
    return words, wrong


def add_verdict(table: Table, outcome: Judged, what: str = "output words") -> None:
    """A row that says whether every word is right, and one for each error."""
    verdict = (
        "every one equals the golden model"
        if outcome.wrong_words == 0
        else f"{outcome.wrong_words:,} DIFFER from the golden model"
    )
    table.add_row(what, f"{outcome.words:,}: {verdict}")
    for error in outcome.errors:
        table.add_row("[red]error[/]", error)
