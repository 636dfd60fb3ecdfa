"""Image in, image out: runs an image on the simulated chip in either simulator and brings back outputs, counters and errors."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from models import registers
from models.addressing import memory_address
from models.config import ChipConfig
from models.image import Image, check_fits
from models.isa import Engine, ErrorCode
from models.machine import ErrorRecord
from sim import icarus
from sim.verilated import VerilatedChip

LIMIT = 100_000_000
WATCHDOG = 1_000_000
COUNTERS = ("CYCLES", "COLUMNS", "DMA_BUSY", *(f"BUSY_{e.name}" for e in Engine))
"""64-bit counters of a core, by the name that the registers' LO and HI halves share."""


@dataclass(slots=True)
class CoreResult:
    """One core after a run: its counters, and the first error if it stopped on one."""

    counters: dict[str, int]
    error: ErrorRecord | None


@dataclass(slots=True)
class RunResult:
    """What a run gave: output regions, per-core results, cycles simulated, wall seconds, True when the limit was hit."""

    outputs: Image
    cores: list[CoreResult]
    cycles: int
    seconds: float
    timed_out: bool
    notes: list[str] = field(default_factory=list)


def _half(name: str, part: str) -> str:
    stem, _, engine = name.partition("_") if name.startswith("BUSY") else (name, "", "")
    return f"{stem}_{part}_{engine}" if engine else f"{stem}_{part}"


def result_registers(core: int) -> list[int]:
    """Addresses to read after a run, in the order that `parse_core` takes their values."""
    names = [_half(n, part) for n in COUNTERS for part in ("LO", "HI")]
    names += ["STATUS", "ERR_CODE", "ERR_ENGINE", "ERR_INDEX", "ERR_ADDR_LO", "ERR_ADDR_HI"]
    return [registers.core_register(core, n) for n in names]


def parse_core(values: list[int]) -> CoreResult:
    """A core's result from the values of `result_registers`."""
    counters = {n: values[2 * i] | values[2 * i + 1] << 32 for i, n in enumerate(COUNTERS)}
    _, code, engine, index, low, high = values[2 * len(COUNTERS) :]
    error = ErrorRecord(ErrorCode(code), Engine(engine), index, low | high << 32) if code else None
    return CoreResult(counters, error)


def start_writes(image: Image, watchdog: int) -> list[tuple[int, int]]:
    """Register writes (address, value) that start an image's streams."""
    cores = sorted({core for core, _, _ in image.entries})
    writes = [(registers.core_register(core, "WATCHDOG"), watchdog) for core in cores]
    for core, engine, address in image.entries:
        full = memory_address(address)
        writes.append((registers.core_register(core, f"PROGRAM_LO_{engine.name}"), full & 0xFFFFFFFF))
        writes.append((registers.core_register(core, f"PROGRAM_HI_{engine.name}"), full >> 32))
    for core in cores:
        mask = sum(1 << engine for c, engine, _ in image.entries if c == core)
        writes.append((registers.core_register(core, "DOORBELL"), mask))
    return writes


def run_image(
    config: ChipConfig,
    image: Image,
    *,
    simulator: str = "verilator",
    latency: int = 20,
    bandwidth: float = 1.0,
    stall_seed: int = 0,
    limit: int = LIMIT,
    watchdog: int = WATCHDOG,
    progress: Callable[[int], None] | None = None,
    watch: Callable[[NDArray[np.uint8]], None] | None = None,
) -> RunResult:
    """Run `image` until every core has halted, an error stopped it, or `limit` cycles have passed.

    `latency` (cycles), `bandwidth` (beats per cycle and channel) and `stall_seed` set the memory channels; Icarus takes only `latency`.
    `progress` is called with the cycles so far, `watch` with the chip's memory as it is then (in
    Verilator only). Raises ImageError, ToolError, SimulationError.
    """
    check_fits(image, config)
    writes = start_writes(image, watchdog)
    reads = [a for core in range(config.cores) for a in result_registers(core)]
    per_core = len(reads) // config.cores
    if simulator == "icarus":
        if bandwidth != 1.0 or stall_seed:
            raise icarus.SimulationError(
                "Icarus memory channels have no bandwidth or stall setting; use SIM=verilator"
            )
        done = icarus.run(config, image, writes, reads, latency=latency, limit=limit, progress=progress)
        cores = [parse_core(done.values[i * per_core : (i + 1) * per_core]) for i in range(config.cores)]
        return RunResult(done.outputs, cores, done.cycles, done.seconds, done.timed_out)
    with VerilatedChip(config, latency=latency, bandwidth=bandwidth, stall_seed=stall_seed) as chip:
        for address, data in image.segments:
            chip.memory[address : address + len(data)] = np.frombuffer(data, dtype=np.uint8)
        for address, value in writes:
            chip.write(address, value)
        start, cycles = time.perf_counter(), 0
        while chip.running and cycles < limit:
            cycles += chip.run(min(20_000, limit - cycles))
            if progress is not None:
                progress(cycles)
            if watch is not None:
                watch(chip.memory)
        seconds = time.perf_counter() - start
        timed_out = bool(chip.running)
        values = [chip.read(a) for a in reads]
        cores = [parse_core(values[i * per_core : (i + 1) * per_core]) for i in range(config.cores)]
        outputs = Image(image.config_hash, image.memory_bytes)
        for address, length in image.outputs:
            outputs.add(address, chip.memory[address : address + length].tobytes())
        notes = (
            [f"{chip.protocol_errors} AXI write bursts with a misplaced WLAST"]
            if chip.protocol_errors
            else []
        )
        return RunResult(outputs, cores, cycles, seconds, timed_out, notes)
