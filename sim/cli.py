"""The `tesela` command. Errors are one line on standard error and exit status 1."""

import sys
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from models import assembly, encoding
from models import config as configs
from models import image as images
from models.isa import Engine
from models.program import ProgramError
from sim import tools

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tesela: an open AI accelerator.",
)
console = Console()

ConfigOption = Annotated[str, typer.Option("--config", help="preset name or a .toml file")]
SimulatorOption = Annotated[str, typer.Option("--simulator", help="verilator or icarus")]


INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 and the signal's number."""
MOST_LATENCY = 1_000_000
"""Cycles: a memory of a millisecond at 1 GHz, far below the simulators' 32 bits."""
MOST_CYCLES = 2**63 - 1
MOST_WATCHDOG = 2**32 - 1
"""What the WATCHDOG register holds."""
MOST_ARGUMENTS = 100_000_000
"""Arguments of a function that are measured at once: 100 bytes of the host's memory each."""
MOST_OPERATIONS = 10_000
"""Operations of a random program: their instructions fit the smallest preset's memory."""


def _within(key: str, value: int, least: int, most: int | None = None) -> None:
    if value < least or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{key} must be {allowed}, not {value}")


def _choice(key: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{key} must be one of {', '.join(allowed)}, not {value!r}")
    return value


@app.command()
def sim(
    workload: Annotated[str, typer.Option(help="digits, train, conv, transformer or attention")] = "digits",
    config: ConfigOption = "mini",
    format: Annotated[
        str | None, typer.Option(help="digits and train: mxfp8 or bf16 (default: mxfp8, train: bf16)")
    ] = None,
    simulator: SimulatorOption = "verilator",
    images: Annotated[
        int | None,
        typer.Option(
            help="digits: how many images (default: all; 64 on Icarus); conv: the same (default: a tile a core; one a core on Icarus)"
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="train: how many steps (default: 60; 1 on Icarus)")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="attention: how many heads (default: 2)")] = None,
    sequence: Annotated[
        int | None, typer.Option(help="attention: positions, a multiple of P (default: 16 P)")
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="attention: features of a head, a multiple of P (default: 4 P)")
    ] = None,
    causal: Annotated[bool, typer.Option(help="attention: no position sees a later one")] = False,
    latency: Annotated[int, typer.Option(help="memory channel latency in cycles")] = 20,
) -> None:
    """Run a workload on the simulated chip and compare every output word with the golden model."""
    from sim import main_job

    _choice("WORKLOAD", workload, ("digits", "train", "conv", "transformer", "attention"))
    for key, value, takers in (
        ("FORMAT", format, ("digits", "train")),
        ("--images", images, ("digits", "conv")),
        ("--steps", steps, ("train",)),
        ("--heads", heads, ("attention",)),
        ("--sequence", sequence, ("attention",)),
        ("--head", head, ("attention",)),
        ("CAUSAL", causal or None, ("attention",)),
    ):
        if value is not None and workload not in takers:
            raise ValueError(f"{key} goes with WORKLOAD {' or '.join(takers)}, not with {workload}")
    _within("--latency", latency, 1, MOST_LATENCY)
    tools.find(_choice("SIM", simulator, ("verilator", "icarus")))
    if workload == "train":
        from sim import train_job
        from sim.workloads.train_shape import Options

        options = Options(
            format=format or Options().format,
            steps=steps if steps is not None else (1 if simulator == "icarus" else Options().steps),
        )
        trained = train_job.run_training(configs.find(config), simulator, options, console, latency=latency)
        train_job.report(trained, console)
        raise typer.Exit(0 if trained.ok else 1)
    if workload == "conv":
        from sim import conv_job
        from sim.workloads import conv_shape

        cfg = configs.find(config)
        count = images if images is not None else (cfg.cores if simulator == "icarus" else None)
        network = conv_shape.default(cfg, count)
        convolved = conv_job.run_conv(cfg, simulator, network, console, latency=latency)
        conv_job.report(convolved, console)
        raise typer.Exit(0 if convolved.ok else 1)
    if workload == "transformer":
        from sim import transformer_job
        from sim.workloads import transformer_shape

        block = transformer_job.run_transformer(
            configs.find(config), simulator, transformer_shape.Options(), console, latency=latency
        )
        transformer_job.report(block, console)
        raise typer.Exit(0 if block.ok else 1)
    if workload == "attention":
        from sim import attention_job
        from sim.workloads import attention_shape

        sizes = attention_shape.Options(
            heads if heads is not None else attention_shape.Options().heads, sequence, head, causal
        )
        attended = attention_job.run_attention(
            configs.find(config), simulator, sizes, console, latency=latency
        )
        attention_job.report(attended, console)
        raise typer.Exit(0 if attended.ok else 1)
    outcome = main_job.run_digits(
        configs.find(config), format or "mxfp8", simulator, images, console, latency=latency
    )
    main_job.report(outcome, console)
    raise typer.Exit(0 if outcome.ok else 1)


