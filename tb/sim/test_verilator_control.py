"""Control files: what is kept apart, what is compiled once, what can be seen."""

from rtl.lib.queue import Queue, QueueConfig
from sim.emit import emit_tile
from sim.verilator_control import (
    MANY,
    compiled_once,
    control_file,
    instance_counts,
    kept_apart,
    on_either_edge,
)

LEAF = "module processing_element_1(clk);\n  input clk;\n  input [6:0] left;\n  input valid;\n  output [6:0] left_out;\nendmodule\n"


def _parent(name: str, child: str, count: int) -> str:
    return (
        f"module {name}(clk);\n"
        + "".join(f"  {child} u{i} (\n    .clk(clk)\n  );\n" for i in range(count))
        + "endmodule\n"
    )


def test_counts_multiply():
    modules = {
        "top": _parent("top", "row_1", 3),
        "row_1": _parent("row_1", "processing_element_1", 4),
        "processing_element_1": LEAF,
    }
    assert instance_counts(modules, "top") == {"top": 1, "row_1": 3, "processing_element_1": 12}
    assert kept_apart(modules, "top") == ["processing_element_1"]
    text = control_file(modules, "top", blocks=["row_1"], public_ports=True)
    assert text.splitlines() == [
        "`verilator_config",
        'hier_block -module "row_1"',
        'no_inline -module "processing_element_1"',
        'public_flat_rd -module "processing_element_1" -var "left"',
        'public_flat_rd -module "processing_element_1" -var "valid"',
        'public_flat_rw -module "top" -var "*"',
    ]


def test_few_are_inlined():
    modules = {"top": _parent("top", "processing_element_1", MANY - 1), "processing_element_1": LEAF}
    assert control_file(modules, "top") == "`verilator_config\n"


def test_compiled_once_when_there_are_two():
    modules = {
        "chip": _parent("chip", "core_0123abcd", 2),
        "core_0123abcd": _parent("core_0123abcd", "array_group_0123abcd", 1)
        + _parent("x", "core_registers_0123abcd", 2),
        "array_group_0123abcd": LEAF.replace("processing_element_1", "array_group_0123abcd"),
        "core_registers_0123abcd": LEAF.replace("processing_element_1", "core_registers_0123abcd"),
    }
    assert compiled_once(modules, "chip") == ["core_0123abcd"]
    modules["chip"] = _parent("chip", "core_0123abcd", 1)
    assert compiled_once(modules, "chip") == []


def test_every_register_steps_on_either_edge():
    modules = emit_tile(Queue, QueueConfig(width=4, depth=4))
    for text in modules.values():
        assert "posedge" in text
        assert "posedge" not in on_either_edge(text)
        assert on_either_edge(text).count("always @(clk)") == text.count("posedge")
