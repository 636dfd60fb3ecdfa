"""GpSimd builder methods: what they emit, and what they refuse before the hardware would."""

import pytest

from models import assembly
from models.access import row
from models.config import find
from models.formats import DType
from models.isa import INSTR_BYTES, AluOp, Engine, Flag, Opcode, Space
from models.program import Program, ProgramError

NANO = find("nano")
A, B, INDEX = row(0, DType.FP32, 4), row(64, DType.FP32, 4), row(128, DType.UINT16, 4)
PS = row(0, DType.FP32, 4, space=Space.PSUM)
STEPS = ((1, 4),)


def test_words_and_assembly():
    p = Program(NANO)
    p.gpsimd.iota(A, STEPS, parts=3, start=-1, multiplier=-2, saturate=True)
    p.gpsimd.affine_select(A, B, AluOp.IS_GE, ((-1, 4),), -1.0, parts=8, multiplier=1)
    p.gpsimd.local_gather(A, B, INDEX, parts=8)
    p.gpsimd.partition_reduce(A, B, AluOp.ABS_MAX, parts=8)
    iota, select, gather, reduce = p.gpsimd.instructions
    assert iota.fields == {"parts": 3, "flags": Flag.SATURATE, "imm0": 0xFFFFFFFE}
    assert iota.aps["src1"].addr == 0xFFFFFFFF
    assert select.fields == {"parts": 8, "op0": AluOp.IS_GE, "imm0": 1, "imm1": 0xBF800000}
    assert gather.opcode == Opcode.LOCAL_GATHER
    assert reduce.fields == {"parts": 8, "op0": AluOp.ABS_MAX}
    p.finish()
    words = p.gpsimd.encode()
    assert len(words) == 5 * INSTR_BYTES
    text = ".engine gpsimd\n" + assembly.disassemble(words)
    assert "AFFINE_SELECT parts=8 op0=is_ge" in text
    assert assembly.assemble(text)[0] == {Engine.GPSIMD: words}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.vector.iota(A, STEPS, parts=1), r"vector\[0\] IOTA: not an instruction of this engine"),
        (
            lambda p: p.gpsimd.memset(A, 1.0, parts=1),
            r"gpsimd\[0\] MEMSET: not an instruction of this engine",
        ),
        (lambda p: p.gpsimd.iota(A, ((1, 5),), parts=1), r"steps must give dst's 4 elements, not 5"),
        (lambda p: p.gpsimd.iota(A, STEPS, parts=9), r"parts must be from 1 to 8, not 9"),
        (lambda p: p.gpsimd.iota(PS, STEPS, parts=1), r"dst must lie in SBUF, not PSUM"),
        (lambda p: p.gpsimd.iota(A, STEPS, parts=1, start=1 << 32), r"start must fit in 32 bits"),
        (lambda p: p.gpsimd.iota(A, STEPS, parts=1, multiplier=1 << 32), r"multiplier must fit in 32 bits"),
        (lambda p: p.gpsimd.iota(A, (*STEPS,) * 5, parts=1), r"dims must be 1 to 4"),
        (
            lambda p: p.gpsimd.affine_select(A, B, AluOp.ADD, STEPS, 0.0, parts=1),
            r"compare must be one of IS_EQ, .*, not ADD",
        ),
        (
            lambda p: p.gpsimd.affine_select(A, PS, AluOp.IS_EQ, STEPS, 0.0, parts=1),
            r"src0 must lie in SBUF, not PSUM",
        ),
        (
            lambda p: p.gpsimd.affine_select(A, row(0, DType.FP32, 3), AluOp.IS_EQ, STEPS, 0.0, parts=1),
            r"src0 must have dst's 4 elements, not 3",
        ),
        (
            lambda p: p.gpsimd.local_gather(A, B, B, parts=1),
            r"src1.dtype must be one of UINT16, INT32, UINT32, not FP32",
        ),
        (
            lambda p: p.gpsimd.local_gather(A, B, row(0, DType.UINT16, 3), parts=1),
            r"src1 must have dst's 4 elements, not 3",
        ),
        (lambda p: p.gpsimd.local_gather(A, PS, INDEX, parts=1), r"src0 must lie in SBUF, not PSUM"),
        (
            lambda p: p.gpsimd.local_gather(A, row(0, DType.E4M3X4, 4), INDEX, parts=1),
            r"src0.dtype must be a float, integer or E8M0 type, not E4M3X4",
        ),
        (
            lambda p: p.gpsimd.partition_reduce(A, B, AluOp.SUB, parts=1),
            r"op must be one of ADD, .*, not SUB",
        ),
        (lambda p: p.gpsimd.partition_reduce(PS, B, AluOp.ADD, parts=1), r"dst must lie in SBUF, not PSUM"),
        (
            lambda p: p.gpsimd.partition_reduce(row(0, DType.E8M0, 4), B, AluOp.ADD, parts=1),
            r"dst.dtype must be a float or integer type, not E8M0",
        ),
        (
            lambda p: p.gpsimd.partition_reduce(A, row(0, DType.E4M3X4, 4), AluOp.ADD, parts=1),
            r"src0.dtype must be a float, integer or E8M0 type, not E4M3X4",
        ),
    ],
)
def test_what_is_refused(build, message):
    with pytest.raises(ProgramError, match=message):
        build(Program(NANO))
