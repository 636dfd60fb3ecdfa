"""The chip in Icarus Verilog: builds the image harness (sim/native/image_tb.v) and runs it, no Python in the loop."""

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models.config import ChipConfig
from models.image import Image
from sim import tools
from sim.netlist import Netlist, write_netlist
from sim.tools import SimulationError
from sim.verilated import SIGNALS

HARNESS = Path(__file__).parent / "native" / "image_tb.v"
BUILD_ROOT = Path(__file__).parent.parent / "build" / "icarus"


@dataclass(frozen=True, slots=True)
class IcarusResult:
    """Outputs, register values in the order asked for, cycles run, wall seconds, True when the limit was hit."""

    outputs: Image
    values: list[int]
    cycles: int
    seconds: float
    timed_out: bool


def _connect(config: ChipConfig) -> str:
    """Verilog that places the chip and its memory channels in the harness."""
    idw = config.memory.id_width
    widths = {
        "awid": idw,
        "bid": idw,
        "arid": idw,
        "rid": idw,
        "awaddr": 64,
        "araddr": 64,
        "awlen": 8,
        "arlen": 8,
    }
    widths |= {"wdata": 128, "rdata": 128, "wstrb": 16, "bresp": 2, "rresp": 2}
    lines, chip = [], []
    for c in range(config.memory.channels):
        for s in SIGNALS:
            lines.append(f"wire [{widths.get(s, 1) - 1}:0] mem{c}_{s};")
            chip.append(f".m_axi_mem{c}__{s}(mem{c}_{s})")
        ports = ", ".join(f".{s}(mem{c}_{s})" for s in SIGNALS)
        lines.append(f"axi_channel #(.NUMBER({c})) channel{c} (.clk(clk), .rst(rst), {ports});")
    host = {
        "awaddr": "awaddr",
        "awprot": "3'd0",
        "awvalid": "awvalid",
        "awready": "awready",
        "wdata": "wdata",
        "wstrb": "4'hf",
    }
    host |= {
        "wvalid": "wvalid",
        "wready": "wready",
        "bresp": "bresp",
        "bvalid": "bvalid",
        "bready": "1'b1",
        "araddr": "araddr",
    }
    host |= {
        "arprot": "3'd0",
        "arvalid": "arvalid",
        "arready": "arready",
        "rdata": "rdata",
        "rresp": "rresp",
        "rvalid": "rvalid",
    }
    host |= {"rready": "1'b1"}
    chip += [f".s_axil__{s}({w})" for s, w in host.items()]
    chip += [".clk(clk)", ".rst(rst)", ".chip_id(16'd0)", ".running(running)", ".error(error)"]
    return "\n".join(lines) + "\nchip chip (" + ", ".join(chip) + ");\n"


