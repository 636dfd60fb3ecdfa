"""House rules that a machine can check: import direction, names, sizes, what may not be in the tree."""

import ast
import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("models", "rtl", "sim", "tb")
"""A room may import itself and the rooms before it."""


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("room", ROOMS)
def test_imports_only_point_towards_models(room):
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for path in sources(room):
        wrong = (imported(path) & set(ROOMS)) - allowed
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_models_never_import_amaranth():
    for path in sources("models"):
        assert not imported(path) & {"amaranth", "cocotb"}, path


def test_rtl_never_imports_cocotb_and_has_no_deferred_annotations():
    for path in sources("rtl"):
        assert "cocotb" not in imported(path), path
        assert "from __future__ import annotations" not in path.read_text(), path


def test_packages_are_ours_and_hide_nothing():
    others = importlib.metadata.packages_distributions()
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        assert spec is not None
        assert Path(spec.origin).parent == ROOT / room
        assert room not in sys.stdlib_module_names
        assert set(others.get(room, [])) <= {"tesela"}


def test_files_have_one_job():
    long = {
        str(p.relative_to(ROOT)): n
        for r in ROOMS
        for p in sources(r)
        if (n := len(p.read_text().splitlines())) > 500
    }
    assert not long, f"files over 500 lines: {long}"


def test_every_rtl_file_has_a_test_of_its_name():
    names = {p.name for p in sources("tb")}
    missing = [
        str(p.relative_to(ROOT))
        for p in sources("rtl")
        if p.name != "__init__.py" and f"test_{p.name}" not in names
    ]
    assert not missing, f"no test_<name>.py under tb/ for {missing}"


def test_tests_live_where_what_they_test_lives():
    for path in sources("tb"):
        relative = path.relative_to(ROOT / "tb")
        if not path.name.startswith("test_") or path.name == "test_house.py":
            continue
        room = relative.parts[0]
        homes = [ROOT / room, ROOT / "rtl" / room, ROOT / "rtl"]
        if room == "formal":  # proofs of blocks of any room
            homes = [p for p in (ROOT / "rtl").iterdir() if p.is_dir()]
        if len(relative.parts) == 2:
            assert any((h / path.name.removeprefix("test_")).exists() for h in homes), relative


def tracked() -> list[Path]:
    try:
        out = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in out.split("\0") if name]


def test_nothing_generated_or_heavy_is_tracked():
    for path in tracked():
        assert path.stat().st_size < 256 * 1024, path
        assert (
            path.suffix not in {".v", ".vcd", ".fst", ".so", ".npz", ".pyc"} or path.parent.name == "native"
        ), path
        assert "build" not in path.relative_to(ROOT).parts, path


def test_no_unfinished_work():
    marks = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error", "for " + "now")
    for room in ROOMS:
        for path in sources(room):
            text = path.read_text()
            assert not [m for m in marks if m in text], path
