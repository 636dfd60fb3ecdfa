"""`make bench`: speed and size figures, each with the target it is held against; printed as a table and written to build/bench.json."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from models import array, cast
from models import config as configs
from models.config import ChipConfig
from models.formats import DType
from models.image import Image
from models.machine import Machine
from models.program import Program
from sim import probe
from sim.attention_job import run_attention
from sim.main_job import run_digits
from sim.run import run_image
from sim.verilated import VerilatedChip
from sim.workloads import (
    conv,
    conv_shape,
    digits,
    gemm,
    mlp,
    train,
    train_shape,
    transformer,
    transformer_shape,
)
from sim.workloads.attention_shape import Options

ROOT = Path(__file__).parent.parent
OUT = ROOT / "build" / "bench.json"
SEED = 7
SEQUENCE = 1024
"""Positions of the attention that is measured; mini has room for 2,560."""
REPEATS = 8
"""Runs of which the fastest counts: what else the machine does only ever slows one down."""

TRAINED = 20
"""Steps of training that are timed."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure; `ok` says whether it meets `target` (a bound with its sense, as text)."""

    name: str
    value: float
    unit: str
    target: str
    ok: bool


def at_least(name: str, value: float, unit: str, bound: float) -> Figure:
    """A figure that must not be below `bound`."""
    return Figure(name, value, unit, f">= {bound:g}", value >= bound)


def at_most(name: str, value: float, unit: str, bound: float) -> Figure:
    """A figure that must not be above `bound`."""
    return Figure(name, value, unit, f"<= {bound:g}", value <= bound)


