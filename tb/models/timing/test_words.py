"""Instruction words: what the sequencer sees, addresses that registers move, refusals."""

import pytest

from models import cost
from models.access import row
from models.config import find
from models.encoding import Instruction, encode
from models.formats import DType
from models.isa import Engine, Opcode
from models.timing.clock import TimingError
from models.timing.words import Words

NANO = find("nano")
WORDS = Words(NANO)


def word(opcode, fields=None, aps=None, engine=Engine.VECTOR, registers=None):
    raw = encode(Instruction(opcode, fields or {}, aps or {}))
    return WORDS.word(engine, raw, registers or [0] * 16)


def test_header_and_cycles():
    aps = {"dst": row(0, DType.FP32, 12), "src0": row(64, DType.FP32, 12)}
    fields = {
        "parts": 4,
        "wait_mode": 1,
        "wait_sem": 7,
        "wait_value": -2,
        "update_mode": 1,
        "update_value": 3,
    }
    found = word(Opcode.TENSOR_COPY, fields, aps)
    assert found.wait == (7, -2)
    assert found.update == (1, 0, 3)
    assert found.cycles == cost.alone(NANO, Instruction(Opcode.TENSOR_COPY, {"parts": 4}, aps))
    assert word(Opcode.NOP).wait is None


def test_registers_move_addresses():
    aps = {"dst": row(0, DType.FP32, 12), "src0": row(64, DType.FP32, 12)}
    registers = [0, 256] + [0] * 14
    moved = word(Opcode.TENSOR_COPY, {"parts": 4, "dyn_src0": 1}, aps, registers=registers)
    assert moved.instr.aps["src0"].addr == 320
    assert moved.instr.aps["dst"].addr == 0
    dma = word(Opcode.DMA, {"src": 1 << 40, "rows": 1, "row_bytes": 4, "dyn_dst": 1}, registers=registers)
    assert dma.raw["dst"] == 256


@pytest.mark.parametrize(
    ("opcode", "fields", "text"),
    [
        (Opcode.MATMUL, {}, "MATMUL is not an instruction of this engine"),
        (Opcode.NOP, {"wait_mode": 1, "wait_sem": 255}, "semaphore must be below 64, not 255"),
        (Opcode.NOP, {"wait_mode": 9}, "wait_mode 9 or update_mode 0 is unknown"),
        (Opcode.REGISTER, {"reg_op": 99, "rd": 1}, "REGISTER has a register or a code"),
        (Opcode.TENSOR_COPY, {"parts": 1}, "TENSOR_COPY has no dst"),
    ],
)
def test_refusals(opcode, fields, text):
    with pytest.raises(TimingError, match=text):
        word(opcode, fields)
