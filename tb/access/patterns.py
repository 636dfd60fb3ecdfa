"""Random access patterns, and how they are packed for hardware."""

import random

from models.access import AccessPattern
from models.encoding import Instruction, encode
from models.formats import DType, dtype_bytes
from models.isa import AP_BYTES, AP_OFFSETS, Opcode, Space

TYPES = (DType.FP32, DType.BF16, DType.E4M3, DType.E4M3X4, DType.E8M0)


def random_pattern(
    rng: random.Random,
    limit: int,
    *,
    space: Space = Space.SBUF,
    parts: int = 0,
    most: int = 60,
    inside: bool = True,
) -> AccessPattern:
    """A pattern of at most `most` elements; `inside` the first `limit` bytes of a partition, or anywhere near them."""
    while True:
        dtype = rng.choice(TYPES)
        size = dtype_bytes(dtype)
        dims = tuple(
            (
                rng.choice([0, 1, 1, 2, -1, -3, rng.randrange(-limit // size, limit // size)]),
                rng.choice([1, 1, 2, 3, 5, 8, 0 if rng.random() < 0.05 else 4]),
            )
            for _ in range(rng.randrange(1, 5))
        )
        pattern = AccessPattern(rng.randrange(limit // size) * size, dtype, dims, space, parts)
        if pattern.size > most:
            continue
        addresses = pattern.addresses()
        ok = bool(((addresses >= 0) & (addresses + size <= limit)).all())
        if ok or not inside:
            return pattern


def packed(pattern: AccessPattern) -> int:
    """ApLayout bits."""
    word = encode(Instruction(Opcode.TENSOR_COPY, aps={"src0": pattern}))
    return int.from_bytes(word[AP_OFFSETS["src0"] :][:AP_BYTES], "little")


def start(pattern: AccessPattern) -> int:
    """StartLayout bits."""
    return packed(pattern) | (dtype_bytes(pattern.dtype).bit_length() - 1) << 256
