"""How fast the chip steps under cocotb: the reference that the in-process simulator is held against."""

import json
import os
import time

from models.config import ChipConfig
from rtl.chip import Chip
from sim.runner import params, run_bench

CYCLES = 20_000


def cocotb_cycles_per_second(config: ChipConfig) -> float:
    """Clock the chip in Verilator under cocotb's fastest clock for 20,000 cycles; cycles per second."""
    from sim.runner import BUILD_ROOT

    out = BUILD_ROOT / f"probe-{config.name}-{os.getpid()}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    run_bench(Chip, config, "sim.probe_bench", parameters={"out": str(out), "cycles": CYCLES})
    rate = json.loads(out.read_text())["rate"]
    out.unlink()
    return float(rate)


def record(seconds: float) -> None:
    """Called by the bench: store its rate where the caller looks for it."""
    p = params()
    with open(p["out"], "w") as f:
        json.dump({"rate": p["cycles"] / seconds}, f)


def now() -> float:
    """Wall clock."""
    return time.perf_counter()
