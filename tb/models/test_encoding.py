"""The instruction table itself: fields neither overlap nor leave the word; every byte round-trips."""

import pytest

from models import encoding, isa
from models.encoding import EncodingError, Instruction
from models.isa import Opcode


def test_fields_do_not_overlap():
    base = [(f.offset, f.size) for f in (*isa.HEADER, *isa.SMALL)]
    aps = [(o, isa.AP_BYTES) for o in isa.AP_OFFSETS.values()]
    dma = [(f.offset, f.size) for f in (*isa.HEADER, *isa.DMA_FIELDS)]
    flow = [(f.offset, f.size) for f in (*isa.HEADER, *isa.CONTROL_FIELDS) if f.name != "cond"]
    for table in (base + aps, dma, flow, [(f.offset, f.size) for f in isa.AP_FIELDS]):
        used: set[int] = set()
        for offset, size in table:
            span = set(range(offset, offset + size))
            assert not used & span
            used |= span
        assert max(used) < isa.INSTR_BYTES
    assert all(f.offset + f.size <= isa.AP_BYTES for f in isa.AP_FIELDS)


def test_every_opcode_names_known_fields():
    known = {f.name for f in isa.FIELDS}
    for opcode in Opcode:
        info = isa.OPS[opcode]
        assert set(info.fields) <= known
        assert set(info.aps) <= set(isa.AP_OFFSETS)
        assert info.engines
        assert info.doc


def test_refusals():
    with pytest.raises(EncodingError, match="HALT has no field 'parts'; it has none"):
        encoding.encode(Instruction(Opcode.HALT, {"parts": 1}))
    with pytest.raises(EncodingError, match="parts must be from 0 to 255, not 256"):
        encoding.encode(Instruction(Opcode.TENSOR_COPY, {"parts": 256}))
    with pytest.raises(EncodingError, match="an instruction is 128 bytes, not 5"):
        encoding.decode(b"12345")
