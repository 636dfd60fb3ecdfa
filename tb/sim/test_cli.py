"""The command line: what goes wrong is one line and a non-zero exit; what goes right works; `make sim` hands its variables on."""

import subprocess
import sys
from pathlib import Path

import pytest

from models import image as images
from models.config import find
from tb.sim.images import broken, model, vector_image

ROOT = Path(__file__).parent.parent.parent


def tesela(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    import os

    command = [sys.executable, "-c", "from sim.cli import main; main()", *args]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}
    )


def _refused(*parts: str, args: tuple[str, ...], env: dict[str, str] | None = None) -> None:
    done = tesela(*args, env=env)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr + done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("tesela: ")
    for part in parts:
        assert part in lines[0], lines[0]


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("sim", "--config", "huge"), ("preset must be one of nano, mini, small, gen3", "'huge'")),
        (("sim", "--config", "/nowhere/x.toml"), ("cannot read configuration",)),
        (
            ("sim", "--workload", "chess"),
            ("WORKLOAD must be one of digits, train, conv, transformer, attention, not 'chess'",),
        ),
        (
            ("sim", "--workload", "attention", "--config", "nano", "--sequence", "12"),
            ("sequence must be a multiple of 8 (the partitions), not 12",),
        ),
        (("sim", "--format", "fp64", "--config", "nano"), ("FORMAT must be one of mxfp8, bf16, not 'fp64'",)),
        (
            ("sim", "--workload", "conv", "--format", "bf16"),
            ("FORMAT goes with WORKLOAD digits or train, not with conv",),
        ),
        (("sim", "--steps", "3"), ("--steps goes with WORKLOAD train, not with digits",)),
        (("sim", "--workload", "train", "--images", "3"), ("--images goes with WORKLOAD digits or conv",)),
        (
            ("sim", "--workload", "train", "--format", "fp8"),
            ("FORMAT must be one of bf16, mxfp8, not 'fp8'",),
        ),
        (("sim", "--simulator", "modelsim"), ("SIM must be one of verilator, icarus, not 'modelsim'",)),
        (("sim", "--config", "nano", "--images", "0"), ("images must be from 1 to 1797, not 0",)),
        (("netlist", "--config", "tera"), ("preset must be one of",)),
        (("run", "/nowhere.img"), ("/nowhere.img",)),
        (("cost", "/nowhere.img"), ("/nowhere.img",)),
        (("cost", "/nowhere.img", "--latency", "0"), ("--latency must be from 1 to 1000000, not 0",)),
        (("disasm", "/nowhere.img"), ("/nowhere.img",)),
        (("asm", "/nowhere.s"), ("cannot read '/nowhere.s'",)),
        (("run", "/nowhere.img", "--limit", "0"), ("--limit must be from 1 to 9223372036854775807, not 0",)),
        (("run", "/nowhere.img", "--limit", "-1"), ("--limit must be from 1 to", "not -1")),
        (
            ("run", "/nowhere.img", "--watchdog", "-1"),
            ("--watchdog must be from 0 to 4294967295, not -1",),
        ),
        (("run", "/nowhere.img", "--watchdog", str(2**32)), ("--watchdog must be from 0 to", str(2**32))),
        (("sim", "--latency", str(10**20)), ("--latency must be from 1 to 1000000",)),
        (("sim", "--workload", "conv", "--images", str(10**8)), ("images must be from 1 to 32 on mini",)),
        (("sim", "--workload", "attention", "--heads", str(10**6)), ("heads must be from 1 to 409",)),
        (("sim", "--workload", "train", "--steps", str(10**9)), ("steps must be from 1 to",)),
        (("accuracy", "--seed", "-1"), ("--seed must be at least 0, not -1",)),
        (("accuracy", "--count", str(10**14)), ("--count must be from 2 to 100000000",)),
        (("fuzz", "--length", str(10**8)), ("--length must be from 1 to 10000",)),
        (("fuzz", "--count", "0"), ("--count must be at least 1, not 0",)),
        (("fuzz", "--count", "abc"), ("Invalid value for '--count'", "valid integer")),
        (("chess",), ("No such command 'chess'",)),
        (("run",), ("Missing argument 'image'",)),
        (("run", "a.img", "b.img"), ("unexpected extra argument", "b.img")),
        (("sim", "--nope"), ("No such option: --nope",)),
    ],
)
def test_bad_arguments(args, parts):
    _refused(*parts, args=args)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("partitions = 8\ncores = 1\nspeed = 9\n", ("unknown key 'speed'", "allowed here")),
        ("partitions = 9\ncores = 1\n", ("partitions must be 8, 16, 32, 64 or 128, not 9",)),
        ("partitions = 8\ncores = 1\n[sbuf]\nbanks = 5\n", ("sbuf.banks must be 4, 8 or 16, not 5",)),
        ('partitions = 8\ncores = 1\n[tensor]\nformats = ["fp4"]\n', ("tensor.formats", "'fp4'")),
        ("partitions = \n", ("not TOML",)),
    ],
)
def test_bad_configurations(tmp_path, text, parts):
    path = tmp_path / "chip.toml"
    path.write_text(text)
    _refused("chip.toml", *parts, args=("netlist", "--config", str(path)))


