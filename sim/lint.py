"""Verilator's lint of a netlist, tile by tile.

Verilator copies a design's statements for each instance before lint ends, which no machine has the memory for at 130,000 PEs. So each distinct tile is
linted once, beside the bare ports of the tiles that it places: every module is read, and every connection is checked for name and width.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sim import tools
from sim.netlist import Netlist

CHECKED = (
    "PINMISSING",
    "IMPLICIT",
    "MULTIDRIVEN",
    "LATCH",
    "CASEOVERLAP",
    "COMBDLY",
    "WIDTHTRUNC",
    "WIDTHEXPAND",
)
"""What is looked for beside errors. Widths are looked at where ports are connected: elsewhere Yosys leaves them to the language's rules."""


def stub(name: str, text: str) -> str:
    """Module `name` of Verilog `text` as ports without a body. Raises ValueError when the text does not hold it."""
    found = re.search(
        rf"^module {re.escape(name)}\((.*?)\);\n(.*?)^endmodule", text, flags=re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise ValueError(f"no module {name}")
    ports = re.findall(r"^  (?:input|output) .*;$", found[2], flags=re.MULTILINE)
    return "\n".join([f"module {name}({found[1]});", *ports, "endmodule", ""])


def _counts(line: str) -> bool:
    """Whether a line of Verilator's is a complaint."""
    if line.startswith("%Warning-WIDTH"):
        return "port connection" in line
    return line.startswith("%Error") or any(line.startswith(f"%Warning-{w}:") for w in CHECKED)


def lint(netlist: Netlist, *, progress: Callable[[str, int, int], None] | None = None) -> list[str]:
    """Verilator's errors and warnings (CHECKED), each with its tile; empty when it accepts all. Raises ToolError."""
    tool = tools.verilator()
    texts = {path.stem: path.read_text() for path in netlist.sources}
    done = 0

    def one(name: str) -> list[str]:
        nonlocal done
        children = sorted(netlist.manifest["tiles"][name]["places"])
        command = [str(tool.program), "--lint-only", "-Wno-fatal", "-Wno-lint", "-Wno-style"]
        command += [*(f"-Wwarn-{w}" for w in CHECKED), "--top-module", name]
        command += ["-y", str(stubs), str(netlist.folder / "verilog" / f"{name}.v")]
        command += [str(stubs / f"{child}.v") for child in children]
        run = subprocess.run(
            command, env={**os.environ, **tool.env}, capture_output=True, text=True, check=False
        )
        lines = [line for line in run.stderr.splitlines() if _counts(line)]
        if run.returncode != 0 and not lines:
            lines = [f"%Error: Verilator ended with status {run.returncode}"]
        done += 1
        if progress is not None:
            progress(name, done, len(texts))
        return [f"{name}: {line}" for line in lines]

    with tempfile.TemporaryDirectory() as folder:
        stubs = Path(folder)
        for name, text in texts.items():
            (stubs / f"{name}.v").write_text(stub(name, text))
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            return [line for lines in pool.map(one, texts) for line in lines]
