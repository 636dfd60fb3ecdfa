"""Random instructions of random numbers."""

import random

import numpy as np

from models import encoding
from models.access import AccessPattern
from models.elements import ALU_OPS
from models.formats import INTS, DType
from models.isa import AluOp, Flag, Opcode, StateOp
from models.xorwow import ALL, FRACTION, STATE_TYPES, WORDS
from tb.vector.operands import (
    CONFIG,
    READABLE,
    SIZES,
    WRITABLE,
    fp32_bits,
    other_source,
    random_pattern,
    random_update,
)

NOTHING = AccessPattern(0, DType.FP32, ((0, 0),))


def probability() -> int:
    """An FP32 code from +0 to 1: ordinary, both ends, and below what a word can tell."""
    small = random.choice([1, 0x7FFFFF, 0x800000, 0x2F800000, 0x2F7FFFFF, 0x30000001, random.randrange(ALL)])
    ordinary = int(np.float32(random.random()).view(np.uint32))
    return random.choice([0, ALL, ALL - 1, small, ordinary, ordinary])


def random_random(opcode: Opcode, size: int | None) -> bytes:
    """A RANDOM, RANDOM_STATE or DROPOUT; `size` elements where there is a choice."""
    parts = random.randint(1, CONFIG.partitions)
    n = random.choice(SIZES) if size is None else size
    fields = {"parts": parts}
    d_type = random.choice(WRITABLE)
    if random.random() < 0.5:
        d_type = random.choice([DType.FP32, DType.FP32, DType.BF16, DType.UINT32, DType.INT16])
    if opcode == Opcode.RANDOM_STATE:
        op = random.choice(list(StateOp))
        used = random_pattern(WORDS, random.choice(STATE_TYPES), parts)
        fields |= {"op0": int(op), "imm0": random.getrandbits(32)}
        aps = {
            "dst": used if op == StateOp.STORE else NOTHING,
            "src0": used if op == StateOp.LOAD else NOTHING,
        }
    elif opcode == Opcode.DROPOUT:
        s_type = random.choice([d_type, d_type, random.choice(READABLE)])
        in_place = s_type == d_type and random.random() < 0.4
        dst = random_pattern(n, d_type, parts, distinct=in_place)
        fields |= {"imm0": probability(), "flags": random.choice([0, int(Flag.SATURATE)])}
        aps = {"dst": dst, "src0": dst if in_place else other_source(n, s_type, parts, dst)}
    else:
        aps = {"dst": random_pattern(n, d_type, parts)}
        fields |= {"imm0": fp32_bits(), "imm1": fp32_bits(), "flags": random.choice([0, int(Flag.SATURATE)])}
        if d_type not in INTS:
            fields |= {"op0": int(random.choice(ALU_OPS)), "op1": int(random.choice(ALU_OPS))}
            fields["axes"] = random.choice([0, 1, 8, FRACTION, random.randint(0, FRACTION)])
            if random.random() < 0.5:
                fields |= {"op0": int(AluOp.MUL), "op1": int(AluOp.ADD), "imm0": 0x33800000}
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))
