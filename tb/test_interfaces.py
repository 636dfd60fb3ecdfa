"""Shared layouts agree with the ISA table, bit for bit."""

import random

from amaranth import Const
from amaranth.lib import data

from models import isa
from models.access import AccessPattern
from models.encoding import Instruction, encode
from models.formats import DType
from models.isa import Opcode, Space
from rtl.interfaces import (
    ApLayout,
    Axi4Signature,
    AxiLiteSignature,
    InstrLayout,
    IssueLayout,
    MovingLayout,
    words_addr_bits,
)


def field(layout: data.Layout, name: str, value: int) -> int:
    f = layout[name]
    width = f.shape.size if isinstance(f.shape, data.Layout) else f.width
    return (value >> f.offset) & ((1 << width) - 1)


def test_instruction_layout_reads_what_the_encoder_wrote():
    rng = random.Random(11)
    layout = InstrLayout()
    assert layout.size == 8 * isa.INSTR_BYTES
    for _ in range(50):
        dims = tuple((rng.randrange(-1000, 1000), rng.randrange(65536)) for _ in range(4))
        ap = AccessPattern(
            rng.getrandbits(32), rng.choice(list(DType)), dims, rng.choice(list(Space)), rng.randrange(128)
        )
        instr = Instruction(
            Opcode.MATMUL, {"parts": rng.randrange(1, 129), "wait_value": -5, "wait_mode": 1}, {"src1": ap}
        )
        word = int.from_bytes(encode(instr), "little")
        assert field(layout, "opcode", word) == Opcode.MATMUL
        assert field(layout, "parts", word) == instr.fields["parts"]
        assert field(layout, "wait_value", word) == (1 << 32) - 5
        raw = field(layout, "src1", word)
        assert field(ApLayout(), "addr", raw) == ap.addr
        for i, (stride, count) in enumerate(dims):
            assert field(ApLayout(), f"stride{i}", raw) == stride % (1 << 32)
            assert field(ApLayout(), f"count{i}", raw) == count


def test_signedness_comes_from_the_table():
    view = ApLayout()(Const(0, 8 * isa.AP_BYTES))
    assert view.stride3.shape().signed
    assert not view.count3.shape().signed
    assert IssueLayout().size == 8 * isa.INSTR_BYTES + 32 + 8


def test_port_widths():
    assert words_addr_bits(65536) == 14
    assert MovingLayout(16).size == 16 * 32 + 2 * 8 + 5 + 1 + 4
    names = set(Axi4Signature(id_width=4).members)
    assert {"awaddr", "wstrb", "bresp", "arlen", "rlast"} <= names
    assert AxiLiteSignature().members["awaddr"].shape == 24
