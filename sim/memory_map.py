"""The memory map of a chip as data, C header and Markdown, from models.registers and models.isa."""

from typing import Any

from models import addressing, registers
from models.config import ChipConfig
from models.isa import Space

WINDOWS = {
    "SEM_READ": (registers.SEM_READ, "ro", "semaphore s at 4 s: read"),
    "SEM_SET": (registers.SEM_SET, "rw", "semaphore s at 4 s: a write sets"),
    "SEM_ADD": (registers.SEM_ADD, "rw", "semaphore s at 4 s: a write adds"),
    "SEM_SUB": (registers.SEM_SUB, "rw", "semaphore s at 4 s: a write subtracts"),
}


def memory_map(config: ChipConfig) -> dict[str, Any]:
    """Registers (host port) and the 64-bit packet address space, as plain values."""
    host = [
        {"name": r.name, "address": r.offset, "access": r.access, "doc": r.doc}
        for r in registers.CHIP_REGISTERS
    ]
    for core in range(config.cores):
        base = registers.CORE_BASE + core * registers.CORE_SIZE
        for r in registers.CORE_REGISTERS:
            host.append(
                {"name": f"CORE{core}_{r.name}", "address": base + r.offset, "access": r.access, "doc": r.doc}
            )
        for name, (offset, access, doc) in WINDOWS.items():
            host.append(
                {"name": f"CORE{core}_{name}", "address": base + offset, "access": access, "doc": doc}
            )
    spaces = [
        {
            "name": "MEMORY",
            "address": addressing.memory_address(0),
            "bytes": config.memory.bytes,
            "stride": 0,
            "partitions": 1,
        }
    ]
    for core in range(config.cores):
        for space, size, stride in (
            (Space.SBUF, config.sbuf.bytes_per_partition, addressing.SBUF_PARTITION_STRIDE),
            (Space.PSUM, config.psum.bytes_per_partition, addressing.PSUM_PARTITION_STRIDE),
        ):
            address = addressing.core_address(core, space, 0, 0)
            row = {"name": f"CORE{core}_{space.name}", "address": address, "bytes": size, "stride": stride}
            spaces.append(row | {"partitions": config.partitions})
    return {"registers": host, "spaces": spaces}


def c_header(config: ChipConfig) -> str:
    """`#define TESELA_...` for every register and address space."""
    data = memory_map(config)
    lines = [
        f"/* Memory map of {config.name}. */",
        "#ifndef TESELA_MEMORY_MAP_H",
        "#define TESELA_MEMORY_MAP_H",
        "",
    ]
    lines += [f"#define TESELA_{r['name']} 0x{r['address']:06x}u" for r in data["registers"]]
    lines.append("")
    for s in data["spaces"]:
        lines.append(f"#define TESELA_{s['name']}_BASE 0x{s['address']:016x}ull")
        lines.append(f"#define TESELA_{s['name']}_BYTES 0x{s['bytes']:x}ull")
        if s["stride"]:
            lines.append(f"#define TESELA_{s['name']}_PARTITION_STRIDE 0x{s['stride']:x}ull")
    return "\n".join([*lines, "", "#endif", ""])


def markdown(config: ChipConfig) -> str:
    """Two tables: host registers and packet addresses."""
    data = memory_map(config)
    lines = [
        f"# Memory map of {config.name}",
        "",
        "## Host registers (AXI4-Lite)",
        "",
        "| address | name | access | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `0x{r['address']:06x}` | {r['name']} | {r['access']} | {r['doc']} |" for r in data["registers"]
    ]
    lines += [
        "",
        "## Packet addresses",
        "",
        "| base | name | bytes a partition | partition stride | partitions |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `0x{s['address']:016x}` | {s['name']} | {s['bytes']} | {s['stride']} | {s['partitions']} |"
        for s in data["spaces"]
    ]
    return "\n".join(lines) + "\n"
