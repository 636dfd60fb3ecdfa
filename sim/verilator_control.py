"""Verilator control files: what it must keep apart, and what a testbench may see."""

import re
from collections.abc import Collection, Mapping

from sim.emit import placed_tiles

KEEP_APART = (
    "array_group_",
    "array_row_",
    "processing_element_",
    "partition_memory_",
    "vector_lane_",
    "scalar_lane_",
    "lane_reader_",
    "fp32_add_",
    "gpsimd_lane_",
    "instruction_fetch_",
)
"""Tiles with much logic that occur many times."""
MANY = 4
COMPILED_ONCE = re.compile(r"core_[0-9a-f]{8}")
"""Tiles worth a model of their own when they occur more than once, so that threads can run one each."""
SHARE_CODE = ("-fno-dfg-scoped", "-fno-table")
"""Options without which Verilator gives the instances of a tile different temporaries, and so a copy of the code each."""
INPUT = re.compile(r"^  input (?:\[\d+:0\] )?(\w+);$", re.MULTILINE)


def instance_counts(modules: Mapping[str, str], top: str) -> dict[str, int]:
    """How often each of `modules` ({name: Verilog}) occurs below `top`, itself included."""
    children = {name: placed_tiles(text, set(modules)) for name, text in modules.items()}
    totals = dict.fromkeys(modules, 0)

    def visit(name: str, times: int) -> None:
        totals[name] += times
        for child, count in children[name].items():
            visit(child, times * count)

    visit(top, 1)
    return totals


def kept_apart(modules: Mapping[str, str], top: str) -> list[str]:
    """Modules of KEEP_APART's tiles that occur many times, in the order of `modules`."""
    counts = instance_counts(modules, top)
    return [n for n in modules if counts[n] >= MANY and n.startswith(KEEP_APART) and n != top]


def compiled_once(modules: Mapping[str, str], top: str) -> list[str]:
    """Modules of COMPILED_ONCE's tiles that occur more than once, in the order of `modules`."""
    counts = instance_counts(modules, top)
    return [n for n in modules if counts[n] > 1 and COMPILED_ONCE.fullmatch(n) and n != top]


def shared_inputs(text: str) -> list[str]:
    """Inputs of a module, clock and reset aside, that Verilator must not replace by the signals they are connected to.

    Where it does, the code of each instance names its neighbours and cannot be the code of another.
    """
    return [name for name in INPUT.findall(text) if name not in ("clk", "rst")]


def on_either_edge(text: str) -> str:
    """A module whose registers take a step at every change of the clock instead of at rising edges only.

    A simulator that drives the clock itself then evaluates the chip once a cycle instead of twice (docs/decisions/0009).
    """
    return text.replace("always @(posedge clk)", "always @(clk)")


def control_file(
    modules: Mapping[str, str], top: str, *, blocks: Collection[str] = (), public_ports: bool = False
) -> str:
    """A .vlt file.

    Tiles of `kept_apart` are compiled as functions of their own instead of being inlined into one expression graph, which makes the C++
    several times faster to compile, and (with SHARE_CODE) one function serves all instances: the code of a chip of many PEs is then
    small enough for a processor's cache. `blocks` are models of their own (hierarchical Verilation). `public_ports`: the top's ports can
    be seen from outside, and nothing else, so that a bench does not cost Verilator its optimisations.
    """
    lines = ["`verilator_config"]
    lines += [f'hier_block -module "{name}"' for name in blocks]
    for name in kept_apart(modules, top):
        lines.append(f'no_inline -module "{name}"')
        lines += [f'public_flat_rd -module "{name}" -var "{port}"' for port in shared_inputs(modules[name])]
    if public_ports:
        lines.append(f'public_flat_rw -module "{top}" -var "*"')
    return "\n".join(lines) + "\n"
