"""Netlist folder: complete, shared, byte-identical, reused."""

import json

from models.config import find
from rtl.chip import Chip
from rtl.pe.operand import PeConfig
from rtl.pe.pe import ProcessingElement
from rtl.tiles import module_name
from sim.emit import emit_tile
from sim.netlist import write_netlist

NANO = find("nano")


def test_folder_manifest_and_reuse():
    made = write_netlist(NANO)
    stamps = {p: p.stat().st_mtime_ns for p in made.sources}
    again = write_netlist(NANO)
    assert {p: p.stat().st_mtime_ns for p in again.sources} == stamps, "nothing changed, nothing written"
    manifest = json.loads((made.folder / "manifest.json").read_text())
    assert manifest == made.manifest == again.manifest
    assert manifest["config"] == NANO.to_dict()
    assert manifest["top"] == "chip"
    listed = (made.folder / "chip.f").read_text().split()
    assert listed == [f"verilog/{p.name}" for p in made.sources]
    pe = module_name(ProcessingElement, PeConfig(formats=NANO.tensor.formats, double=NANO.tensor.double_row))
    assert manifest["tiles"][pe]["instances"] == NANO.partitions**2
    text = "".join(p.read_text() for p in made.sources)
    for name in manifest["tiles"]:
        assert text.count(f"module {name}(") == 1, f"{name} is defined once"
    for page in ("memory_map.json", "memory_map.h", "memory_map.md"):
        assert (made.folder / page).stat().st_size > 100


def test_byte_identical():
    made = write_netlist(NANO)
    again = emit_tile(Chip, NANO, top="chip")
    assert {p.stem: p.read_text() for p in made.sources} == again
