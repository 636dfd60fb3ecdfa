"""Lint by tiles: accepts what the generator makes, and finds what is wrong in it."""

import shutil

import pytest

from models.config import find
from sim.lint import lint, stub
from sim.netlist import Netlist, write_netlist

NANO = find("nano")


@pytest.fixture
def copy(tmp_path):
    """nano's netlist in a folder of its own."""
    made = write_netlist(NANO)
    shutil.copytree(made.folder / "verilog", tmp_path / "verilog")
    return Netlist(tmp_path, [tmp_path / "verilog" / p.name for p in made.sources], made.manifest)


def _tile(netlist, prefix):
    return next(p for p in netlist.sources if p.name.startswith(prefix))


def test_accepts_the_netlist(copy):
    seen = []
    assert lint(copy, progress=lambda name, done, total: seen.append((name, done, total))) == []
    assert len(seen) == len(copy.sources)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            lambda t: t.replace("endmodule", "assign nowhere_at_all = 1;\nendmodule", 1),
            "IMPLICIT|nowhere_at_all",
        ),
        (lambda t: t.replace("endmodule", "oops\nendmodule", 1), "%Error"),
    ],
)
def test_finds_mistakes_in_a_tile(copy, change, what):
    path = _tile(copy, "semaphore_unit_")
    path.write_text(change(path.read_text()))
    complaints = lint(copy)
    assert complaints
    assert any(any(w in line for w in what.split("|")) for line in complaints)
    assert all(line.startswith(path.stem) for line in complaints)


def test_finds_a_connection_of_another_width(copy):
    path = _tile(copy, "fp32_add_")
    text = path.read_text()
    assert "  input [31:0] a;" in text
    path.write_text(text.replace("  input [31:0] a;", "  input [30:0] a;"))
    assert any("port connection 'a'" in line for line in lint(copy))


def test_stub_is_ports_only():
    text = "module m(a, b);\n  input [3:0] a;\n  wire [3:0] a;\n  output b;\n  assign b = a[0];\nendmodule\n"
    assert stub("m", text) == "module m(a, b);\n  input [3:0] a;\n  output b;\nendmodule\n"
    with pytest.raises(ValueError, match="no module n"):
        stub("n", text)
