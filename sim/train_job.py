"""`make sim WORKLOAD=train`: trains on the simulated chip, prints the loss as it falls, compares every word with the functional model."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from models.config import ChipConfig
from sim.job import add_verdict, compare, errors_of, golden
from sim.run import run_image
from sim.workloads import mlp, train
from sim.workloads.train_shape import Options

OUT = Path(__file__).parent.parent / "build" / "train"
SHOWN = 20
"""Lines of the loss curve that are printed."""


@dataclass(slots=True)
class Outcome:
    """What the training run showed. `losses`: mean cross-entropy of every step. Accuracies are those of the trained weights in FP64."""

    options: Options
    batch: int
    losses: list[float]
    accuracy: float
    held_out_accuracy: float
    cycles: int
    streaming: float
    busy: dict[str, float]
    cycles_per_second: float
    model_seconds: float
    rtl_seconds: float
    words: int
    wrong_words: int
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every output word equals the model's, no core stopped on an error."""
        return self.wrong_words == 0 and self.words > 0 and not self.errors


def run_training(
    config: ChipConfig,
    simulator: str,
    options: Options,
    console: Console,
    *,
    latency: int = 20,
    folder: Path = OUT,
) -> Outcome:
    """Train, compare with the functional model, write losses.json and loss.png to `folder`. Raises WorkloadError."""
    data = mlp.digits()
    job = train.build(config, data, options)
    console.print(
        f"[bold]train[/] on [bold]{config.name}[/]: {options.steps} steps of {job.shape.batch} samples, {options.format}, "
        f"learning rate {options.rate:g}, momentum {options.momentum:g}, {simulator}"
    )
    model = golden(config, job.image, console)
    every = max(1, options.steps // SHOWN)
    size = 4 * job.shape.batch
    shown = 0

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("step {task.completed}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("building the simulator, then training", total=options.steps)

        def show(memory: NDArray[np.uint8]) -> None:
            """Print the losses that have come since the last look."""
            nonlocal shown
            while shown < options.steps:
                raw = memory[job.losses + shown * size : job.losses + (shown + 1) * size]
                if (raw.view("<u4") == train.UNWRITTEN).any():
                    break
                if shown % every == 0:
                    bar.console.print(f"step {shown:4d}  loss {job.loss(raw.tobytes(), 0):.4f}")
                shown += 1
            bar.update(task, completed=shown, description="training")

        result = run_image(config, job.image, simulator=simulator, latency=latency, watch=show)
        bar.update(task, completed=options.steps, description="trained")
    words, wrong = compare(model.outputs, result.outputs)
    losses_raw, params_raw = (raw for _, raw in result.outputs.segments)
    net = job.network(params_raw)
    right = net.logits(data.x).argmax(axis=1) == data.y
    counters = result.cores[0].counters
    cycles = max(1, counters["CYCLES"])
    outcome = Outcome(
        options,
        job.shape.batch,
        [job.loss(losses_raw, i) for i in range(options.steps)],
        float(right.mean()),
        float(right[data.held_out].mean()),
        result.cycles,
        counters["COLUMNS"] / cycles,
        {n: counters[f"BUSY_{n.upper()}"] / cycles for n in ("tensor", "vector", "scalar", "sync")},
        result.cycles / max(result.seconds, 1e-9),
        model.seconds,
        result.seconds,
        words,
        wrong,
        model.errors + errors_of(result),
    )
    _save(outcome, config, folder)
    return outcome


def _save(outcome: Outcome, config: ChipConfig, folder: Path) -> None:
    """The losses as JSON and as a plot."""
    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {
            "config": config.name,
            "batch": outcome.batch,
            "losses": outcome.losses,
            "held_out_accuracy": outcome.held_out_accuracy,
        },
        indent=1,
    )
    (folder / "losses.json").write_text(text + "\n")
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot(outcome.losses)
    axes.set(xlabel="step", ylabel="mean cross-entropy", title=f"digits trained on {config.name}")
    axes.grid(visible=True)
    figure.savefig(folder / "loss.png", dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def report(outcome: Outcome, console: Console, folder: Path = OUT) -> None:
    """Print the outcome as a table."""
    table = Table(show_header=False)
    table.add_row("loss, first and last step", f"{outcome.losses[0]:.4f}, {outcome.losses[-1]:.4f}")
    table.add_row(
        "accuracy of the trained weights",
        f"{outcome.accuracy:.2%} of all, {outcome.held_out_accuracy:.2%} held out",
    )
    per_step = outcome.cycles / outcome.options.steps
    table.add_row("cycles", f"{outcome.cycles:,} ({per_step:,.0f} a step)")
    table.add_row("tensor engine streams", f"{outcome.streaming:.1%} of the cycles")
    table.add_row("engines busy", ", ".join(f"{n} {share:.0%}" for n, share in outcome.busy.items()))
    table.add_row("simulation speed", f"{outcome.cycles_per_second:,.0f} cycles/s")
    table.add_row(
        "model / RTL in process", f"{outcome.rtl_seconds / max(outcome.model_seconds, 1e-9):.1f} times faster"
    )
    table.add_row("loss curve", f"{folder / 'loss.png'}")
    add_verdict(table, outcome, "loss and weight words")
    console.print(table)