def test_images_that_are_none(tmp_path):
    good = tmp_path / "good.img"
    vector_image(find("nano"), 1).save(good)
    raw = good.read_bytes()
    for name, data in (
        ("short", raw[: len(raw) // 2]),
        ("empty", b""),
        ("text", b"hello world" * 40),
        ("changed", raw[:-9] + b"x" + raw[-8:]),
    ):
        path = tmp_path / f"{name}.img"
        path.write_bytes(data)
        _refused(args=("run", str(path), "--config", "nano", "--simulator", "model"))
    _refused(
        "the image was made for configuration",
        args=("run", str(good), "--config", "mini", "--simulator", "model"),
    )


def test_what_cannot_be_read_or_written(tmp_path):
    """Text that is none, a folder where a file should be, a file where a folder should be; a negative core is none of the chip's."""
    source, image, folder = tmp_path / "p.s", tmp_path / "p.img", tmp_path / "folder"
    folder.mkdir()
    source.write_bytes(b".engine vector\n\xfb\n")
    _refused("cannot read", "p.s", "UTF-8", args=("asm", str(source)))
    source.write_text(".engine vector\nHALT\n")
    for out in (folder, source / "below" / "x.img"):
        _refused("cannot write image", str(out), args=("asm", str(source), "--out", str(out)))
    _refused("core -1; nano has cores 0 to 0", args=("asm", str(source), "--config", "nano", "--core", "-1"))
    assert tesela("asm", str(source), "--config", "nano", "--out", str(image)).returncode == 0
    run = ("run", str(image), "--config", "nano", "--simulator", "model", "--out", str(folder))
    _refused("cannot write image", args=run)
    _refused("cannot use", str(source), args=("netlist", "--config", "nano", "--out", str(source)))


def test_no_command_is_help():
    done = tesela()
    assert done.returncode == 2
    assert "Usage" in done.stdout
    assert done.stderr == ""


def test_no_simulator(tmp_path):
    _refused("apt", args=("sim", "--simulator", "icarus", "--config", "nano"), env={"PATH": str(tmp_path)})


@pytest.mark.parametrize("simulator", ["model", "verilator"])
def test_run_reports_hardware_errors(tmp_path, simulator):
    path = tmp_path / "bad.img"
    broken("dma").save(path)
    out = tmp_path / "out.img"
    args = (
        "run",
        str(path),
        "--config",
        "nano",
        "--simulator",
        simulator,
        "--watchdog",
        "500",
        "--out",
        str(out),
    )
    _refused("core 0: DMA_RANGE in sync[0]", args=args)
    assert out.exists(), "outputs are kept all the same"


def test_run_gives_the_models_image(tmp_path):
    image = vector_image(find("nano"), 6)
    path, out = tmp_path / "in.img", tmp_path / "out.img"
    image.save(path)
    for simulator in ("model", "verilator"):
        done = tesela("run", str(path), "--config", "nano", "--simulator", simulator, "--out", str(out))
        assert done.returncode == 0, done.stderr
        assert images.load(out).segments == model(image).outputs(image).segments


def test_cost(tmp_path):
    path = tmp_path / "in.img"
    vector_image(find("nano"), 6).save(path)
    done = tesela("cost", str(path), "--config", "nano")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" cycles")
    for word in ("tensor", "vector", "scalar", "sync", "dma", "busy", "waiting"):
        assert word in done.stdout
    _refused("has not ended after 100 cycles", args=("cost", str(path), "--config", "nano", "--limit", "100"))
    _refused("made for configuration", args=("cost", str(path), "--config", "mini"))


def test_assemble_and_disassemble(tmp_path):
    image = tmp_path / "p.img"
    first = tmp_path / "p.s"
    first.write_text(".engine vector\nNOP\nHALT\n")
    assert tesela("asm", str(first), "--config", "nano", "--out", str(image)).returncode == 0
    text = tesela("disasm", str(image)).stdout
    assert "NOP" in text
    assert "HALT" in text
    second = tmp_path / "q.s"
    second.write_text(text)
    again = tmp_path / "q.img"
    assert tesela("asm", str(second), "--config", "nano", "--out", str(again)).returncode == 0
    assert again.read_bytes() == image.read_bytes()


def test_netlist(tmp_path):
    done = tesela("netlist", "--config", "nano", "--out", str(tmp_path / "n"))
    assert done.returncode == 0
    assert "distinct tiles" in done.stdout
    assert (tmp_path / "n" / "chip.f").exists()


# --- make sim: `make -n` prints what would be run ----------------------------------------------------------------------
def _made(*variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-n", "sim", *variables], cwd=ROOT, capture_output=True, text=True, check=False
    )


def _make(*variables: str) -> str:
    done = _made(*variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_option_is_handed_on():
    text = _make("WORKLOAD=attention", "HEADS=3", "SEQUENCE=32", "HEAD=16", "LATENCY=5", "CAUSAL=1")
    for option in (
        "--workload 'attention'",
        "--heads '3'",
        "--sequence '32'",
        "--head '16'",
        "--latency '5'",
        "--causal",
    ):
        assert option in text
    assert "--images '0'" in _make("IMAGES=0")
    assert "--steps '-1'" in _make("WORKLOAD=train", "STEPS=-1")
    assert "--format 'bf16'" in _make("FORMAT=bf16")


def test_what_is_not_set_is_not_handed_on():
    text = _make()
    for option in (
        "--images",
        "--steps",
        "--heads",
        "--sequence",
        "--head",
        "--latency",
        "--format",
        "--causal",
    ):
        assert option not in text


@pytest.mark.parametrize("value", ["0", ""])
def test_not_causal(value):
    assert "--causal" not in _make("WORKLOAD=attention", f"CAUSAL={value}")


@pytest.mark.parametrize("value", ["2", "no", "-1"])
def test_causal_is_0_or_1(value):
    done = _made("WORKLOAD=attention", f"CAUSAL={value}")
    assert done.returncode != 0
    assert f"CAUSAL must be 0 or 1 and not '{value}'" in done.stderr
    assert "tesela sim" not in done.stdout
