"""How fast a job runs on the chip under cocotb: the reference that the in-process simulator is held against."""

import json
import os
import time
from dataclasses import dataclass

from models.config import ChipConfig
from models.image import Image
from rtl.chip import Chip
from sim.runner import BUILD_ROOT, params, run_bench


@dataclass(frozen=True, slots=True)
class Probe:
    """A run under cocotb: cycles while a core ran, seconds they took, and the output regions one after the other."""

    cycles: int
    seconds: float
    outputs: bytes

    @property
    def rate(self) -> float:
        """Cycles per second."""
        return self.cycles / self.seconds


def run_under_cocotb(config: ChipConfig, image: Image) -> Probe:
    """Run `image` on the chip in Verilator under cocotb, with cocotbext-axi's memories on the channels and its host on the port.

    Raises AssertionError when the chip does not stop, sim.tools.ToolError when the simulator is missing.
    """
    stem = BUILD_ROOT / f"probe-{config.name}-{os.getpid()}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = {kind: stem.with_suffix(f".{kind}") for kind in ("image", "json", "bytes")}
    try:
        image.save(paths["image"])
        values = {kind: str(path) for kind, path in paths.items()}
        run_bench(Chip, config, "sim.probe_bench", parameters={**values, "channels": config.memory.channels})
        measured = json.loads(paths["json"].read_text())
        return Probe(measured["cycles"], measured["seconds"], paths["bytes"].read_bytes())
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


def record(cycles: int, seconds: float, outputs: bytes) -> None:
    """Called by the bench: store its result where the caller looks for it."""
    p = params()
    with open(p["json"], "w") as f:
        json.dump({"cycles": cycles, "seconds": seconds}, f)
    with open(p["bytes"], "wb") as out:
        out.write(outputs)


def now() -> float:
    """Wall clock."""
    return time.perf_counter()
