"""`make sim WORKLOAD=conv`: a convolution network on the simulated chip, every word against the functional model, every tensor against FP64."""

from dataclasses import dataclass, field

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from models.config import ChipConfig
from models.cost import COSTS
from models.image import Image
from sim.job import add_verdict, compare, errors_of, golden, on_chip
from sim.workloads import conv, conv_reference, conv_shape
from sim.workloads.conv_reference import Bounded
from sim.workloads.conv_shape import Options
from sim.workloads.layout import WorkloadError

SEED = 2026


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a tensor is from FP64: largest error, largest error allowed, and the largest share of what is allowed in its place."""

    error: float
    allowed: float
    share: float

    @property
    def ok(self) -> bool:
        """Nowhere more than is allowed there; a NaN is more."""
        return self.share <= 1


@dataclass(frozen=True, slots=True)
class Check:
    """One tensor: `numbers`, those whose bits `differ` from the functional model's, and its distance from FP64 over the `whole` network and,
    where there is a step before it, over its own `step`.
    """

    name: str
    numbers: int
    differ: int
    whole: Distance
    step: Distance | None

    @property
    def ok(self) -> bool:
        """No bit differs, no error is too large."""
        return self.differ == 0 and self.whole.ok and (self.step is None or self.step.ok)


@dataclass(slots=True)
class Outcome:
    """What the run showed. `streaming`: share of cycles in which a column entered a tensor array; `words` of 32 bits over all outputs."""

    options: Options
    checks: list[Check]
    mean_loss: float
    cycles: int
    streaming: float
    busy: dict[str, float]
    cycles_per_second: float
    words: int
    wrong_words: int
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every word equals the model's, every tensor is near FP64, no core stopped on an error."""
        good = all(check.ok for check in self.checks)
        return good and self.wrong_words == 0 and self.words > 0 and not self.errors


def distance(got: conv.F64, want: Bounded) -> Distance:
    """The distance of `got` from `want`, shapes equal. NaN on one side only, or infinities that differ, are infinitely far."""
    same = (got == want.value) | (np.isnan(got) & np.isnan(want.value))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(got - want.value))
    error = np.where(np.isnan(error), np.inf, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(error == 0, 0.0, error / want.bound)
    share = np.where(np.isnan(share), np.inf, share)
    return Distance(float(error.max()), float(want.bound.max()), float(share.max()))


def examine(job: conv.Job, expected: Image, actual: Image) -> list[Check]:
    """Every tensor of `actual` against the functional model's outputs `expected` and against FP64."""
    o = job.shape.options
    got = {name: job.tensor(actual, name) for name in conv.OUTPUTS}
    whole = conv_reference.reference(o, job.data)
    step = conv_reference.steps(o, job.data, got)
    out = []
    for name, value in got.items():
        differ = int((job.codes(expected, name) != job.codes(actual, name)).sum())
        own = distance(value, step[name]) if name in step else None
        out.append(Check(name, value.size, differ, distance(value, whole[name]), own))
    return out


def expected_cycles(config: ChipConfig, job: conv.Job) -> int:
    """A rough number of cycles, for the progress bar only: the scalar engine's, which is busy for most of the time, and a start."""
    longest = max(
        sum(COSTS[i.opcode].cycles(config, i) for i in program.scalar.instructions if i.opcode in COSTS)
        for program in job.programs
    )
    return longest + 10_000


def run_conv(
    config: ChipConfig,
    simulator: str,
    options: Options,
    console: Console,
    *,
    latency: int = 20,
    seed: int = SEED,
) -> Outcome:
    """Run `options` on random data of `seed` and compare. `latency` is the memory channels', in cycles. Raises WorkloadError."""
    if latency < 1:
        raise WorkloadError(f"latency must be at least 1 cycle, not {latency}")
    o = options
    conv_shape.shape(config, o)  # before data is drawn for a size that does not fit
    job = conv.build(config, o, conv.draw(o, seed))
    console.print(
        f"[bold]conv[/] on [bold]{config.name}[/]: {o.images} image{'s' * (o.images > 1)} of {o.channels} x {o.height} x {o.width}, {o.filters} kernels of "
        f"{o.kernel} x {o.kernel}, stride {o.stride}, padding {o.padding}, {o.classes} classes, bf16, {simulator}"
    )
    model = golden(config, job.image, console)
    result = on_chip(
        config, job.image, simulator, console, latency=latency, total=expected_cycles(config, job)
    )
    words, wrong = compare(model.outputs, result.outputs)
    used = [c.counters for c in result.cores if c.counters["CYCLES"]]
    cycles = max(1, sum(c["CYCLES"] for c in used))
    return Outcome(
        o,
        examine(job, model.outputs, result.outputs),
        float(job.tensor(result.outputs, "loss").mean()),
        result.cycles,
        sum(c["COLUMNS"] for c in used) / cycles,
        {
            n: sum(c[f"BUSY_{n.upper()}"] for c in used) / cycles
            for n in ("tensor", "vector", "scalar", "sync")
        },
        result.cycles / max(result.seconds, 1e-9),
        words,
        wrong,
        model.errors + errors_of(result),
    )


def report(outcome: Outcome, console: Console) -> None:
    """Print the tensors, then the run, as tables."""
    names = ("tensor", "numbers", "differ", "error", "allowed", "step", "allowed", "worst", "")
    table = Table(*names, box=SIMPLE, collapse_padding=True, pad_edge=False)
    for c in outcome.checks:
        step = (f"{c.step.error:.1e}", f"{c.step.allowed:.1e}") if c.step is not None else ("", "")
        table.add_row(
            c.name,
            f"{c.numbers:,}",
            f"{c.differ:,}",
            f"{c.whole.error:.1e}",
            f"{c.whole.allowed:.1e}",
            *step,
            f"{max(d.share for d in (c.whole, c.step) if d is not None):.0%}",
            "ok" if c.ok else "[red]WRONG[/]",
        )
    console.print(table)
    console.print(
        "differ: from the functional model, bit for bit. error: the largest against FP64, over the whole network; step: over the tensor's "
        "own step; allowed: what the roundings to BF16 and FP32 can add up to; worst: the largest share of it in any place."
    )
    summary = Table(show_header=False)
    summary.add_row("mean loss", f"{outcome.mean_loss:.4f}")
    summary.add_row("cycles", f"{outcome.cycles:,}")
    summary.add_row("tensor engine streams", f"{outcome.streaming:.1%} of the cycles")
    summary.add_row("engines busy", ", ".join(f"{n} {share:.0%}" for n, share in outcome.busy.items()))
    summary.add_row("simulation speed", f"{outcome.cycles_per_second:,.0f} cycles/s")
    add_verdict(summary, outcome)
    console.print(summary)
