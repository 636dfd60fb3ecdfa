"""Random BN_STATS and BN_AGGR."""

import random

from models import encoding
from models.formats import DType
from models.isa import Flag, Opcode
from models.moments import MOMENTS, STATS, TRIPLE
from tb.vector.operands import (
    CONFIG,
    READABLE,
    SIZES,
    WRITABLE,
    other_source,
    random_pattern,
    random_update,
)


def random_moments(opcode: Opcode, size: int | None) -> bytes:
    """Of about `size` elements, one or more."""
    parts = random.randint(1, CONFIG.partitions)
    n = max(1, random.choice(SIZES) if size is None else size)
    if opcode != STATS:
        n = max(1, n // TRIPLE) * TRIPLE
    s_type, d_type = random.choice(READABLE), random.choice(WRITABLE)
    if random.random() < 0.8:
        s_type, d_type = random.choice([DType.FP32, DType.FP32, DType.BF16]), DType.FP32
    dst = random_pattern(MOMENTS[opcode], d_type, parts)
    fields = {"parts": parts, "flags": random.choice([0, int(Flag.SATURATE)])}
    aps = {"dst": dst, "src0": other_source(n, s_type, parts, dst)}
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))