@app.command()
def run(
    image: Annotated[Path, typer.Argument(help="image to run")],
    out: Annotated[Path, typer.Option("--out", "-o", help="where the resulting image goes")] = Path(
        "out.img"
    ),
    config: ConfigOption = "mini",
    simulator: SimulatorOption = "verilator",
    limit: Annotated[int, typer.Option(help="most cycles to run")] = 100_000_000,
    watchdog: Annotated[
        int, typer.Option(help="cycles without progress that are an error; 0: off")
    ] = 1_000_000,
) -> None:
    """Run a memory image on the simulated chip: image in, image out."""
    from sim.run import run_image

    _choice("SIM", simulator, ("verilator", "icarus", "model"))
    _within("--limit", limit, 1, MOST_CYCLES)
    _within("--watchdog", watchdog, 0, MOST_WATCHDOG)
    cfg, loaded = configs.find(config), images.load(image)
    if simulator == "model":
        from models.machine import Machine

        machine = Machine(cfg)
        machine.load(loaded)
        machine.run()
        errors = {i: core.error for i, core in enumerate(machine.cores)}
        machine.outputs(loaded).save(out)
        console.print(f"functional model; outputs in {out}")
    else:
        result = run_image(cfg, loaded, simulator=simulator, limit=limit, watchdog=watchdog)
        errors = {i: core.error for i, core in enumerate(result.cores)}
        result.outputs.save(out)
        console.print(f"{result.cycles:,} cycles in {result.seconds:.1f} s; outputs in {out}")
        if result.timed_out:
            raise ValueError(f"limit of {limit} cycles reached before every core had halted")
    for core, error in errors.items():
        if error is not None:
            raise ValueError(
                f"core {core}: {error.code.name} in {error.engine.name.lower()}[{error.index}], address {error.addr:#x}"
            )


@app.command()
def cost(
    image: Annotated[Path, typer.Argument(help="image to tell the cycles of")],
    config: ConfigOption = "mini",
    latency: Annotated[int, typer.Option(help="memory channel latency in cycles")] = 20,
    limit: Annotated[int, typer.Option(help="most cycles that the program may take")] = 100_000_000,
) -> None:
    """Tell the cycles of an image without running it on data; see docs/timing.md for how well."""
    from models.timing.chip import estimate

    _within("--latency", latency, 1, MOST_LATENCY)
    _within("--limit", limit, 1, MOST_CYCLES)
    cfg = configs.find(config)
    told = estimate(cfg, images.load(image), latency=latency, limit=limit)
    table = Table("core", "engine", "instructions", "busy", "waiting", "cycles")
    for number, core in told.cores.items():
        for n, (engine, times) in enumerate(core.engines.items()):
            first = (str(number), f"{core.cycles:,}") if n == 0 else ("", "")
            row = (engine.name.lower(), *(f"{v:,}" for v in (times.instructions, times.busy, times.waiting)))
            table.add_row(first[0], *row, first[1])
        table.add_row("", "dma", "", f"{core.dma_busy:,}", "", "")
    console.print(table)
    console.print(f"{told.cycles:,} cycles")


