"""`make sim WORKLOAD=attention`: softmax attention on core 0, every word compared with the functional model, every head with FP64."""

from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from models.config import ChipConfig
from sim.job import add_verdict, compare, errors_of, golden, on_chip
from sim.workloads import attention
from sim.workloads.attention import Check
from sim.workloads.attention_shape import Options

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


@dataclass(slots=True)
class Outcome:
    """What the run showed. `streaming`: share of core 0's cycles in which a column enters the array; `useful`: multiplications that attention needs over those
    that the array could do in all cycles; `busy`: share of each engine's cycles.
    """

    checks: list[Check]
    instructions: int
    cycles: int
    streaming: float
    useful: float
    busy: dict[str, float]
    cycles_per_second: float
    words: int
    wrong_words: int
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every output word equals the model's, every head is as near FP64 as BF16 exponentials allow, no core stopped on an error."""
        exact = self.wrong_words == 0 and self.words > 0 and not self.errors
        return exact and bool(self.checks) and all(check.ok for check in self.checks)


def run_attention(
    config: ChipConfig, simulator: str, options: Options, console: Console, *, latency: int = 20
) -> Outcome:
    """Run attention on chip and model and compare. Raises WorkloadError for what does not fit the chip."""
    job = attention.build(config, options)
    s, instructions = job.shape, sum(job.instructions.values())
    console.print(
        f"[bold]attention[/] on [bold]{config.name}[/]: {s.heads} heads, {s.sequence} positions, {s.head} features, "
        f"{'causal' if s.causal else 'all keys'}, bf16, {instructions:,} instructions, {simulator}"
    )
    model = golden(config, job.image, console)
    result = on_chip(config, job.image, simulator, console, latency=latency)
    words, wrong = compare(model.outputs, result.outputs)
    counters = result.cores[0].counters
    cycles = max(1, counters["CYCLES"])
    return Outcome(
        attention.check(job, job.result(result.outputs)),
        instructions,
        result.cycles,
        counters["COLUMNS"] / cycles,
        s.macs / s.p**2 / cycles,
        {n: counters[f"BUSY_{n.upper()}"] / cycles for n in ENGINES},
        result.cycles / max(result.seconds, 1e-9),
        words,
        wrong,
        model.errors + errors_of(result),
    )


def report(outcome: Outcome, console: Console) -> None:
    """Print each head's distance from FP64, and the outcome."""
    table = Table("head", "max |x|", "max error", "error", "limit", "rounded", "", box=SIMPLE_HEAD)
    for c in outcome.checks:
        table.add_row(
            str(c.head),
            f"{c.magnitude:.3f}",
            f"{c.largest:.3%}",
            f"{c.error:.3%}",
            f"{attention.BOUND:.3%}",
            f"{c.rounded_error:.1e}",
            "ok" if c.ok else "[red]TOO FAR[/]",
        )
    console.print(table)
    console.print(
        "max error: largest difference from FP64 over the element's sum of weights times |V|; error: norm of the difference over the norm; limit of both: "
        "two BF16 roundings of exponentials and FP32's part; rounded: error from FP64 with the exponentials' BF16 roundings, "
        f"limit {attention.CLOSE:.1e}"
    )
    summary = Table(show_header=False)
    summary.add_row("cycles", f"{outcome.cycles:,}")
    summary.add_row("tensor engine busy", f"{outcome.busy['tensor']:.1%} of the cycles")
    summary.add_row("tensor engine streams", f"{outcome.streaming:.1%} of the cycles")
    summary.add_row("array does useful products", f"{outcome.useful:.1%} of what it could")
    others = ", ".join(f"{n} {share:.0%}" for n, share in outcome.busy.items() if n != "tensor")
    summary.add_row("other engines busy", others)
    summary.add_row("simulation speed", f"{outcome.cycles_per_second:,.0f} cycles/s")
    add_verdict(summary, outcome)
    console.print(summary)
