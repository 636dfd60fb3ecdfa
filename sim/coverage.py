"""docs/coverage.md: for every instruction where its RTL, model, tests, builder and words are. tb/test_coverage.py holds the page to what is there."""

from pathlib import Path

from models import isa
from models.isa import CONTROL, Engine, Opcode
from models.xorwow import RANDOMS

ROOT = Path(__file__).parent.parent
RTL = {
    Engine.TENSOR: "rtl/tensor/engine.py",
    Engine.VECTOR: "rtl/vector/engine.py",
    Engine.SCALAR: "rtl/scalar/engine.py",
    Engine.GPSIMD: "rtl/gpsimd/engine.py",
}
"""Who executes an engine's own instructions."""
BENCHES = {
    Engine.TENSOR: "tb/tensor/tb_engine.py",
    Engine.VECTOR: "tb/vector/tb_engine.py",
    Engine.SCALAR: "tb/scalar/tb_engine.py",
    Engine.GPSIMD: "tb/gpsimd/tb_engine.py",
}
"""cocotb benches that compare an engine with the functional model, instruction by instruction, under stalls."""
MODELS = {
    Engine.TENSOR: ("models/machine.py",),
    Engine.VECTOR: (
        "models/mx.py",
        "models/ranking.py",
        "models/moves.py",
        "models/moments.py",
        "models/xorwow.py",
        "models/elements.py",
    ),
    Engine.SCALAR: ("models/scalar.py",),
    Engine.GPSIMD: ("models/gpsimd.py",),
    None: ("models/flow.py", "models/machine.py"),
}
BUILDERS = (
    "models/program.py",
    "models/element_stream.py",
    "models/mx_stream.py",
    "models/gpsimd_stream.py",
    "models/ranking_stream.py",
    "models/move_stream.py",
    "models/moments_stream.py",
    "models/random_stream.py",
    "models/control_flow.py",
)
PAGES = (
    "docs/programming.md",
    "docs/control.md",
    "docs/scalar.md",
    "docs/gpsimd.md",
    "docs/vector.md",
    "docs/array.md",
    "docs/memory.md",
)
"""Pages that a person wrote; docs/isa.md has every instruction."""
FUZZ, FUZZ_NUMBERS = "sim/fuzz/ops.py", "sim/fuzz/numbers.py"
Row = tuple[Opcode, Engine | None]
"""An instruction on one engine; None: on all."""


def rows() -> list[Row]:
    """Every instruction, once for each engine that executes it in its own way."""
    out: list[Row] = []
    for opcode, info in isa.OPS.items():
        shared = opcode in CONTROL or opcode == Opcode.DMA
        out += [(opcode, None)] if shared else [(opcode, e) for e in sorted(info.engines)]
    return out


def rtl_of(row: Row) -> str:
    """The block that executes an instruction."""
    opcode, engine = row
    if engine is not None:
        return RTL[engine]
    return "rtl/dma/engine.py" if opcode == Opcode.DMA else "rtl/control/sequencer.py"


def bench_of(row: Row) -> str:
    """The bench that compares that block with the model."""
    opcode, engine = row
    if engine is not None:
        return BENCHES[engine]
    return "tb/dma/tb_engine.py" if opcode == Opcode.DMA else "tb/control/test_sequencer.py"


def named_in(opcode: Opcode, files: tuple[str, ...], pattern: str = "Opcode.{}") -> str | None:
    """The first of `files` that has the instruction's name, as code or as text."""
    word = pattern.format(opcode.name)
    for name in files:
        text = (ROOT / name).read_text()
        at = text.find(word)
        while at >= 0:
            after = text[at + len(word) : at + len(word) + 1]
            if not (after.isalnum() or after == "_"):
                return name
            at = text.find(word, at + 1)
    return None


def coverage_page() -> str:
    """The table; a place that is not found is a hole, `-`."""
    lines = [
        "# Where every instruction is",
        "",
        "<!-- Made by `make docs` from sim/coverage.py; edit that instead. -->",
        "",
        "`tb/test_coverage.py` holds this table to what is there: the benches' and the random programs' generators are asked for every instruction, and a hole fails.",
        "",
        "| instruction | engine | RTL | functional model | bench, RTL against model | random programs | builder | pages |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        opcode, engine = row
        # what a NOP does is what its header says, as for all that a sequencer does by itself
        model = "models/flow.py" if opcode in CONTROL else named_in(opcode, MODELS[engine]) or "-"
        builder = named_in(opcode, BUILDERS) or "-"
        page = named_in(opcode, PAGES, "`{}`")
        pages = "[isa](isa.md)" + (f", [{Path(page).stem}]({Path(page).name})" if page else "")
        name = engine.name.lower() if engine is not None else "all"
        cells = [rtl_of(row), model, bench_of(row), FUZZ_NUMBERS if opcode in RANDOMS else FUZZ, builder]
        lines.append(
            f"| {opcode.name} | {name} | {' | '.join(f'`{c}`' if c != '-' else c for c in cells)} | {pages} |"
        )
    return "\n".join(lines) + "\n"
