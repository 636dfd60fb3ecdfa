"""The instruction set: one table that RTL decode, models, assembler, disassembler and docs are made from.

An instruction is 128 bytes, little-endian, self-contained. Bytes 0-15 are the header that every sequencer understands;
bytes 16-31 hold the operation's small fields; bytes 32-127 hold three access patterns (dst, src0, src1) of 32 bytes,
or, for DMA, two addresses with strides. Every byte that an opcode does not use must be zero.
"""

import enum
from dataclasses import dataclass

INSTR_BYTES = 128


class Engine(enum.IntEnum):
    """Engines of a core that have an instruction stream of their own, in register order."""

    TENSOR = 0
    VECTOR = 1
    SYNC = 2
    SCALAR = 3
    GPSIMD = 4


class Space(enum.IntEnum):
    """On-core memory that an access pattern walks."""

    SBUF = 0
    PSUM = 1


class WaitMode(enum.IntEnum):
    NONE = 0
    GE = 1


class UpdateMode(enum.IntEnum):
    NONE = 0
    ADD = 1
    SUB = 2
    SET = 3


class AluOp(enum.IntEnum):
    """FP32 operations of the vector engine. MAX/MIN are IEEE 754-2019 maximum/minimum: NaN wins, -0 < +0.

    Comparisons and logical operations give 1.0 or +0.0. A comparison with NaN is false, but NOT_EQ is true; -0 equals +0. An operand
    of a logical operation is true when it is not a zero (NaN is true).
    """

    BYPASS = 0
    ADD = 1
    SUB = 2
    MUL = 3
    MAX = 4
    MIN = 5
    IS_EQ = 6
    NOT_EQ = 7
    IS_GT = 8
    IS_GE = 9
    IS_LT = 10
    IS_LE = 11
    ABS_MAX = 12
    """MAX of |a| and |b|."""
    LOGICAL_AND = 13
    LOGICAL_OR = 14
    LOGICAL_XOR = 15
    DIVIDE = 16
    """Only as op0 of TENSOR_TENSOR and TENSOR_SCALAR: ten cycles an element."""


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


class Flag(enum.IntFlag):
    """Bits of the `flags` field."""

    ACCUMULATE = 1
    """MATMUL: add into PSUM instead of overwriting. Vector: results also go into the accumulators, with op1 (RANGE_SELECT: MAX). ACTIVATE: into the scalar engine's own, with ADD."""
    SATURATE = 2
    """Vector, scalar, gpsimd: finite overflow and Inf become the destination's largest finite value."""
    SRC1_SCALAR = 4
    """TENSOR_SCALAR, EXPONENTIAL: operand 0 is the one element a partition that src1 points at, instead of imm0. ACTIVATE: the bias, instead of imm1."""
    REVERSE0 = 8
    """TENSOR_SCALAR, SCALAR_TENSOR_TENSOR, EXPONENTIAL: op0 has its scalar first. TENSOR_TENSOR_SCAN: op0 has src0 first. TENSOR_COPY_PREDICATED, SELECT: src0 where src1 is a zero."""
    REVERSE1 = 16
    """TENSOR_SCALAR: op1 has imm1 first. SCALAR_TENSOR_TENSOR, TENSOR_TENSOR_SCAN: op1 has src1 first."""
    NEGATE = 32
    """TENSOR_REDUCE, READ_ACCUMULATOR: the result with its sign changed."""
    FRESH = 64
    """With ACCUMULATE on the vector or scalar engine: the accumulators start from the operation's identity."""
    DOUBLE_ROW = 128
    """LOAD_STATIONARY, MATMUL, of FP8: src1 is a second row of the contraction in every partition. A load's matmuls have it as the load has."""