def _build(config: ChipConfig, netlist: Netlist, words: int, latency: int) -> Path:
    tool = tools.icarus()
    defines = {"CHANNELS": config.memory.channels, "CORES": config.cores, "MEMORY_BYTES": config.memory.bytes}
    defines |= {"WORDS": words, "ID_WIDTH": config.memory.id_width, "LATENCY": latency}
    key = hashlib.sha256(
        repr((sorted(defines.items()), tool.version)).encode()
        + HARNESS.read_bytes()
        + _connect(config).encode()
    )
    for source in netlist.sources:
        key.update(source.read_bytes())
    folder = BUILD_ROOT / f"{config.name}-{key.hexdigest()[:12]}"
    program = folder / "image_tb.vvp"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "connect.vh").write_text(_connect(config))
    command = [
        str(tool.program),
        "-g2012",
        "-o",
        f"{program}.{os.getpid()}.new",
        "-s",
        "image_tb",
        f"-I{folder}",
    ]
    command += [f"-D{k}={v}" for k, v in defines.items()]
    done = subprocess.run(
        [*command, str(HARNESS), *map(str, netlist.sources)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SimulationError(f"iverilog failed: {(done.stderr or done.stdout).strip().splitlines()[0]}")
    os.replace(f"{program}.{os.getpid()}.new", program)
    return program


def _memory_hex(image: Image) -> tuple[str, int]:
    """$readmemh text of the image's segments in 16-byte words, and the number of words that a run may touch."""
    words: dict[int, bytearray] = {}
    top = 0
    for address, data in image.segments:
        first, last = address // 16, (address + len(data) + 15) // 16
        block = bytearray(16 * (last - first))
        for i in range(first, last):
            if i in words:
                block[16 * (i - first) : 16 * (i - first) + 16] = words[i]
        block[address - 16 * first : address - 16 * first + len(data)] = data
        for i in range(first, last):
            words[i] = block[16 * (i - first) : 16 * (i - first) + 16]
        top = max(top, last)
    for address, length in image.outputs:
        for i in range(address // 16, (address + length + 15) // 16):
            words.setdefault(i, bytearray(16))
            top = max(top, i + 1)
    lines, previous = [], -2
    for i in sorted(words):
        if i != previous + 1:
            lines.append(f"@{i:x}")
        lines.append(words[i][::-1].hex())
        previous = i
    return "\n".join(lines) + "\n", min(top + 256, image.memory_bytes // 16)


def _outputs(image: Image, dump: Path, first: int) -> Image:
    """The image's output regions from a $writememh file; bits that are unknown raise SimulationError."""
    rows = [line for line in dump.read_text().splitlines() if not line.startswith("//")]
    out = Image(image.config_hash, image.memory_bytes)
    for address, length in image.outputs:
        start, stop = address // 16 - first, (address + length + 15) // 16 - first
        text = rows[start:stop]
        if any(c in "xzXZ" for line in text for c in line):
            raise SimulationError(f"output region at {address:#x} holds unknown bits")
        raw = b"".join(bytes.fromhex(line)[::-1] for line in text)
        skip = address - 16 * (start + first)
        out.add(address, raw[skip : skip + length])
    return out


def run(
    config: ChipConfig,
    image: Image,
    writes: list[tuple[int, int]],
    reads: list[int],
    *,
    latency: int,
    limit: int,
    progress: Callable[[int], None] | None = None,
) -> IcarusResult:
    """Load `image`, write registers, run until idle or `limit` cycles, read registers. Raises ToolError, SimulationError."""
    hex_text, words = _memory_hex(image)
    program = _build(config, write_netlist(config), words, latency)
    first = min((a // 16 for a, _ in image.outputs), default=0)
    last = max(((a + n + 15) // 16 - 1 for a, n in image.outputs), default=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "memory.hex").write_text(hex_text)
        (folder / "writes.hex").write_text("".join(f"{a:08x}{v:08x}\n" for a, v in writes))
        (folder / "reads.hex").write_text("".join(f"{a:08x}\n" for a in reads))
        args = [
            "+memory=memory.hex",
            "+writes=writes.hex",
            f"+n_writes={len(writes)}",
            "+reads=reads.hex",
            f"+n_reads={len(reads)}",
        ]
        args += [
            "+values=values.txt",
            "+dump=dump.hex",
            f"+first={first}",
            f"+last={last}",
            f"+limit={limit}",
            "+every=500",
        ]
        start = time.perf_counter()
        process = subprocess.Popen(
            ["vvp", "-n", str(program), *args],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        end: list[int] = []
        problems: list[str] = []
        with process:
            for line in process.stdout or ():
                if line.startswith("CYCLES") and progress is not None:
                    progress(int(line.split()[1]))
                elif line.startswith("END"):
                    end = [int(x) for x in line.split()[1:]]
                elif line.startswith("ERROR") or "rror" in line:
                    problems.append(line.strip())
        seconds = time.perf_counter() - start
        if problems or not end:
            raise SimulationError(f"Icarus run failed: {problems[0] if problems else 'no END line'}")
        values = [line.split() for line in (folder / "values.txt").read_text().splitlines()]
        if any("x" in v or int(code) for v, code in values):
            raise SimulationError("a result register held unknown bits or answered with an error")
        outputs = _outputs(image, folder / "dump.hex", first)
    return IcarusResult(outputs, [int(v, 16) for v, _ in values], end[0], seconds, end[1] != 0)
