"""Assembly text and disassembly are inverses; bad lines are named."""

import random

import pytest

from models import assembly, config
from models.access import AccessPattern
from models.assembly import AssemblyError
from models.encoding import Instruction, decode, encode
from models.formats import DType
from models.isa import FIELDS, OPS, Engine, Field, Opcode, Space, dynamic_operands

SEED = 20261201


def random_instruction(rng: random.Random) -> Instruction:
    opcode = rng.choice(list(Opcode))
    table: dict[str, Field] = {f.name: f for f in FIELDS}
    fields = {}
    for name in OPS[opcode].fields:
        bits = 8 * table[name].size
        value = rng.getrandbits(bits) if not table[name].signed else rng.getrandbits(bits) - (1 << (bits - 1))
        if value:
            fields[name] = value
    if rng.random() < 0.5:
        fields |= {"wait_mode": 1, "wait_sem": rng.randrange(1, 64), "wait_value": rng.randrange(1, 1000)}
    if rng.random() < 0.5:
        fields |= {
            "update_mode": rng.randrange(1, 4),
            "update_sem": rng.randrange(1, 64),
            "update_value": -rng.randrange(1, 1000),
        }
    if rng.random() < 0.5:
        fields |= {f"dyn_{name}": rng.randrange(1, 16) for name in dynamic_operands(opcode)}
    aps = {}
    for name in OPS[opcode].aps:
        dims = tuple((rng.randrange(-99, 99), rng.randrange(1, 99)) for _ in range(4))
        aps[name] = AccessPattern(
            rng.randrange(1, 1 << 20),
            rng.choice(list(DType)),
            dims,
            rng.choice(list(Space)),
            rng.randrange(128),
        )
    return Instruction(opcode, fields, aps)


def test_text_and_words_round_trip():
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    for _ in range(500):
        instr = random_instruction(rng)
        word = encode(instr)
        assert encode(decode(word)) == word
        assert encode(assembly.parse_instruction(assembly.format_instruction(instr))) == word


def test_program_text():
    text = """
    .engine sync
    begin:
      NOP wait=3>=-2 update=4:=7   # comment
      HALT
    .engine tensor
      MATMUL parts=16 cols=16 flags=1 dst=psum:0:fp32:0[1x512] src0=sbuf:0x40:bf16:0[0x2, 1x256]
    """.replace(", ", ",")
    words, labels = assembly.assemble(text)
    assert labels[Engine.SYNC] == {"begin": 0}
    assert len(words[Engine.SYNC]) == 256
    shown = assembly.disassemble(words[Engine.TENSOR])
    assert (
        shown
        == "  MATMUL parts=16 cols=16 flags=1 dst=psum:0x0:fp32:0[1x512] src0=sbuf:0x40:bf16:0[0x2,1x256]\n"
    )
    assert assembly.disassemble(words[Engine.SYNC], labels=labels[Engine.SYNC]).startswith(
        "begin:\n  NOP wait=3>=-2 update=4:=7\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HALT", r"line 1: an .engine line must come first"),
        (".engine gpu", r"line 1: .engine must be one of tensor, vector, sync, scalar, gpsimd, not 'gpu'"),
        (".engine sync\nJUMP", r"line 2: instruction must be one of NOP, .*, not 'JUMP'"),
        (".engine sync\nMATMUL", r"line 2: MATMUL is not an instruction of the sync engine"),
        (".engine sync\nNOP parts=3", r"line 2: NOP has no field 'parts'"),
        (".engine sync\nDMA rows=x", r"line 2: rows must be a number, not 'x'"),
        (".engine sync\nDMA rows=-1", r"line 2: rows must be from 0 to"),
        (".engine sync\nNOP wait=3>1", r"line 2: wait must look like 3>=1, not '3>1'"),
        (".engine sync\na:\na:", r"line 3: label 'a' is defined twice"),
        (".engine vector\nTENSOR_COPY dst=sbuf:0:bf16[1x2]", r"line 2: access pattern must look like"),
        (
            ".engine vector\nTENSOR_COPY dst=heap:0:bf16:0[1x2]",
            r"line 2: space must be sbuf or psum, not 'heap'",
        ),
    ],
)
def test_bad_lines(text, message):
    with pytest.raises(AssemblyError, match=message):
        assembly.assemble(text)


def test_illegal_words_are_shown_with_their_reason():
    words = bytes(128) + encode(Instruction(Opcode.HALT))
    text = assembly.disassemble(words)
    assert "# index 0: opcode must be one of" in text
    assert text.endswith("  HALT\n")
    dirty = bytearray(encode(Instruction(Opcode.HALT)))
    dirty[100] = 1
    with pytest.raises(ValueError, match=r"HALT: byte 100 must be 0x00, not 0x01"):
        decode(bytes(dirty))
    assert config.find("nano").name == "nano"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no instructions: an .engine line must come first"),
        ("# nothing\n\n", "no instructions: an .engine line must come first"),
        (".engine vector\nHALT\n.engine sync\nend:\n", "no instructions for the sync engine"),
    ],
)
def test_streams_of_nothing(text, why):
    """A core that were started on one would take whatever lies there."""
    with pytest.raises(AssemblyError, match=why):
        assembly.assemble(text)
