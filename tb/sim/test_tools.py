"""Finding simulators: versions, and what is said when there is none."""

import pytest

from sim import tools


def test_what_is_here():
    for name, least in (("verilator", tools.VERILATOR_MIN), ("icarus", tools.ICARUS_MIN)):
        tool = tools.find(name)
        assert tool.version >= least
        assert tool.program.exists()


def test_no_icarus(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.ToolError) as caught:
        tools.icarus()
    assert "\n" not in str(caught.value)
    assert "apt-get install iverilog" in str(caught.value)


def test_old_icarus(monkeypatch, tmp_path):
    fake = tmp_path / "iverilog"
    fake.write_text("#!/bin/sh\necho 'Icarus Verilog version 10.3 (stable)'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(tools.ToolError, match=r"10\.3"):
        tools.icarus()


def test_old_system_verilator_is_passed_over(monkeypatch, tmp_path):
    fake = tmp_path / "verilator"
    fake.write_text("#!/bin/sh\necho 'Verilator 5.006 2023-01-22'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("TESELA_SYSTEM_PATH", str(tmp_path))
    assert tools.verilator().version >= tools.VERILATOR_MIN


def test_unknown():
    with pytest.raises((ValueError, tools.ToolError, KeyError)):
        tools.find("modelsim")
