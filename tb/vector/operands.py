"""Random operands of vector instructions, and memory contents that find mistakes."""

import random

import numpy as np
from numpy.typing import NDArray

from models.access import AccessPattern
from models.config import ChipConfig, MemoryConfig, PsumConfig, SbufConfig
from models.formats import FLOATS, INTS, DType, dtype_bytes
from models.isa import Space

CONFIG = ChipConfig(
    name="vector",
    partitions=8,
    cores=1,
    sbuf=SbufConfig(bytes_per_partition=1024, banks=4),
    psum=PsumConfig(banks=2, bank_bytes=256),
    memory=MemoryConfig(bytes=65536),
)
SIZES = (0, 1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 30, 36, 48, 64)
READABLE = (*FLOATS, *INTS, DType.E8M0)
WRITABLE = (*FLOATS, *INTS)
CORNERS = (
    *(0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F000000, 0x40200000, 0x7F7FFFFF, 0x7F800000),
    *(0x7F800001, 0x7FC00000, 0x43E80000, 0x477FF000, 0x4F000000, 0x4EFFFFFF, 0x42FE0000, 0x33800000),
)


def fp32_bits() -> int:
    """An FP32 operand: a corner, any bits, or a number of ordinary size."""
    style = random.random()
    if style < 0.3:
        return random.choice(CORNERS) | random.getrandbits(1) << 31
    if style < 0.5:
        return random.getrandbits(32)
    return random.getrandbits(1) << 31 | random.randint(118, 140) << 23 | random.getrandbits(23)


def random_contents(shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Words of FP32 operands, pairs of the same cut to BF16, pairs of FP16 and groups of FP8 corners, small integers, any bits."""
    words = np.empty((shape[0], shape[1] // 4), dtype=np.uint32)
    narrow = (0x7E7F0080, 0x787C8001, 0x00FF7B7C, 0x7C007E00, 0x03FF0400, 0xFC008000, 0x7BFFFBFF, 0x80007FFF)
    for i in np.ndindex(*words.shape):
        style = random.random()
        if style < 0.4:
            words[i] = fp32_bits()
        elif style < 0.6:
            words[i] = fp32_bits() >> 16 | (fp32_bits() >> 16) << 16
        elif style < 0.75:
            words[i] = random.choice(narrow)
        elif style < 0.85:
            words[i] = random.randint(-300, 300) & 0xFFFFFFFF
        else:
            words[i] = random.getrandbits(32)
    return words.view(np.uint8)


def random_counts(size: int) -> list[int]:
    """Four counts whose product is `size`, in any order."""
    if size == 0:
        out = [random.randint(0, 3) for _ in range(4)]
        out[random.randrange(4)] = 0
        return out
    out = []
    for _ in range(3):
        out.append(random.choice([d for d in range(1, size + 1) if size % d == 0]))
        size //= out[-1]
    out.append(size)
    random.shuffle(out)
    return out


def random_pattern(size: int, dtype: DType, parts: int, *, distinct: bool = False) -> AccessPattern:
    """A pattern that stays inside its memory; `distinct`: no element lies on another one."""
    quarter = CONFIG.partitions // 4
    space = random.choice(list(Space))
    memory = CONFIG.sbuf if space == Space.SBUF else CONFIG.psum
    limit, width = memory.bytes_per_partition, dtype_bytes(dtype)
    part = random.choice([q * quarter for q in range(4) if q * quarter + parts <= CONFIG.partitions])
    for _ in range(200):
        counts = random_counts(size)
        style = random.random()
        if style < 0.3:  # dense, and dense backwards
            strides, step = [0, 0, 0, 0], random.choice([1, 1, -1])
            for d in reversed(range(4)):
                strides[d] = step
                step *= max(counts[d], 1)
        else:
            strides = [random.choice([0, 1, 2, 3, -1, -2, random.randint(-40, 40)]) for _ in range(4)]
        dims = tuple(zip(strides, counts, strict=True))
        offsets = AccessPattern(0, dtype, dims).addresses()
        low, high = (int(offsets.min()), int(offsets.max())) if offsets.size else (0, 0)
        if high - low + width > limit or (distinct and np.unique(offsets).size != offsets.size):
            continue
        addr = random.randrange(-low // width, (limit - width - high) // width + 1) * width
        return AccessPattern(addr, dtype, dims, space, part)
    return AccessPattern(0, dtype, ((0, 1), (0, 1), (0, 1), (1, size)), space, part)


def disjoint(dst: AccessPattern, src: AccessPattern) -> bool:
    """Whether no byte of a partition is in both."""
    if dst.space != src.space:
        return True
    spans = [{int(a) + b for a in ap.addresses() for b in range(dtype_bytes(ap.dtype))} for ap in (dst, src)]
    return not spans[0] & spans[1]


def other_source(size: int, dtype: DType, parts: int, dst: AccessPattern) -> AccessPattern:
    """A pattern that has no byte in common with `dst`."""
    while True:
        ap = random_pattern(size, dtype, parts)
        if disjoint(dst, ap):
            return ap


def random_update() -> dict[str, int]:
    """Header fields of an update."""
    value = random.getrandbits(32) - (1 << 31)
    return {
        "update_mode": random.randrange(4),
        "update_sem": random.randrange(CONFIG.core.semaphores),
        "update_value": value,
    }
