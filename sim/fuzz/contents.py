"""What random programs find in their memories, and their immediate operands."""

import random

import numpy as np

CORNERS = (0, 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x7F7FFFFF, 0x00800000)


def contents(rng: random.Random, count: int) -> bytes:
    """FP32 numbers of ordinary size, corners, pairs of BF16, any bits."""
    bits = np.random.default_rng(rng.getrandbits(63))
    words = (
        bits.integers(0, 2, count, dtype=np.uint32) << 31
        | bits.integers(118, 136, count, dtype=np.uint32) << 23
        | bits.integers(0, 1 << 23, count, dtype=np.uint32)
    )
    style = bits.random(count)
    words = np.where(style < 0.15, bits.choice(np.array(CORNERS, dtype=np.uint32), count), words)
    words = np.where((style > 0.15) & (style < 0.3), words & 0xFFFF0000 | words >> 16, words)
    words = np.where(style > 0.9, bits.integers(0, 1 << 32, count, dtype=np.uint32), words)
    return bytes(words.astype("<u4").tobytes())