def netlist_figures() -> list[Figure]:
    """The full-size chip's netlist, made from nothing in a process of its own: seconds, peak memory, size."""
    folder = ROOT / "build" / "bench-netlist"
    code = (
        "import shutil, sys, time\nfrom pathlib import Path\nstart = time.perf_counter()\n"
        "from models import config\nfrom sim.netlist import peak_bytes, write_netlist\nfolder = Path(sys.argv[1])\n"
        "shutil.rmtree(folder, ignore_errors=True)\nn = write_netlist(config.find('gen3'), folder)\n"
        "size = sum(p.stat().st_size for p in n.sources)\n"
        "print(time.perf_counter() - start, peak_bytes() / 2**30, size / 1e6)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    seconds, peak, size = map(float, done.stdout.split())
    return [
        at_most("netlist gen3: time", seconds, "s", 60),
        at_most("netlist gen3: peak memory", peak, "GiB", 2),
        at_most("netlist gen3: Verilog", size, "MB", 10),
    ]


def gemm_operands(dtype: DType) -> tuple[gemm.Operand, gemm.Operand]:
    """Those of a 16 x 512 x 512 GEMM on mini, the same in every run."""
    rng = np.random.default_rng(SEED)
    a, b = (gemm.operand(dtype, rng.standard_normal((512, columns))) for columns in (16, 512))
    return a, b


def gemm_cycles(dtype: DType) -> tuple[int, int]:
    """(cycles that the tensor engine was busy, columns) of a 16 x 512 x 512 GEMM on mini, operands in SBUF; result checked."""
    cfg = configs.find("mini")
    a, b = gemm_operands(dtype)
    job = gemm.build(cfg, a, b)
    done = run_image(cfg, job.image)
    want = gemm.golden(a, b, cfg)
    if done.cores[0].error is not None or not np.array_equal(
        job.result(done.outputs).view("u4"), want.view("u4")
    ):
        raise RuntimeError(f"the {dtype.name} GEMM's result is not the golden model's: {done.cores[0].error}")
    counters = done.cores[0].counters
    return counters["BUSY_TENSOR"], counters["COLUMNS"]


def gemm_figures() -> list[Figure]:
    """Array utilisation from first load to last result, and MX against BF16."""
    busy, columns = gemm_cycles(DType.BF16)
    mx_busy, mx_columns = gemm_cycles(DType.E4M3X4)
    return [
        at_least("GEMM 16x512x512 bf16 on mini: array use", 100 * columns / busy, "%", 90),
        at_least("GEMM 16x512x512 mxfp8 on mini: array use", 100 * mx_columns / mx_busy, "%", 90),
        at_most("GEMM mxfp8 cycles / bf16 cycles", mx_busy / busy, "", 0.27),
    ]


def speed_figures() -> list[Figure]:
    """Cycles per second of the Verilated mini chip in process, with nothing to do and at the main job, and of the same job under cocotb."""
    cfg = configs.find("mini")
    with VerilatedChip(cfg) as chip:
        chip.step(200)
        best = 0.0
        for _ in range(REPEATS):
            start = time.perf_counter()
            chip.step(20_000)
            best = max(best, 20_000 / (time.perf_counter() - start))
    data = mlp.digits()
    image = digits.build(cfg, mlp.trained(data), data.x, "mxfp8").image
    # In turns, so that a minute in which the machine is busy elsewhere is not the one side's alone.
    runs, probes = [], []
    for _ in range(3):
        runs += [run_image(cfg, image) for _ in range(REPEATS)]
        probes.append(probe.run_under_cocotb(cfg, image))
    cocotb = max(probes, key=lambda p: p.rate)
    if cocotb.outputs != b"".join(data for _, data in runs[0].outputs.segments):
        raise RuntimeError("the digits job's outputs under cocotb are not those of the chip in process")
    rate = max(run.cycles / run.seconds for run in runs)
    return [
        at_least("mini in process", best, "cycles/s", 20_000),
        at_least("mini in process, at the digits job", rate, "cycles/s", 20_000),
        Figure("  the same under cocotb, memories of cocotbext-axi", cocotb.rate, "cycles/s", "-", True),
        at_least("  in process / under cocotb", rate / cocotb.rate, "", 5),
    ]


def jobs(config: ChipConfig) -> dict[str, Image]:
    """The workloads' images: a few steps of training, which cost what each of many does, the others whole."""
    data = mlp.digits()
    network = conv_shape.default(config, None)
    return {
        "train": train.build(config, data, train_shape.Options(steps=TRAINED)).image,
        "transformer": transformer.build(config, transformer_shape.Options()).image,
        "conv": conv.build(config, network, conv.draw(network, SEED)).image,
        "digits": digits.build(config, mlp.trained(data), data.x, "mxfp8").image,
    }


def functional_speed(config: ChipConfig, image: Image) -> tuple[float, float]:
    """(seconds of the functional model, of the RTL in process) for the same image; outputs compared."""
    best = math.inf
    for _ in range(REPEATS):
        machine = Machine(config)
        machine.load(image)
        start = time.perf_counter()
        machine.run()
        best = min(best, time.perf_counter() - start)
    done = run_image(config, image)
    if machine.outputs(image).segments != done.outputs.segments:
        raise RuntimeError(f"outputs on {config.name} are not those of the functional model")
    return best, done.seconds


def functional_figures(name: str) -> list[Figure]:
    """How many times faster the functional model runs a workload than the RTL in process."""
    config = configs.find(name)
    out = []
    for job, image in jobs(config).items():
        model, rtl = functional_speed(config, image)
        label = f"functional model / RTL in process, {job} on {name}"
        if job == "train":
            out.append(at_least(label, rtl / model, "", 50))
        else:
            out.append(Figure(label, rtl / model, "", "-", True))
    return out


def loop_cycles(body: int) -> float:
    """Cycles of a turn of a loop of `body` NOPs, an addition and a branch on nano, memory answering after 20 cycles."""
    cfg = configs.find("nano")
    cycles = []
    for turns in (1, 101):
        program = Program(cfg)
        with program.sync.loop(turns):
            for _ in range(body):
                program.sync.nop()
        program.finish()
        image = Image.empty(cfg)
        image.add_program(0, program, 0x1000)
        done = run_image(cfg, image)
        if done.cores[0].error is not None:
            raise RuntimeError(f"the loop ended in {done.cores[0].error}")
        cycles.append(done.cycles)
    return (cycles[1] - cycles[0]) / 100


def loop_figures() -> list[Figure]:
    """What a turn of a loop costs a sequencer, from the loop buffer and from memory."""
    return [
        at_most("loop of 3 instructions: a turn", loop_cycles(1), "cycles", 16),
        Figure("loop of 32 instructions, more than are kept: a turn", loop_cycles(30), "cycles", "-", True),
    ]


def digits_figures(console: Console) -> list[Figure]:
    """The main job, warm: wall time, accuracy, and whether it is right."""
    start = time.perf_counter()
    outcome = run_digits(configs.find("mini"), "mxfp8", "verilator", None, console)
    seconds = time.perf_counter() - start
    return [
        at_most("make sim, repeated: wall time", seconds, "s", 40),
        at_least("digits accuracy, mxfp8", 100 * outcome.accuracy, "%", 95),
        at_most("digits output words that differ", outcome.wrong_words, "", 0),
    ]


def attention_figures(console: Console) -> list[Figure]:
    """Softmax attention of a head on mini, loads and stores included: what the tensor engine does, and whether it is right."""
    outcome = run_attention(configs.find("mini"), "verilator", Options(heads=1, sequence=SEQUENCE), console)
    size = f"attention 1 x {SEQUENCE} x 64 on mini"
    return [
        at_least(f"{size}: tensor engine busy", 100 * outcome.busy["tensor"], "%", 60),
        at_least(f"{size}: array use", 100 * outcome.streaming, "%", 80),
        at_most(f"{size}: wrong results", 0 if outcome.ok else max(1, outcome.wrong_words), "", 0),
    ]


def model_figures(clock: Callable[[], float] = time.perf_counter) -> list[Figure]:
    """The golden array model's BF16 multiply-accumulates per second, and NumPy's own FP32 matmul beside it. `clock` gives seconds."""
    rng = np.random.default_rng(SEED)
    a, b = (
        cast.encode(DType.BF16, rng.standard_normal((128, n)).astype(np.float32), saturate=False)
        for n in (128, 512)
    )
    array.matmul(a, b, DType.BF16, DType.BF16)
    start = clock()
    array.matmul(a, b, DType.BF16, DType.BF16)
    rate = 128 * 128 * 512 / (clock() - start) / 1e6
    x, y = cast.decode(DType.BF16, a).T.copy(), cast.decode(DType.BF16, b)
    start = clock()
    for _ in range(10):
        x @ y
    reference = 10 * 128 * 128 * 512 / (clock() - start) / 1e6
    return [
        at_least("golden model of the array, bf16", rate, "million MAC/s", 20),
        Figure("  the same / NumPy FP32 matmul (another order, not exact)", rate / reference, "", "-", True),
    ]


def run_bench_suite(console: Console, *, quick: bool = False) -> bool:
    """Measure everything, print, write build/bench.json; True when every target is met."""
    parts: list[tuple[str, Callable[[], list[Figure]]]] = [
        ("golden model", model_figures),
        ("simulation speed", speed_figures),
        ("functional model", lambda: functional_figures("mini")),
        ("GEMM", gemm_figures),
        ("loops", loop_figures),
        ("attention", lambda: attention_figures(console)),
        ("digits", lambda: digits_figures(console)),
    ]
    if not quick:
        parts.append(("functional model, a larger chip", lambda: functional_figures("small")))
        parts.append(("full-size netlist", netlist_figures))
    figures: list[Figure] = []
    for name, measure in parts:
        console.print(f"measuring: {name}")
        figures += measure()
    table = Table("figure", "value", "target", "")
    for f in figures:
        table.add_row(f.name, f"{f.value:,.4g} {f.unit}", f.target, "ok" if f.ok else "[red]MISSED[/]")
    console.print(table)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(
        json.dumps({"cores": os.cpu_count(), "figures": [asdict(f) for f in figures]}, indent=1) + "\n"
    )
    console.print(f"written to {OUT.relative_to(ROOT)}")
    return all(f.ok for f in figures)
