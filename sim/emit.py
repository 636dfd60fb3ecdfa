"""Verilog out: a component and the tiles it places, each distinct one converted once."""

import os
from collections.abc import Hashable
from pathlib import Path

os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")

from amaranth.back import verilog

from rtl.tiles import TileLibrary, module_name


def emit_tile(cls: type, config: Hashable, *, inline: bool = False) -> dict[str, str]:
    """Verilog of `cls(config, tiles=...)` and of all tiles below it: {module name: text}, the top first."""
    tiles = TileLibrary(inline=inline)
    top = module_name(cls, config)
    out = {top: verilog.convert(cls(config, tiles=tiles), name=top, emit_src=False, strip_internal_attrs=True)}
    done = 0
    while done < len(tiles.entries):
        name = list(tiles.entries)[done]
        done += 1
        if name not in out:
            out[name] = verilog.convert(tiles.elaborate_tile(name), name=name, emit_src=False, strip_internal_attrs=True)
    return out


def write_files(modules: dict[str, str], folder: Path) -> list[Path]:
    """Write one file a module; returns the paths in order. Files that already hold the text are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in modules.items():
        path = folder / f"{name}.v"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        paths.append(path)
    return paths
