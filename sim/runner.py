"""Runs cocotb benches: the only caller of cocotb's runner."""

import json
import os
import random
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator, get_runner

from rtl.tiles import module_name
from sim import tools
from sim.emit import emit_tile, write_files, write_if_changed
from sim.locks import exclusive
from sim.verilator_control import SHARE_CODE, control_file

BUILD_ROOT = Path(__file__).parent.parent / "build" / "tb"
SEED_VARIABLE = "TESELA_SEED"
PARAMS_VARIABLE = "TESELA_PARAMS"
VERILATOR_ARGS = [
    "-Wno-fatal",
    "-Wno-lint",
    "-Wno-style",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--output-split",
    "20000",
    *SHARE_CODE,
]


class PortsOnlyVerilator(Verilator):  # type: ignore[misc]
    """cocotb's Verilator runner without `--public-flat-rw`: what is public is said by a control file among the sources.

    Everything public costs Verilator its optimisations, and the compiler minutes, on a design of many tiles.
    """

    def _build_command(self) -> list[list[str]]:
        commands: list[list[str]] = super()._build_command()
        commands[0] = [part for part in commands[0] if part != "--public-flat-rw"]
        return commands


def seed() -> int:
    """The seed of this run: TESELA_SEED if set, else a fresh one (always printed by `run_bench`)."""
    return (
        int(os.environ[SEED_VARIABLE])
        if SEED_VARIABLE in os.environ
        else random.SystemRandom().randrange(1 << 31)
    )


def params() -> dict[str, Any]:
    """Inside a bench: the parameters that `run_bench` was given."""
    loaded: dict[str, Any] = json.loads(os.environ[PARAMS_VARIABLE])
    return loaded


def run_bench(
    cls: type,
    config: Hashable,
    bench: str,
    *,
    simulator: str = "verilator",
    parameters: Mapping[str, Any] | None = None,
    inline: bool = False,
    waves: bool = False,
    testcase: str | None = None,
) -> None:
    """Emit `cls(config)`, build it in `simulator` and run the cocotb module `bench` on it.

    Builds are cached under build/tb by the Verilog's content. Raises AssertionError when a test of the bench fails or none
    ran, sim.tools.ToolError when the simulator is missing.
    """
    tool = tools.find(simulator)
    top = module_name(cls, config)
    modules = emit_tile(cls, config, inline=inline)
    folder = BUILD_ROOT / f"{top}{'-inline' if inline else ''}" / f"{simulator}{'-waves' if waves else ''}"
    with exclusive(folder):
        sources = write_files(modules, folder / "v")
        if simulator == "verilator":
            sources.insert(0, folder / "v" / "control.vlt")
            write_if_changed(sources[0], control_file(modules, top, public_ports=True))
        env = {**tool.env, PARAMS_VARIABLE: json.dumps(dict(parameters or {}))}
        this_seed = seed()
        print(f"{bench} on {top} in {simulator}: re-run with {SEED_VARIABLE}={this_seed}")
        saved = dict(os.environ)
        os.environ.update(env)
        try:
            runner = PortsOnlyVerilator() if simulator == "verilator" else get_runner(simulator)
            build_args = VERILATOR_ARGS if simulator == "verilator" else []
            runner.build(
                sources=sources,
                hdl_toplevel=top,
                build_dir=folder / "obj",
                build_args=build_args,
                timescale=("1ns", "1ps"),
                waves=waves,
            )
            results = folder / f"results-{bench}-{os.getpid()}.xml"
            results.unlink(missing_ok=True)
            runner.test(
                hdl_toplevel=top,
                test_module=bench,
                testcase=testcase,
                seed=this_seed,
                extra_env=env,
                build_dir=folder / "obj",
                test_dir=folder / "obj",
                results_xml=str(results),
                timescale=("1ns", "1ps"),
                waves=waves,
            )
        except SystemExit:
            pass  # cocotb leaves so when tests fail; the results file says which
        finally:
            os.environ.clear()
            os.environ.update(saved)
    ran, failed = get_results(results)
    assert ran > 0, f"{bench}: no test ran"
    assert failed == 0, f"{bench}: {failed} of {ran} tests failed ({SEED_VARIABLE}={this_seed})"
