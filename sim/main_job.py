"""`make sim`: builds a workload, runs it on the simulated chip, compares every output word with the functional model, reports."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from models.config import ChipConfig
from sim.job import add_verdict, compare, errors_of, golden, on_chip
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
    model = golden(config, job.image, console)
    result = on_chip(config, job.image, simulator, console, latency=latency, total=expected_cycles(job))
    words, wrong = compare(model.outputs, result.outputs)
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
        model.errors + errors_of(result),
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
    add_verdict(table, outcome)
    console.print(table)
