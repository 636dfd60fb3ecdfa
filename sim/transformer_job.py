"""`make sim WORKLOAD=transformer`: a transformer block, forward and backward, on the simulated chip; every word compared with the functional model,
every result with FP64.
"""

from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from models.config import ChipConfig
from sim.job import add_verdict, compare, errors_of, golden, on_chip
from sim.workloads import transformer
from sim.workloads.transformer import Check
from sim.workloads.transformer_shape import Options


@dataclass(slots=True)
class Outcome:
    """What the run showed. `streaming`: share of core 0's cycles in which a column enters the array; `busy`: of each engine's."""

    checks: list[Check]
    instructions: int
    cycles: int
    streaming: float
    busy: dict[str, float]
    cycles_per_second: float
    words: int
    wrong_words: int
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every output word equals the model's, every result is as near FP64 as BF16 allows, no core stopped on an error."""
        exact = self.wrong_words == 0 and self.words > 0 and not self.errors
        return exact and bool(self.checks) and all(check.ok for check in self.checks)


def run_transformer(
    config: ChipConfig, simulator: str, options: Options, console: Console, *, latency: int = 20
) -> Outcome:
    """Run the block on chip and model and compare. Raises WorkloadError for what does not fit the chip."""
    job = transformer.build(config, options)
    s, instructions = job.shape, sum(job.instructions.values())
    console.print(
        f"[bold]transformer[/] on [bold]{config.name}[/]: {s.sequence} positions, width {s.width}, {s.heads} heads, hidden {s.hidden}, bf16, "
        f"{instructions:,} instructions, {simulator}"
    )
    model = golden(config, job.image, console)
    result = on_chip(config, job.image, simulator, console, latency=latency)
    words, wrong = compare(model.outputs, result.outputs)
    counters = result.cores[0].counters
    cycles = max(1, counters["CYCLES"])
    return Outcome(
        transformer.check(job, job.results(result.outputs)),
        instructions,
        result.cycles,
        counters["COLUMNS"] / cycles,
        {n: counters[f"BUSY_{n.upper()}"] / cycles for n in ("tensor", "vector", "scalar", "sync")},
        result.cycles / max(result.seconds, 1e-9),
        words,
        wrong,
        model.errors + errors_of(result),
    )


def report(outcome: Outcome, console: Console) -> None:
    """Print each result's distance from FP64, and the outcome."""
    heads = ("result", "size", "max |x|", "max error", "error", "limit", "rounded", "")
    table = Table(*heads, box=SIMPLE_HEAD)
    for c in outcome.checks:
        table.add_row(
            c.name,
            f"{c.size[0]} x {c.size[1]}",
            f"{c.magnitude:.3f}",
            f"{c.largest:.2%}",
            f"{c.error:.2%}",
            f"{c.limit:.2%}",
            f"{c.rounded_error:.1e}",
            "ok" if c.ok else "[red]TOO FAR[/]",
        )
    console.print(table)
    console.print(
        "max error: largest difference from FP64 over the largest number; error: norm of the difference over the norm; limit of both: "
        f"{transformer.UNIT:.2%} for each BF16 rounding on the way; rounded: error from FP64 with the chip's BF16 roundings, limit {transformer.CLOSE:.1e}"
    )
    summary = Table(show_header=False)
    summary.add_row("cycles", f"{outcome.cycles:,}")
    summary.add_row("tensor engine streams", f"{outcome.streaming:.1%} of the cycles")
    summary.add_row("engines busy", ", ".join(f"{n} {share:.0%}" for n, share in outcome.busy.items()))
    summary.add_row("simulation speed", f"{outcome.cycles_per_second:,.0f} cycles/s")
    add_verdict(summary, outcome)
    console.print(summary)