@app.command()
def accuracy(
    count: Annotated[int, typer.Option(help="FP32 arguments for each function")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="of the arguments")] = 1,
    page: Annotated[bool, typer.Option("--page", help="also write docs/accuracy.md")] = False,
) -> None:
    """Measure the scalar engine's functions against FP64; writes build/accuracy.json."""
    from sim import accuracy as measured

    _within("--count", count, 2, MOST_ARGUMENTS)
    _within("--seed", seed, 0)
    with console.status("measuring") as status:
        rows = measured.measure(count, seed, progress=lambda name: status.update(f"measuring {name}"))
    measured.save(rows, count, seed)
    table = Table("function", "steps", "max ulp", "BF16 not correctly rounded", "")
    for r in rows:
        table.add_row(
            r.function,
            str(r.steps),
            f"{r.max_ulp:.3f}",
            f"{r.bf16_wrong:.4%}",
            "ok" if r.ok else "[red]MISSED[/]",
        )
    console.print(table)
    if page:
        docs = Path(__file__).parent.parent / "docs" / "accuracy.md"
        docs.write_text(measured.page(rows, count, seed))
    raise typer.Exit(0 if all(r.ok for r in rows) else 1)


@app.command()
def netlist(
    config: ConfigOption = "mini",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder (default: build/netlist/NAME)")
    ] = None,
    lint: Annotated[
        bool, typer.Option("--lint", help="let Verilator look at every tile and every connection")
    ] = False,
) -> None:
    """Generate a chip's Verilog, filelist, manifest and memory map."""
    import time

    from sim.netlist import peak_bytes, write_netlist

    cfg = configs.find(config)
    start = time.perf_counter()
    with console.status("generating") as status:
        result = write_netlist(
            cfg, out, progress=lambda name, done, known: status.update(f"tile {done} of {known}: {name}")
        )
    size = sum(p.stat().st_size for p in result.sources)
    peak = peak_bytes() / 2**20
    tiles = result.manifest["tiles"]
    instances = sum(t["instances"] for t in tiles.values())
    console.print(
        f"{cfg.name}: {len(tiles)} distinct tiles, {instances:,} instances, {size / 1e6:.2f} MB of Verilog, "
        f"{time.perf_counter() - start:.1f} s, peak memory {peak:.0f} MiB"
    )
    console.print(f"in {result.folder}")
    if lint:
        from sim.lint import lint as lint_netlist

        with console.status("lint") as status:
            complaints = lint_netlist(
                result,
                progress=lambda name, done, total: status.update(f"lint: tile {done} of {total}: {name}"),
            )
        for line in complaints:
            console.print(line, markup=False, highlight=False)
        console.print(f"lint: {len(complaints)} complaints about {len(tiles)} tiles")
        raise typer.Exit(1 if complaints else 0)


@app.command()
def asm(
    source: Annotated[Path, typer.Argument(help="assembly text")],
    out: Annotated[Path, typer.Option("--out", "-o", help="image to write")] = Path("program.img"),
    config: ConfigOption = "mini",
    core: Annotated[int, typer.Option(help="core that runs it")] = 0,
    base: Annotated[int, typer.Option(help="memory address of the first stream")] = 0x1000,
) -> None:
    """Assemble a program into an image."""
    words, _ = assembly.assemble(_read(source))
    cfg = configs.find(config)
    built = images.Image.empty(cfg)
    at = base
    for engine, stream in words.items():
        built.add(at, stream)
        built.entries.append((core, engine, at))
        at += len(stream)
    images.check_fits(built, cfg)
    built.save(out)
    console.print(
        f"{sum(map(len, words.values())) // 128} instructions in {len(words)} streams; image in {out}"
    )


