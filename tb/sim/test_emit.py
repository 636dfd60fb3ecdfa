"""Verilog text: what is done to it so that every simulator starts alike."""

import os
import re
import subprocess
import sys
from pathlib import Path

from models.config import find
from rtl.control.errors import ErrorConfig, ErrorUnit
from rtl.memory.psum import Psum
from sim.emit import AT_ZERO, emit_tile, placed_tiles, write_files, write_if_changed
from sim.runner import run_bench


def test_no_block_waits_for_nothing():
    text = next(iter(emit_tile(ErrorUnit, ErrorConfig(sources=2, waiters=2)).values()))
    assert AT_ZERO in text, "this tile drives constants beside changing bits"
    assert not re.search(r"always @\*\n    \S.* = .*;", text)
    assert not re.search(r"reg \\\$auto\$verilog_backend\S+ += 0;", text)
    assert re.search(rf"reg {AT_ZERO}; initial {AT_ZERO} <= 0;", text)


def test_constant_bits_arrive_in_both_simulators():
    for simulator in ("verilator", "icarus"):
        run_bench(ErrorUnit, ErrorConfig(sources=1, waiters=1), "tb.sim.tb_watchdog", simulator=simulator)


def test_placed_tiles():
    text = "module top(clk);\n  a_1 x (\n    .c(c)\n  );\n  a_1 \\y$1 (\n    .c(c)\n  );\n  b z (\n  );\nendmodule\n"
    assert placed_tiles(text, {"a_1"}) == {"a_1": 2}


def test_files_that_hold_the_text_are_left_alone(tmp_path):
    (path,) = write_files({"m": "one"}, tmp_path)
    before = path.stat().st_mtime_ns
    write_if_changed(path, "one")
    assert path.stat().st_mtime_ns == before
    write_if_changed(path, "two")
    assert path.read_text() == "two"


def test_processes_change_nothing():
    config = find("nano")
    alone = emit_tile(Psum, config)
    assert list(emit_tile(Psum, config, jobs=2).items()) == list(alone.items())
    assert len(alone) > 3


def test_a_script_needs_no_guard(tmp_path):
    """Processes must not run the caller's file again."""
    script = tmp_path / "script.py"
    script.write_text(
        "from models.config import find\nfrom rtl.memory.psum import Psum\nfrom sim.emit import emit_tile\n"
        "print(len(emit_tile(Psum, find('nano'), jobs=2)))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3
