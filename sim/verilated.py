"""The Verilated chip as a shared library, stepped from Python; memory channels are C++ models (sim/native/chip.cpp)."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.config import ChipConfig
from sim import tools
from sim.emit import write_files
from sim.locks import exclusive
from sim.netlist import write_netlist
from sim.tools import SimulationError
from sim.verilator_control import SHARE_CODE, compiled_once, control_file, on_either_edge

NATIVE = Path(__file__).parent / "native" / "chip.cpp"
MANY_PES = 256
BUILD_ROOT = Path(__file__).parent.parent / "build" / "verilated"
SIGNALS = (
    "awid awaddr awlen awvalid awready wdata wstrb wlast wvalid wready bid bresp bvalid bready "
    "arid araddr arlen arvalid arready rid rdata rresp rlast rvalid rready"
).split()


def _mangled(name: str) -> str:
    return name.replace("__", "___05F")


def ports_header(config: ChipConfig) -> str:
    """C++ that names the channels' signals and the chip's constants for chip.cpp."""
    wide = {"wdata", "rdata"}
    lines = [
        "#pragma once",
        "#include <type_traits>",
        '#include "Vchip.h"',
        f"constexpr unsigned CHANNELS = {config.memory.channels};",
        f"constexpr unsigned CORES = {config.cores};",
        f"constexpr unsigned long long MEMORY_BYTES = {config.memory.bytes}ull;",
        "struct Ports {",
    ]
    for s in SIGNALS:
        field = _mangled(f"m_axi_mem0__{s}")
        kind = "uint32_t" if s in wide else f"std::remove_reference_t<decltype(Vchip::{field})>"
        lines.append(f"    {kind} *{s};")
    lines += ["};", "inline void bind_channels(Vchip *top, Ports *p) {"]
    for c in range(config.memory.channels):
        for s in SIGNALS:
            field = _mangled(f"m_axi_mem{c}__{s}")
            lines.append(f"    p[{c}].{s} = {f'top->{field}.data()' if s in wide else f'&top->{field}'};")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _run(command: list[str], env: dict[str, str], log: Path, what: str) -> None:
    with log.open("a") as out:
        out.write(" ".join(command) + "\n")
        out.flush()
        code = subprocess.run(
            command, env={**os.environ, **env}, stdout=out, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code != 0:
        tail = next((line for line in log.read_text().splitlines() if "rror" in line), "no message")
        raise SimulationError(f"{what} failed (log: {log}): {tail.strip()}")


def threads(config: ChipConfig) -> int:
    """Threads that a chip is worth: two for more than one core, where this process may use two processors."""
    worth = config.cores > 1 and config.cores * config.partitions**2 > MANY_PES
    return 2 if worth and len(os.sched_getaffinity(0)) > 1 else 1


def _options(threads: int, *, hierarchical: bool) -> list[str]:
    options = "--cc -O3 --x-assign fast --x-initial fast --noassert -Wno-fatal -Wno-lint -Wno-style --prefix Vchip --top-module chip"
    options += f" --output-split 20000 --build -j 2 --threads {threads}"
    # What runs once, to set a chip up, is not worth the compiler's time.
    options += " -MAKEFLAGS OPT_FAST=-O3 -MAKEFLAGS OPT_SLOW=-O0"
    # Nothing in the library is meant to be replaced from outside: calls within it are direct ones.
    for flag in (
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-semantic-interposition",
        "-fcf-protection=none",
        "-fno-plt",
        # Selections between data are not predictable: conditional moves instead of branches.
        "--param=max-rtl-if-conversion-predictable-cost=200",
        "--param=max-rtl-if-conversion-unpredictable-cost=200",
    ):
        options += f" -CFLAGS {flag}"
    if hierarchical:
        # Blocks share nothing, so two threads may be in two of them.
        options += " --hierarchical --threads-dpi all --threads-max-mtasks 8"
    return [*options.split(), *SHARE_CODE]


def build(config: ChipConfig) -> Path:
    """Path of the chip's shared library, built when the netlist, the harness or the options changed.

    Raises sim.tools.ToolError or SimulationError.
    """
    with exclusive(BUILD_ROOT / config.name):
        return _build(config)


def _build(config: ChipConfig) -> Path:
    tool = tools.verilator()
    netlist = write_netlist(config)
    modules = {source.stem: on_either_edge(source.read_text()) for source in netlist.sources}
    blocks = compiled_once(modules, "chip")
    control = control_file(modules, "chip", blocks=blocks)
    options = _options(threads(config), hierarchical=bool(blocks))
    key = hashlib.sha256()
    for part in (
        *modules.values(),
        NATIVE.read_text(),
        ports_header(config),
        control,
        str(tool.version),
        *options,
    ):
        key.update(part.encode())
    folder = BUILD_ROOT / f"{config.name}-{key.hexdigest()[:12]}"
    library = folder / "libchip.so"
    if library.exists():
        return library
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "ports.h").write_text(ports_header(config))
    (folder / "control.vlt").write_text(control)
    log = folder / "build.log"
    sources = write_files(modules, folder / "v")
    obj = folder / "obj"
    command = [
        str(tool.program),
        *options,
        "--Mdir",
        str(obj),
        str(folder / "control.vlt"),
        *map(str, sources),
    ]
    _run(command, tool.env, log, "verilator")
    include = Path(tool.env.get("VERILATOR_ROOT") or _root(tool)) / "include"
    link = [
        "g++",
        "-std=gnu++17",
        "-shared",
        "-fPIC",
        "-O2",
        f"-I{folder}",
        f"-I{folder / 'obj'}",
        f"-I{include}",
        f"-I{include / 'vltstd'}",
    ]
    libraries = sorted(
        (folder / "obj").rglob("lib*.a"), key=lambda path: (path.name == "libverilated.a", path.name)
    )
    link += [
        str(NATIVE),
        "-Wl,--start-group",
        *(str(path) for path in libraries),
        "-Wl,--end-group",
        "-pthread",
        "-o",
        str(library) + ".new",
    ]
    _run(link, tool.env, log, "linking the Verilated chip")
    os.replace(str(library) + ".new", library)
    return library


def _root(tool: tools.Tool) -> str:
    out = subprocess.run(
        [str(tool.program), "--getenv", "VERILATOR_ROOT"], capture_output=True, text=True, check=False
    )
    return out.stdout.strip()


class VerilatedChip:
    """A simulated chip in this process. Use as a context manager, or call `close`.

    `latency`: cycles from an accepted address to its first beat or response; `bandwidth`: beats per cycle and channel, 0 < b <= 1;
    `stall_seed`: not 0 pauses every handshake at random.
    """

    _open = False
    """One at a time: hierarchically compiled blocks of two models in one process wait for each other for ever."""

    def __init__(self, config: ChipConfig, *, latency: int = 20, bandwidth: float = 1.0, stall_seed: int = 0):
        if latency < 1:
            raise ValueError(f"latency must be at least 1 cycle, not {latency!r}")
        if not 0.0 < bandwidth <= 1.0:
            raise ValueError(f"bandwidth must be above 0 and at most 1 beat a cycle, not {bandwidth!r}")
        if VerilatedChip._open:
            raise SimulationError("a Verilated chip is already open in this process: close it first")
        self.config = config
        lib = ctypes.CDLL(str(build(config)))
        lib.tesela_new.restype = ctypes.c_void_p
        lib.tesela_memory.restype = ctypes.c_void_p
        for name in (
            "tesela_cycles",
            "tesela_run",
            "tesela_beats_read",
            "tesela_beats_written",
            "tesela_protocol_errors",
        ):
            getattr(lib, name).restype = ctypes.c_uint64
        self._lib = lib
        handle = lib.tesela_new(latency, max(1, round(bandwidth * 1024)), stall_seed)
        if not handle:
            raise SimulationError(f"cannot map the chip's {config.memory.bytes} bytes of memory")
        self._chip = ctypes.c_void_p(handle)
        VerilatedChip._open = True
        size = config.memory.bytes
        buffer = (ctypes.c_uint8 * size).from_address(lib.tesela_memory(self._chip))
        self.memory: NDArray[np.uint8] = np.frombuffer(memoryview(buffer), dtype=np.uint8)

    def close(self) -> None:
        """Free the chip; the memory view must not be used any more."""
        if self._chip:
            self._lib.tesela_free(self._chip)
            self._chip = ctypes.c_void_p()
            VerilatedChip._open = False

    def __enter__(self) -> "VerilatedChip":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, address: int, value: int) -> None:
        """Write a register. Raises SimulationError when the chip answers with an error or not at all."""
        code = self._lib.tesela_write(self._chip, address, value)
        if code != 0:
            raise SimulationError(
                f"writing register {address:#x}: {'no answer' if code < 0 else f'response {code}'}"
            )

    def read(self, address: int) -> int:
        """Read a register. Raises SimulationError as `write` does."""
        value = ctypes.c_uint32()
        code = self._lib.tesela_read(self._chip, address, ctypes.byref(value))
        if code != 0:
            raise SimulationError(
                f"reading register {address:#x}: {'no answer' if code < 0 else f'response {code}'}"
            )
        return value.value

    def step(self, cycles: int = 1) -> None:
        """Run the clock."""
        self._lib.tesela_step(self._chip, ctypes.c_uint64(cycles))

    def run(self, limit: int) -> int:
        """Step until no core runs or `limit` cycles have passed; returns the cycles stepped."""
        return int(self._lib.tesela_run(self._chip, ctypes.c_uint64(limit)))

    @property
    def running(self) -> int:
        """Bit c: core c runs."""
        return int(self._lib.tesela_running(self._chip))

    @property
    def cycles(self) -> int:
        """Cycles since reset."""
        return int(self._lib.tesela_cycles(self._chip))

    @property
    def beats(self) -> tuple[int, int]:
        """16-byte beats read from and written to memory since reset."""
        return int(self._lib.tesela_beats_read(self._chip)), int(self._lib.tesela_beats_written(self._chip))

    @property
    def protocol_errors(self) -> int:
        """AXI write bursts whose WLAST came on the wrong beat."""
        return int(self._lib.tesela_protocol_errors(self._chip))