@app.command()
def disasm(image: Annotated[Path, typer.Argument(help="image")]) -> None:
    """Disassemble an image's streams, each up to the HALT that ends it."""
    loaded = images.load(image)
    for core, engine, address in loaded.entries:
        end = next(
            start + len(data) for start, data in loaded.segments if start <= address < start + len(data)
        )
        words = loaded.read(address, (end - address) // 128 * 128)
        text = assembly.disassemble(words[: 128 * assembly.extent(words)])
        print(f"# core {core}\n.engine {Engine(engine).name.lower()}\n{text}", end="")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as e:
        raise ValueError(f"cannot read {str(path)!r}: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise ValueError(f"cannot read {str(path)!r}: not UTF-8 text from byte {e.start} on") from None


@app.command()
def bench(
    quick: Annotated[bool, typer.Option(help="leave out the full-size netlist")] = False,
) -> None:
    """Measure speed and size; prints a table and writes build/bench.json."""
    from sim.bench import run_bench_suite

    raise typer.Exit(0 if run_bench_suite(console, quick=quick) else 1)


@app.command()
def fuzz(
    count: Annotated[int, typer.Option(help="how many programs")] = 50,
    seed: Annotated[int, typer.Option(help="of the first one; the next one's is one more")] = 0,
    length: Annotated[int, typer.Option(help="operations of a program")] = 30,
    illegal: Annotated[
        bool, typer.Option(help="with one instruction spoilt: the same error is wanted")
    ] = False,
    config: ConfigOption = "nano",
    simulator: SimulatorOption = "verilator",
) -> None:
    """Run random programs on the chip and on the functional model; one that differs is made small and kept in build/fuzz."""
    from sim.fuzz.campaign import campaign

    _within("--count", count, 1)
    _within("--length", length, 1, MOST_OPERATIONS)
    _within("--seed", seed, 0)
    tools.find(_choice("--simulator", simulator, ("verilator", "icarus")))
    cfg = configs.find(config)
    with console.status("building the chip") as status:
        failure = campaign(
            cfg,
            range(seed, seed + count),
            length,
            illegal=illegal,
            simulator=simulator,
            progress=lambda done, words: status.update(f"{done} of {count} programs, {words:,} words equal"),
        )
    if failure is None:
        console.print(f"{count} programs from seed {seed} on: chip and functional model agree")
        return
    console.print(
        f"seed {failure.seed}: {failure.difference}; {'program' if illegal else 'smallest program'}:"
    )
    for op in failure.ops:
        console.print(f"  {op}", markup=False, highlight=False)
    console.print(f"image: {failure.image}", soft_wrap=True)
    raise typer.Exit(1)


@app.command()
def docs(
    check: Annotated[bool, typer.Option(help="only report whether the pages are up to date")] = False,
) -> None:
    """Write the pages of docs/ that are made from tables: ISA, registers, presets."""
    from sim.docs import write_docs

    stale = write_docs(check=check)
    for page in stale:
        console.print(f"{'stale' if check else 'wrote'}: {page}")
    raise typer.Exit(1 if check and stale else 0)


USAGE_ERRORS = cast(tuple[type[typer.BadParameter], ...], typer.BadParameter.__bases__)
"""What every mistake in a command line derives from; typer gives a name only to what derives from it, and has the same methods."""


def main() -> None:
    """Entry point: turns known errors into one line and exit status 1 (2 where the command line itself is wrong)."""
    known = (
        configs.ConfigError,
        images.ImageError,
        ProgramError,
        assembly.AssemblyError,
        encoding.EncodingError,
        tools.ToolError,
        tools.SimulationError,
        ValueError,
    )
    try:
        status = app(standalone_mode=False) or 0
    except USAGE_ERRORS as e:
        text = " ".join(e.format_message().split())
        status = 2
    except known as e:
        text, status = str(e), 1
    except OSError as e:
        where = f"{str(e.filename)!r}: " if e.filename is not None else ""
        text, status = f"cannot use {where}{e.strerror or e}", 1
    except MemoryError as e:
        text, status = f"not enough memory on this machine: {e}", 1
    else:
        text = "interrupted" if status == INTERRUPTED else ""
    if text:
        print(f"tesela: {text}", file=sys.stderr)
    sys.exit(status)
