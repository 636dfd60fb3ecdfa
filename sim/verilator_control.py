"""Verilator control files: what it must keep apart, and what a testbench may see."""

from collections.abc import Mapping

from sim.emit import placed_tiles

MANY = 8
LARGE = 4000


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


def control_file(modules: Mapping[str, str], top: str, *, public_ports: bool = False) -> str:
    """A .vlt file: tiles that are large and occur many times are compiled as functions of their own instead of being inlined

    into one expression graph, which makes the C++ several times faster to compile and somewhat faster to run. `public_ports`: the
    top's ports can be seen from outside, and nothing else, so that a bench does not cost Verilator its optimisations.
    """
    lines = ["`verilator_config"]
    for name, count in instance_counts(modules, top).items():
        if count >= MANY and len(modules[name]) >= LARGE and name != top:
            lines.append(f'no_inline -module "{name}"')
    if public_ports:
        lines.append(f'public_flat_rw -module "{top}" -var "*"')
    return "\n".join(lines) + "\n"
