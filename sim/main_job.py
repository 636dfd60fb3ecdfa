"""`make sim`: builds a workload, runs it on the simulated chip, compares every output word with the functional model, reports."""

import time
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from models.config import ChipConfig
from models.image import Image
from models.machine import Machine
from sim.run import RunResult, run_image
from sim.workloads import digits, mlp
from sim.workloads.layout import WorkloadError

ICARUS_IMAGES = 64
"""Images that the Icarus run takes by default: it is some hundred times slower than Verilator."""


@dataclass(slots=True)
class Outcome:
    """What the digits job showed. `wrong_words` counts output words that differ from the functional model's."""

    images: int
    accuracy: float
    held_out_accuracy: float
    reference_accuracy: float
    cycles: int
    utilisation: float
    cycles_per_second: float
    words: int
    wrong_words: int
    errors: list[str]

    @property
    def ok(self) -> bool:
        """True when every output word equals the model's and no core stopped on an error."""
        return self.wrong_words == 0 and self.words > 0 and not self.errors


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


def expected_cycles(job: digits.Job) -> int:
    """A rough number of cycles, for the progress bar only."""
    longest = 0
    for program in job.programs:
        columns = sum(i.aps["src0"].size for i in program.vector.instructions if "src0" in i.aps)
        longest = max(longest, columns + 40 * len(program.vector.instructions))
    return longest + 3000


def run_digits(
    config: ChipConfig, fmt: str, simulator: str, count: int | None, console: Console, latency: int = 20
) -> Outcome:
    """The digits workload on `count` images (default: all; Icarus: the first 64). `latency` is the memory channels'."""
    data = mlp.digits()
    n = count if count is not None else (ICARUS_IMAGES if simulator == "icarus" else len(data.y))
    if not 1 <= n <= len(data.y):
        raise WorkloadError(f"images must be from 1 to {len(data.y)}, not {n}")
    if latency < 1:
        raise WorkloadError(f"latency must be at least 1 cycle, not {latency}")
    net = mlp.trained(data)
    job = digits.build(config, net, data.x[:n], fmt)
    console.print(
        f"[bold]digits[/] on [bold]{config.name}[/]: {config.cores} core{'s' * (config.cores > 1)} of {config.partitions} x "
        f"{config.partitions} PEs, {fmt}, {n} images, {simulator}"
    )
    started = time.perf_counter()
    with console.status("functional model"):
        machine = Machine(config)
        machine.load(job.image)
        machine.run()
    model_errors = [
        f"functional model, core {i}: {c.error}" for i, c in enumerate(machine.cores) if c.error is not None
    ]
    console.print(f"functional model: {time.perf_counter() - started:.1f} s")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} cycles"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("building the simulator, then running", total=expected_cycles(job))
        result = run_image(
            config,
            job.image,
            simulator=simulator,
            progress=lambda done: bar.update(task, completed=done, description="running"),
            latency=latency,
        )
        bar.update(task, total=result.cycles, completed=result.cycles, description="ran")
    words, wrong = compare(machine.outputs(job.image), result.outputs)
    guess = digits.logits(job, result.outputs, n).argmax(axis=1)
    right = guess == data.y[:n]
    held = data.held_out[:n]
    busy = [c.counters for c in result.cores if c.counters["CYCLES"]]
    use = sum(c["COLUMNS"] for c in busy) / max(1, sum(c["CYCLES"] for c in busy))
    reference = net.logits(data.x[:n]).argmax(axis=1) == data.y[:n]
    return Outcome(
        n,
        float(right.mean()),
        float(right[held].mean()) if held.any() else float("nan"),
        float(reference.mean()),
        result.cycles,
        use,
        result.cycles / max(result.seconds, 1e-9),
        words,
        wrong,
        model_errors + errors_of(result),
    )


def report(outcome: Outcome, console: Console) -> None:
    """Print the outcome as a table."""
    table = Table(show_header=False)
    table.add_row(
        "accuracy, all images", f"{outcome.accuracy:.2%} (FP64 reference {outcome.reference_accuracy:.2%})"
    )
    table.add_row("accuracy, held out", f"{outcome.held_out_accuracy:.2%}")
    table.add_row("cycles", f"{outcome.cycles:,}")
    table.add_row("tensor utilisation", f"{outcome.utilisation:.1%} of cycles stream a column")
    table.add_row("simulation speed", f"{outcome.cycles_per_second:,.0f} cycles/s")
    verdict = (
        "every one equals the golden model"
        if outcome.wrong_words == 0
        else f"{outcome.wrong_words:,} DIFFER from the golden model"
    )
    table.add_row("output words", f"{outcome.words:,}: {verdict}")
    for error in outcome.errors:
        table.add_row("[red]error[/]", error)
    console.print(table)
