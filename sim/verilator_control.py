"""Verilator control files: what it must keep apart, and what a testbench may see."""

import re
from collections.abc import Collection, Mapping

from sim.emit import placed_tiles

KEEP_APART = (
    "processing_element_",
    "partition_memory_",
    "vector_lane_",
    "scalar_lane_",
    "lane_reader_",
    "fp32_add_",
)
"""Tiles with much logic that occur many times."""
MANY = 4
COMPILED_ONCE = re.compile(r"(core|array_group)_[0-9a-f]{8}")
"""Tiles worth a model of their own when they occur more than once: nearly all the code of a chip is in them."""


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
    several times faster to compile. `blocks` are compiled once for all their instances (hierarchical Verilation): the code of a chip of many
    PEs is then small enough for a processor's cache. `public_ports`: the top's ports can be seen from outside, and nothing
    else, so that a bench does not cost Verilator its optimisations.
    """
    lines = ["`verilator_config"]
    lines += [f'hier_block -module "{name}"' for name in blocks]
    lines += [f'no_inline -module "{name}"' for name in kept_apart(modules, top) if name not in blocks]
    if public_ports:
        lines.append(f'public_flat_rw -module "{top}" -var "*"')
    return "\n".join(lines) + "\n"
