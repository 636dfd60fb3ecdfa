"""Pages of docs/ that are made from tables, so that they cannot disagree with the hardware."""

import enum
from pathlib import Path

from models import config as configs
from models import isa
from models.cost import (
    CONTROL,
    COSTS,
    ENOUGH_COLUMNS,
    FURTHER_MATMUL,
    FURTHER_TRANSPOSE,
    SCALAR_COSTS,
    steps,
)
from models.functions import ActFunc
from models.isa import Engine, ErrorCode, Field
from sim.coverage import coverage_page
from sim.memory_map import markdown

DOCS = Path(__file__).parent.parent / "docs"
NOTE = "<!-- Made by `make docs` from {source}; edit that instead. -->\n\n"


def _table(fields: tuple[Field, ...]) -> list[str]:
    rows = ["| byte | bytes | field | meaning |", "|---|---|---|---|"]
    return rows + [
        f"| {f.offset} | {f.size}{' signed' if f.signed else ''} | `{f.name}` | {f.doc} |" for f in fields
    ]


def _codes(field: str, names: type[enum.IntEnum]) -> list[str]:
    listed = ", ".join(f"{n.value} {n.name}" for n in names)
    return [f"`{field}`: {listed}.", ""]


def isa_page() -> str:
    """The instruction set."""
    lines = ["# Instruction set", "", NOTE.format(source="models/isa.py").strip(), ""]
    lines += [
        "An instruction is 128 bytes, little-endian. Bytes that an opcode does not use are zero.",
        "",
        "## Header",
        "",
    ]
    lines += [
        *_table(isa.HEADER),
        "",
        "## Small fields",
        "",
        *_table(isa.SMALL),
        "",
        "## DMA fields",
        "",
        *_table(isa.DMA_FIELDS),
        "",
        "## Control fields",
        "",
        f"A sequencer has {isa.REGISTERS} registers of 32 bits, 0 when its stream starts; register 0 is always 0.",
        "",
        *_table(isa.CONTROL_FIELDS),
        "",
        *_codes("reg_op", isa.RegOp),
        *_codes("cond", isa.Cond),
    ]
    places = ", ".join(f"`{n}` at byte {o}" for n, o in isa.AP_OFFSETS.items())
    lines += [
        "",
        "## Access pattern",
        "",
        f"32 bytes each: {places}.",
        "",
        *_table(isa.AP_FIELDS),
        "",
        "## Instructions",
        "",
    ]
    lines += ["| code | name | engines | fields | operands | what it does |", "|---|---|---|---|---|---|"]
    for op, info in isa.OPS.items():
        engines = (
            "all"
            if info.engines == frozenset(Engine)
            else ", ".join(sorted(e.name.lower() for e in info.engines))
        )
        lines.append(
            f"| `{op:#04x}` | {op.name} | {engines} | {', '.join(info.fields) or '-'} | {', '.join(info.aps) or '-'} | {info.doc} |"
        )
    lines += [
        "",
        "## What an instruction costs",
        "",
        (
            "Cycles from when its engine takes an instruction to its update, alone and where memories grant at once: N elements of dst, M columns, P "
            "partitions of the core, R elements of a reduced group, s cycles of the function (below). The test `tb/models/test_cost.py` measures them on the chip."
        ),
        "",
        "| instruction | cycles |",
        "|---|---|",
        *[f"| {o.name} | {c.text} |" for o, c in COSTS.items()],
        *[f"| {o.name} on the scalar engine | {c.text} |" for o, c in SCALAR_COSTS.items()],
        f"| NOP, REGISTER, BRANCH not taken | {CONTROL} in a straight line (the fetch's pace); less in a loop that is kept, see [control.md](control.md) |",
        "",
        (
            "MATMUL is counted from the end of the LOAD_STATIONARY before it, with the array's depth; one that is there while the load runs is checked meanwhile, which saves up to six. Each further MATMUL, also one behind a LOAD_STATIONARY of its own, "
            f"adds {FURTHER_MATMUL.text} cycles, where N is {ENOUGH_COLUMNS} or more. "
            f"Each further TRANSPOSE adds at most {FURTHER_TRANSPOSE.text}. "
            "Flag DOUBLE_ROW changes none of this where src0 and src1 begin in different banks of SBUF; elsewhere a load or a matmul takes a cycle more."
        ),
        "",
        "## ALU operations",
        "",
        "| code | name |",
        "|---|---|",
        *[f"| {o.value} | {o.name} |" for o in isa.AluOp],
    ]
    lines += [
        "",
        "MAX and MIN are IEEE 754-2019 maximum and minimum: NaN wins, -0 < +0.",
        "",
        "## Functions of ACTIVATE",
        "",
        "Eight elements of every lane take 8 * cycles; accuracy is in [accuracy.md](accuracy.md).",
        "",
        "| code | function | cycles |",
        "|---|---|---|",
        *[f"| {f.value} | {f.name} | {steps(f)} |" for f in ActFunc],
        "",
        "## Error causes",
        "",
    ]
    lines += ["| code | name |", "|---|---|", *[f"| {e.value} | {e.name} |" for e in ErrorCode]]
    return "\n".join(lines) + "\n"


def registers_page() -> str:
    """The register map, for the `mini` preset."""
    return NOTE.format(source="models/registers.py") + markdown(configs.find("mini"))


def presets_page() -> str:
    """The presets side by side."""
    lines = ["# Presets", "", NOTE.format(source="models/presets/*.toml").strip(), ""]
    lines += [
        "| preset | cores | P | formats | double rows | SBUF a core | PSUM a core | memory channels | memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in configs.presets():
        c = configs.find(name)
        formats, double = (
            ", ".join(f.name.lower() for f in types) for types in (c.tensor.formats, c.tensor.double_row)
        )
        sbuf, psum = (
            c.partitions * c.sbuf.bytes_per_partition >> 10,
            c.partitions * c.psum.bytes_per_partition >> 10,
        )
        lines.append(
            f"| `{name}` | {c.cores} | {c.partitions} | {formats} | {double or '-'} | {sbuf} KiB | {psum} KiB | {c.memory.channels} | {c.memory.bytes >> 20} MiB |"
        )
    return "\n".join(lines) + "\n"


PAGES = {
    "isa.md": isa_page,
    "registers.md": registers_page,
    "presets.md": presets_page,
    "coverage.md": coverage_page,
}


def write_docs(*, check: bool = False) -> list[str]:
    """Write (or, with `check`, only compare) the generated pages; returns the names of those that differed."""
    stale = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    return stale