class ErrorCode(enum.IntEnum):
    """Cause codes, as read from a core's ERR_CODE register."""

    NONE = 0
    ILLEGAL_OPCODE = 1
    """Opcode unknown, or not one of this engine's."""
    ILLEGAL_FIELD = 2
    """A field holds a value that the opcode does not allow (type, ALU op, shape, semaphore, alignment)."""
    SBUF_RANGE = 3
    PSUM_RANGE = 4
    DMA_RANGE = 5
    """A DMA row leaves its memory, or names a unit that this chip does not have."""
    BUS_ERROR = 6
    """A memory channel answered SLVERR or DECERR to a DMA."""
    FETCH_ERROR = 7
    """An instruction could not be fetched: address beyond memory, misaligned, or an AXI error response."""
    WATCHDOG = 8
    """Nothing in the core made progress for WATCHDOG cycles while this engine waited for a semaphore, or ran in a loop that issues nothing."""
    INDEX_RANGE = 9
    """LOCAL_GATHER: an index is not below src0's number of elements; the address is the index."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the instruction word: byte `offset`, `size` bytes, `signed` or not."""

    name: str
    offset: int
    size: int
    signed: bool = False
    doc: str = ""


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
    Field("op0", 18, 1, doc="first ALU operation; ACTIVATE: the function; MX_SCALE: the x4 type"),
    Field("op1", 19, 1, doc="second ALU operation; MX_SCALE: the rule"),
    Field(
        "flags",
        20,
        1,
        doc="1 accumulate, 2 saturate, 4 src1 is a per-partition scalar, 8 and 16 reverse the operands of op0 and op1, 32 negate, 64 fresh accumulators",
    ),
    Field("axes", 21, 1, doc="TENSOR_REDUCE: how many innermost dimensions of src0 are reduced; 1..4"),
    Field(
        "imm0",
        24,
        4,
        doc="FP32 operand of op0; ACTIVATE: scale; MEMSET: the value; RANGE_SELECT, FIND_INDEX8: INT32 number of the first element; MATCH_REPLACE8: what is put in; IOTA, AFFINE_SELECT: INT32 step from lane to lane",
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


class Opcode(enum.IntEnum):
    """Opcodes. 0 is illegal on purpose, so that running into cleared memory stops."""

    NOP = 0x01
    HALT = 0x02
    REGISTER = 0x03
    BRANCH = 0x04
    DMA = 0x10
    LOAD_STATIONARY = 0x20
    MATMUL = 0x21
    TRANSPOSE = 0x22
    TENSOR_COPY = 0x30
    TENSOR_TENSOR = 0x31
    TENSOR_SCALAR = 0x32
    SCALAR_TENSOR_TENSOR = 0x33
    TENSOR_REDUCE = 0x34
    MEMSET = 0x35
    TENSOR_COPY_PREDICATED = 0x36
    TENSOR_TENSOR_SCAN = 0x37
    READ_ACCUMULATOR = 0x38
    EXPONENTIAL = 0x39
    SELECT = 0x3A
    RANGE_SELECT = 0x3B
    MX_SCALE = 0x3C
    MX_CAST = 0x3D
    ACTIVATE = 0x40
    IOTA = 0x50
    AFFINE_SELECT = 0x51
    LOCAL_GATHER = 0x52
    PARTITION_REDUCE = 0x53
    MAX8 = 0x60
    FIND_INDEX8 = 0x61
    MATCH_REPLACE8 = 0x62


@dataclass(frozen=True, slots=True)
class OpInfo:
    """What an opcode may run on (`engines`), which small fields and access patterns it uses, and what it does."""

    engines: frozenset[Engine]
    fields: tuple[str, ...]
    aps: tuple[str, ...]
    doc: str


ALL = frozenset(Engine)
OPS: dict[Opcode, OpInfo] = {
    Opcode.NOP: OpInfo(ALL, (), (), "does nothing; waits and updates as any instruction"),
    Opcode.HALT: OpInfo(ALL, (), (), "ends the stream, after everything before it on this engine is done"),
    Opcode.REGISTER: OpInfo(
        ALL,
        ("reg_op", "rd", "ra", "rb", "use_imm", "imm"),
        (),
        "rd = a reg_op b, b = rb or imm; MOVE takes b alone",
    ),
    Opcode.BRANCH: OpInfo(
        ALL,
        ("cond", "ra", "rb", "use_imm", "imm", "target"),
        (),
        "goes on at `target` when a cond b, b = rb or imm; otherwise with the next instruction",
    ),
    Opcode.DMA: OpInfo(
        ALL,
        tuple(f.name for f in DMA_FIELDS),
        (),
        "copies `rows` rows of `row_bytes` bytes; the engine goes on at once, the update happens when the last byte is written",
    ),
    Opcode.LOAD_STATIONARY: OpInfo(
        frozenset({Engine.TENSOR}),
        ("parts", "cols", "flags"),
        ("src0", "src1"),
        "fills the shadow weights from src0 (SBUF [K, M]; pattern of M elements) and, for x4 types, scales from src1; with flag DOUBLE_ROW "
        "src1 is M more elements of src0's type: 2 K rows, row k of src1 next to row k of src0",
    ),
    Opcode.MATMUL: OpInfo(
        frozenset({Engine.TENSOR}),
        ("parts", "cols", "flags"),
        ("dst", "src0", "src1"),
        "streams N moving columns src0 (SBUF [K, N]; x4 types: scales src1; flag DOUBLE_ROW: src1 as the load's) through the weights into dst (PSUM FP32 [M, N])",
    ),
    Opcode.TRANSPOSE: OpInfo(
        frozenset({Engine.TENSOR}),
        ("parts", "cols"),
        ("dst", "src0"),
        "dst (PSUM [M, K]) = src0 (SBUF [K, M]) transposed, bit for bit; any types of equal width. The weights are gone: a MATMUL needs a load after it",
    ),
    Opcode.TENSOR_COPY: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "flags"),
        ("dst", "src0"),
        "dst = cast(src0); equal types copy bits",
    ),
    Opcode.TENSOR_TENSOR: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op0", "op1", "flags"),
        ("dst", "src0", "src1"),
        "dst = cast(src0 op0 src1), in FP32; op1 only with ACCUMULATE",
    ),
    Opcode.TENSOR_SCALAR: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op0", "op1", "flags", "imm0", "imm1"),
        ("dst", "src0", "src1"),
        "dst = cast((src0 op0 s0) op1 imm1), s0 = imm0, or one element a partition from src1 with flag SRC1_SCALAR; with ACCUMULATE dst = cast(src0 op0 s0)",
    ),
    Opcode.SCALAR_TENSOR_TENSOR: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op0", "op1", "flags", "imm0"),
        ("dst", "src0", "src1"),
        "dst = cast((src0 op0 imm0) op1 src1), in FP32",
    ),
    Opcode.TENSOR_REDUCE: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op0", "flags", "axes"),
        ("dst", "src0"),
        "dst = cast(op0 over the `axes` innermost dimensions of src0), in FP32, one result for each place of the outer ones: element i of a "
        "group goes to partial i mod 4, each from op0's identity on; then (p0 op0 p1) op0 (p2 op0 p3). op0: add, mul, max, min, abs_max, logical",
    ),
    Opcode.MEMSET: OpInfo(
        frozenset({Engine.VECTOR}), ("parts", "flags", "imm0"), ("dst",), "dst = cast(imm0), every element"
    ),
    Opcode.TENSOR_COPY_PREDICATED: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "flags"),
        ("dst", "src0", "src1"),
        "dst = cast(src0) where src1 is not a zero (with flag REVERSE0: where it is one); equal types copy bits; other elements of dst stay",
    ),
    Opcode.TENSOR_TENSOR_SCAN: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op0", "op1", "flags", "imm0"),
        ("dst", "src0", "src1"),
        "dst = cast(s), s = (s op0 src0) op1 src1 from one element to the next, in FP32, starting from s = imm0",
    ),
    Opcode.READ_ACCUMULATOR: OpInfo(
        frozenset({Engine.VECTOR, Engine.SCALAR}),
        ("parts", "op0", "flags"),
        ("dst",),
        "dst (one element) = cast((a0 op0 a1) op0 (a2 op0 a3)), in FP32, of a partition's four accumulators of this engine; they stay as they are; op0 is ADD on the scalar engine",
    ),
    Opcode.EXPONENTIAL: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op0", "op1", "flags", "imm0"),
        ("dst", "src0", "src1"),
        "dst = cast(exp(src0 op0 s0)), s0 as of TENSOR_SCALAR; op1 only with ACCUMULATE",
    ),
    Opcode.SELECT: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op1", "flags", "imm1"),
        ("dst", "src0", "src1"),
        "dst = cast(src0 where src1 is not a zero (with flag REVERSE0: where it is one), elsewhere imm1); op1 only with ACCUMULATE",
    ),
    Opcode.RANGE_SELECT: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op0", "op1", "flags", "imm0", "imm1"),
        ("dst", "src0", "src1"),
        "dst = cast(src0 where (i op0 b0) and (i op1 b1), elsewhere imm1), i = imm0 (INT32) + the element's number, modulo 2^32, as FP32; b0 and b1: "
        "two FP32 words a partition from src1; op0 and op1 compare",
    ),
    Opcode.MX_SCALE: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "op0", "op1"),
        ("dst", "src0"),
        "dst (E8M0 in SBUF, scales of N columns, placed as a matmul's) = scales of src0's blocks of 8 partitions by 4 elements (4 N float elements), for "
        "the x4 type op0 by the rule op1 (0 ocp, 1 nki)",
    ),
    Opcode.MX_CAST: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts",),
        ("dst", "src0", "src1"),
        "dst (x4 words of N columns) = src0 (4 N float elements) / scales src1, each rounded once and saturated; +0 where the scale is NaN",
    ),
    Opcode.ACTIVATE: OpInfo(
        frozenset({Engine.SCALAR}),
        ("parts", "op0", "flags", "imm0", "imm1"),
        ("dst", "src0", "src1"),
        "dst = cast(f(src0 * imm0 + b)), f = op0 (models.functions.ActFunc), b = imm1 (PRELU and D_PRELU: -0, imm1 is their slope), or one FP32 word a partition from src1 with flag SRC1_SCALAR; with ACCUMULATE element i of the FP32 results is also added to the scalar engine's accumulator i mod 4",
    ),
    Opcode.IOTA: OpInfo(
        frozenset({Engine.GPSIMD}),
        ("parts", "flags", "imm0"),
        ("dst", "src1"),
        "dst = cast(v), v = src1's addr + lane * imm0 + the sum of src1's strides times the element's place in each dimension: integers modulo "
        "2^32, lanes from 0; src1 is in no memory, its space, dtype and part are 0. INT32 and UINT32 take v's bits; other types v as INT32, through FP32",
    ),
    Opcode.AFFINE_SELECT: OpInfo(
        frozenset({Engine.GPSIMD}),
        ("parts", "op0", "flags", "imm0", "imm1"),
        ("dst", "src0", "src1"),
        "dst = cast(src0 where v op0 0, elsewhere imm1), v as of IOTA, INT32; op0 compares",
    ),
    Opcode.LOCAL_GATHER: OpInfo(
        frozenset({Engine.GPSIMD}),
        ("parts", "flags"),
        ("dst", "src0", "src1"),
        "dst[i] = cast(src0[src1[i]]) in each partition by itself, elements counted in walking order; src1 UINT16, INT32 or UINT32; src0 at most 65536 "
        "elements; equal types copy bits. An index that is not below src0's elements is INDEX_RANGE",
    ),
    Opcode.PARTITION_REDUCE: OpInfo(
        frozenset({Engine.GPSIMD}),
        ("parts", "op0", "flags"),
        ("dst", "src0"),
        "dst, of one partition = cast(op0 over src0's partitions, element by element), in FP32: lanes from `parts` up to P hold op0's identity; lanes 2k "
        "and 2k + 1 become lane k, until one is left. op0: add, mul, max, min, abs_max",
    ),
    Opcode.MAX8: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "flags"),
        ("dst", "src0"),
        "dst (8 elements) = cast(the 8 largest of src0's 8 to 16384 elements), in the order of MAX, from the largest on, duplicates kept",
    ),
    Opcode.FIND_INDEX8: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "imm0"),
        ("dst", "src0", "src1"),
        "dst (8 elements, UINT16, UINT32 or INT32) = cast(imm0 (INT32) + the number, modulo 2^32, as FP32, of the first of src0's 8 to 16384 elements "
        "that is src1's value and that no value before it took); +Inf is cast, which gives the type's largest number, where there is none. Values are "
        "the same when their FP32 codes are: -0 is not +0, NaN is NaN",
    ),
    Opcode.MATCH_REPLACE8: OpInfo(
        frozenset({Engine.VECTOR}),
        ("parts", "flags", "imm0"),
        ("dst", "src0", "src1"),
        "dst = cast(src0, with imm0 in the places that FIND_INDEX8 finds for src1's 8 values); 8 to 16384 elements",
    ),
}

FIELDS = (*HEADER, *SMALL, *DMA_FIELDS, *CONTROL_FIELDS)
"""All fields outside access patterns."""
CONTROL = (Opcode.NOP, Opcode.HALT, Opcode.REGISTER, Opcode.BRANCH)
"""What a sequencer does by itself."""


def dynamic_operands(opcode: Opcode) -> tuple[str, ...]:
    """Operands of `opcode` whose address a register may be added to, of dst, src0 and src1."""
    return ("dst", "src0") if opcode == Opcode.DMA else OPS[opcode].aps
