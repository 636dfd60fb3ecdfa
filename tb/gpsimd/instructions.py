"""Random gpsimd instructions, indices for them, and mistakes."""

import random

import numpy as np
from numpy.typing import NDArray

from models import encoding
from models.access import AccessPattern
from models.formats import PACKED, DType, dtype_bytes
from models.fp import COMPARISONS
from models.gpsimd import GPSIMD_OPS, INDICES, REDUCING, WORDS
from models.isa import Flag, Opcode, Space
from tb.vector.mistakes import put_ap, put_small
from tb.vector.operands import (
    CONFIG,
    READABLE,
    SIZES,
    WRITABLE,
    disjoint,
    fp32_bits,
    random_counts,
    random_pattern,
    random_update,
)

APS = {
    Opcode.IOTA: ("dst",),
    Opcode.AFFINE_SELECT: ("dst", "src0"),
    Opcode.LOCAL_GATHER: ("dst", "src0", "src1"),
    Opcode.PARTITION_REDUCE: ("dst", "src0"),
}
"""Patterns of each opcode that lie in SBUF."""


def local(size: int, dtype: DType, parts: int, *, distinct: bool = False) -> AccessPattern:
    """A pattern in SBUF."""
    while True:
        ap = random_pattern(size, dtype, parts, distinct=distinct)
        if ap.space == Space.SBUF:
            return ap


def apart(size: int, dtype: DType, parts: int, *others: AccessPattern) -> AccessPattern:
    """A pattern in SBUF that shares no byte with `others`."""
    while True:
        ap = local(size, dtype, parts)
        if all(disjoint(other, ap) for other in others):
            return ap


def numbers(size: int) -> AccessPattern:
    """A pattern of numbers: small ones around zero, or any."""
    wide = random.random() < 0.2
    steps = [
        random.getrandbits(32) - (1 << 31) if wide else random.choice([0, 1, -1, random.randint(-9, 9)])
        for _ in range(4)
    ]
    start = random.getrandbits(32) if wide else random.randint(-20, 20) & 0xFFFFFFFF
    return AccessPattern(start, DType.FP32, tuple(zip(steps, random_counts(size), strict=True)))


def random_instruction(
    opcode: Opcode | None = None, size: int | None = None, *, kinds: tuple[Opcode, ...] = GPSIMD_OPS
) -> bytes:
    """A legal instruction with all its accesses in range; sources apart from the destination, or exactly in place where that works."""
    opcode = random.choice(kinds) if opcode is None else opcode
    parts = random.randint(1, CONFIG.partitions)
    n = random.choice(SIZES) if size is None else size
    written = 1 if opcode == Opcode.PARTITION_REDUCE else parts
    fields = {"parts": parts, "flags": random.choice([0, int(Flag.SATURATE)])}
    d_type, s_type = random.choice(WRITABLE), random.choice(READABLE)
    if random.random() < 0.5:
        d_type, s_type = (random.choice([DType.FP32, DType.BF16, DType.FP16]) for _ in range(2))
    if opcode in (Opcode.IOTA, Opcode.AFFINE_SELECT):
        wide = random.random() < 0.2
        fields["imm0"] = random.getrandbits(32) if wide else random.randint(-20, 20) & 0xFFFFFFFF
    if opcode == Opcode.IOTA:
        d_type = random.choice([d_type, *WORDS])
        aps = {"dst": local(n, d_type, parts), "src1": numbers(n)}
    elif opcode == Opcode.LOCAL_GATHER:
        if random.random() < 0.4:
            d_type = s_type = random.choice([*READABLE, *PACKED])
        dst = local(n, d_type, parts)
        source = apart(random.choice([1, 2, 5, 8, 17, 48] if n else SIZES), s_type, parts, dst)
        index = apart(n, random.choice(INDICES), parts, dst, source)
        aps = {"dst": dst, "src0": source, "src1": index}
    else:
        in_place = random.random() < 0.2 and s_type in WRITABLE
        dst = local(n, s_type if in_place else d_type, parts, distinct=in_place)
        aps = {"dst": dst, "src0": dst if in_place else apart(n, s_type, parts, dst)}
        fields["op0"] = random.choice(REDUCING)
        if opcode == Opcode.AFFINE_SELECT:
            fields |= {"op0": random.choice(COMPARISONS), "imm1": fp32_bits()}
            aps["src1"] = numbers(n)
        elif not in_place:
            aps["dst"] = apart(n, d_type, written, aps["src0"])
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


def plant(word: bytes, sbuf: NDArray[np.uint8], *, wrong: bool = False) -> None:
    """Put indices that are in range where a LOCAL_GATHER looks for them; `wrong`: one or more are not."""
    raw = encoding.raw_fields(word)
    index, source = (encoding.ap_from_raw(encoding.raw_ap(word, n)) for n in ("src1", "src0"))
    width = dtype_bytes(index.dtype)
    places = [
        (lane, int(at)) for lane in range(index.part, index.part + raw["parts"]) for at in index.addresses()
    ]
    spoilt = set(random.sample(places, min(len(places), random.choice([1, 1, 4])))) if wrong else set()
    for lane, at in places:
        value = random.randrange(max(source.size, 1))
        if (lane, at) in spoilt:
            value = random.choice([source.size, 0xFFFF, 0xFFFFFFFF, 1 << 31, 1 << 16])
            value = max(value & (1 << 8 * width) - 1, source.size)
        sbuf[lane, at : at + width] = list(value.to_bytes(width, "little"))


def illegal(word: bytes) -> bytes:
    """The instruction with one field that is not allowed."""
    p, raw = CONFIG.partitions, encoding.raw_fields(word)
    opcode = Opcode(raw["opcode"])
    ap = random.choice(APS[opcode])
    options = [
        lambda: put_small(word, "parts", random.choice([0, p + 1, 255])),
        lambda: put_small(word, "op0", random.choice([17, 100, 255, 13, 2])),
        lambda: put_small(word, "op1", random.choice([1, 255])),
        lambda: put_small(word, "flags", raw["flags"] | random.choice([1, 4, 8, 16, 32, 64, 128])),
        lambda: put_ap(word, ap, "space", random.choice([1, 2, 3, 255])),
        lambda: put_ap(word, ap, "dtype", random.choice([100, 255, 15])),
        lambda: put_ap(word, ap, "part", 1),
        lambda: (
            put_ap(word, "dst", "count0", encoding.raw_ap(word, "dst")["count0"] + 1)
            if encoding.ap_from_raw(encoding.raw_ap(word, "dst")).size
            else put_small(word, "parts", 0)
        ),
    ]
    if opcode in (Opcode.IOTA, Opcode.AFFINE_SELECT):
        name = random.choice(["space", "dtype", "part"])
        options += [lambda: put_ap(word, "src1", name, random.choice([1, 2, 255]))] * 3
    if opcode == Opcode.LOCAL_GATHER:
        options += [lambda: put_ap(word, "src1", "dtype", random.choice([0, 5, 6, 7, 12]))] * 3
    return random.choice(options)()
