"""Fields of the instruction word: the header, the small ones, a sequencer's own, a DMA's, access patterns, and the mask that lies where src1 would.

models.isa hands them on, with the opcodes that use them.
"""

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the instruction word: byte `offset`, `size` bytes, `signed` or not."""

    name: str
    offset: int
    size: int
    signed: bool = False
    doc: str = ""


REGISTERS = 16
"""Registers of a sequencer, 32 bits each. Register 0 is always 0."""


class RegOp(enum.IntEnum):
    """Integer operations on 32-bit registers: modulo 2^32; shifts by the low five bits of b; MIN and MAX signed."""

    MOVE = 0
    """b alone."""
    ADD = 1
    SUB = 2
    MUL = 3
    AND = 4
    OR = 5
    XOR = 6
    SHL = 7
    SHR = 8
    SRA = 9
    MIN = 10
    MAX = 11


class Cond(enum.IntEnum):
    """When a BRANCH is taken: a compared with b, signed, or unsigned (U)."""

    ALWAYS = 0
    EQ = 1
    NE = 2
    LT = 3
    GE = 4
    LTU = 5
    GEU = 6


HEADER = (
    Field("opcode", 0, 1, doc="what to do"),
    Field("wait_mode", 1, 1, doc="0: start at once; 1: start when semaphore wait_sem >= wait_value"),
    Field("wait_sem", 2, 1, doc="semaphore to wait for; waiting does not consume"),
    Field("update_mode", 3, 1, doc="when done: 0 nothing, 1 add, 2 subtract, 3 set"),
    Field("wait_value", 4, 4, True, doc="threshold"),
    Field("update_value", 8, 4, True, doc="operand of the update"),
    Field("update_sem", 12, 1, doc="semaphore to update"),
    Field("dyn_dst", 13, 1, doc="register added to the address of dst; 0: none"),
    Field("dyn_src0", 14, 1, doc="register added to the address of src0 (DMA: src)"),
    Field("dyn_src1", 15, 1, doc="register added to the address of src1"),
)

SMALL = (
    Field(
        "parts",
        16,
        1,
        doc="partitions: K of a matmul, load or transpose, lanes of a vector instruction; 1..P",
    ),
    Field("cols", 17, 1, doc="M: columns of the stationary tile = output partitions; 1..P"),
    Field(
        "op0",
        18,
        1,
        doc="first ALU operation; ACTIVATE: the function; MX_SCALE: the x4 type; RANDOM_STATE: what is done",
    ),
    Field("op1", 19, 1, doc="second ALU operation; MX_SCALE: the rule"),
    Field(
        "flags",
        20,
        1,
        doc="1 accumulate, 2 saturate, 4 src1 is a per-partition scalar, 8 and 16 reverse the operands of op0 and op1, 32 negate, 64 fresh accumulators",
    ),
    Field(
        "axes",
        21,
        1,
        doc="TENSOR_REDUCE: how many innermost dimensions of src0 are reduced; 1..4. RANDOM: bits that a float is made of; 0..24",
    ),
    Field(
        "imm0",
        24,
        4,
        doc="FP32 operand of op0; ACTIVATE: scale; MEMSET: the value; RANGE_SELECT, FIND_INDEX8: INT32 number of the first element; MATCH_REPLACE8: what is put in; RANDOM_STATE: seed; DROPOUT: probability; IOTA, AFFINE_SELECT: INT32 step from lane to lane",
    ),
    Field(
        "imm1",
        28,
        4,
        doc="FP32 operand of op1; ACTIVATE: bias, or the slope of PRELU and D_PRELU; SELECT, RANGE_SELECT, AFFINE_SELECT: what is not selected",
    ),
)

DMA_FIELDS = (
    Field("row_bytes", 16, 4, doc="contiguous bytes of a row; 0 is a no-op that completes"),
    Field("rows", 20, 4, doc="rows; 0 is a no-op that completes"),
    Field("src", 32, 8, doc="64-bit address of the first source byte"),
    Field("src_stride", 40, 8, True, doc="bytes from one source row to the next"),
    Field("dst", 48, 8, doc="64-bit address of the first destination byte"),
    Field("dst_stride", 56, 8, True, doc="bytes from one destination row to the next"),
)

CONTROL_FIELDS = (
    Field("reg_op", 16, 1, doc="REGISTER: the operation (RegOp)"),
    Field("cond", 16, 1, doc="BRANCH: the condition (Cond)"),
    Field("rd", 17, 1, doc="register that the result goes to, from 1"),
    Field("ra", 18, 1, doc="register a"),
    Field("rb", 19, 1, doc="register b, unless use_imm"),
    Field("use_imm", 20, 1, doc="1: b is imm"),
    Field("imm", 24, 4, True, doc="b as a number"),
    Field("target", 28, 4, doc="index in the stream of the instruction to go on with"),
)

AP_BYTES = 32
AP_DIMS = 4
AP_OFFSETS = {"dst": 32, "src0": 64, "src1": 96}

MASK_FIELDS = (
    Field(
        "mask",
        96,
        32,
        doc="STREAM_SHUFFLE: byte p: which partition of a quadrant its partition p is taken from; 255: it stays",
    ),
)

AP_FIELDS = (
    Field(
        "addr",
        0,
        4,
        doc="byte address of the first element within a partition; a multiple of the element size",
    ),
    Field("space", 4, 1, doc="0 SBUF, 1 PSUM"),
    Field("dtype", 5, 1, doc="element type (models.formats.DType)"),
    Field(
        "part",
        6,
        1,
        doc="first partition: 0 or a multiple of P/4 (for MX scales: offset 0, 4, 8 or 12 in a quadrant)",
    ),
    Field("stride0", 8, 4, True, doc="outermost stride, in elements"),
    Field("stride1", 12, 4, True),
    Field("stride2", 16, 4, True),
    Field("stride3", 20, 4, True, doc="innermost stride, in elements; 0 repeats"),
    Field("count0", 24, 2, doc="outermost count"),
    Field("count1", 26, 2),
    Field("count2", 28, 2),
    Field("count3", 30, 2, doc="innermost count; a count of 0 makes the access empty"),
)
