"""Random vector instructions, memory contents that find mistakes, and judges made from the functional model."""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models import encoding, isa
from models.access import AccessPattern
from models.config import ChipConfig, MemoryConfig, PsumConfig, SbufConfig
from models.elements import ALU_OPS, COPIES, DIVIDES, NO_OP0, NO_OP1, NO_SOURCE, PAIRS, VECTOR_OPS
from models.fault import Fault
from models.formats import FLOATS, INTS, PACKED, DType, MxRule, dtype_bytes
from models.fp import COMPARISONS, IDENTITY
from models.isa import AluOp, ErrorCode, Flag, Opcode, Space
from models.machine import Core, Machine
from models.mx import MX_OPS

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
SCALARS = (Opcode.TENSOR_SCALAR, Opcode.EXPONENTIAL)
Partial = tuple[str, int, int]
"""Memory ("sbuf" or "psum"), element index and byte address of a write."""


class LegalError(Exception):
    """The model got as far as its first access: all fields are legal."""


class Judge(Core):
    """Stops where the field checks end."""

    def _addresses(self, ap: AccessPattern) -> NDArray[np.int64]:
        raise LegalError


class Prefix(Core):
    """Does the first `limit` of an instruction's `results` only; `bounds` are read whole."""

    limit = results = 0
    bounds: AccessPattern | None = None

    def _addresses(self, ap: AccessPattern) -> NDArray[np.int64]:
        if ap == self.bounds:
            return ap.addresses()
        group = max(1, ap.size // self.results)
        return ap.addresses()[: self.limit * group]


def new_core(kind: type[Core] = Core) -> Core:
    """A core of the bench's configuration."""
    return kind(Machine(CONFIG), 0)


def allowed_flags(opcode: Opcode) -> int:
    """Bits of `flags` that an opcode knows; all others are illegal, as every unused bit of an instruction."""
    reverse, sums = int(Flag.REVERSE0 | Flag.REVERSE1), int(Flag.ACCUMULATE | Flag.FRESH)
    own = {
        Opcode.TENSOR_TENSOR: sums,
        Opcode.TENSOR_SCALAR: int(Flag.SRC1_SCALAR) | reverse | sums,
        Opcode.SCALAR_TENSOR_TENSOR: reverse,
        Opcode.TENSOR_TENSOR_SCAN: reverse,
        Opcode.TENSOR_REDUCE: int(Flag.NEGATE),
        Opcode.READ_ACCUMULATOR: int(Flag.NEGATE),
        Opcode.TENSOR_COPY_PREDICATED: int(Flag.REVERSE0),
        Opcode.EXPONENTIAL: int(Flag.SRC1_SCALAR | Flag.REVERSE0) | sums,
        Opcode.SELECT: int(Flag.REVERSE0) | sums,
        Opcode.RANGE_SELECT: sums,
    }
    return 0 if opcode in MX_OPS else int(Flag.SATURATE) | own.get(opcode, 0)


def execute(core: Core, word: bytes) -> Fault | None:
    """Run one vector instruction on a model core; what stops it is returned."""
    raw = encoding.raw_fields(word)
    if raw["flags"] & ~allowed_flags(Opcode(raw["opcode"])):
        return Fault(ErrorCode.ILLEGAL_FIELD)
    try:
        core._vector(Opcode(raw["opcode"]), word, raw)
    except Fault as fault:
        return fault
    return None


def is_legal(core: Core, word: bytes) -> bool:
    """Whether the model finds all fields legal, on a Judge's core."""
    try:
        fault = execute(core, word)
    except LegalError:
        return True
    assert fault is not None
    assert fault.code == ErrorCode.ILLEGAL_FIELD
    return False


def used_aps(word: bytes) -> list[str]:
    """Names of the patterns that an instruction uses."""
    raw = encoding.raw_fields(word)
    opcode = Opcode(raw["opcode"])
    if opcode in NO_SOURCE:
        return ["dst"]
    scalar = opcode in SCALARS and raw["flags"] & Flag.SRC1_SCALAR
    three = (*PAIRS, Opcode.RANGE_SELECT, Opcode.MX_CAST)
    return ["dst", "src0", "src1"] if scalar or opcode in three else ["dst", "src0"]


def results(word: bytes) -> int:
    """Elements of an instruction's destination."""
    return encoding.ap_from_raw(encoding.raw_ap(word, "dst")).size


def range_faults(word: bytes) -> dict[tuple[int, int], int]:
    """(error code, address) of each used pattern's first bad element, with the number of results before it."""
    out: dict[tuple[int, int], int] = {}
    for name in used_aps(word):
        ap = encoding.ap_from_raw(encoding.raw_ap(word, name))
        code, limit = (
            (ErrorCode.SBUF_RANGE, CONFIG.sbuf.bytes_per_partition)
            if ap.space == Space.SBUF
            else (ErrorCode.PSUM_RANGE, CONFIG.psum.bytes_per_partition)
        )
        addresses = ap.addresses()
        bad = np.flatnonzero((addresses < 0) | (addresses + dtype_bytes(ap.dtype) > limit))
        if bad.size:
            group = max(1, ap.size // max(1, results(word)))
            out[(int(code), int(addresses[bad[0]]) & 0xFFFFFFFF)] = int(bad[0]) // group
    return out


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


# --- patterns ------------------------------------------------------------------------------------------------
def _counts(size: int) -> list[int]:
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
        counts = _counts(size)
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


def _apart(dst: AccessPattern, src: AccessPattern) -> bool:
    """Whether no byte of a partition is in both."""
    if dst.space != src.space:
        return True
    spans = [{int(a) + b for a in ap.addresses() for b in range(dtype_bytes(ap.dtype))} for ap in (dst, src)]
    return not spans[0] & spans[1]


def random_instruction(size: int | None = None) -> bytes:
    """A legal instruction with all its accesses in range; sources apart from the destination, or exactly in place."""
    opcode = random.choice(list(VECTOR_OPS))
    if opcode in (Opcode.TENSOR_REDUCE, *NO_SOURCE):
        return _few_operands(opcode, size)
    if opcode in MX_OPS:
        return _mx(opcode, size)
    parts = random.randint(1, CONFIG.partitions)
    n = random.choice(SIZES) if size is None else size
    fields = {"parts": parts, "flags": random.choice([0, int(Flag.SATURATE)])}
    raw_copy = opcode in COPIES and random.random() < 0.4
    d_type, s_type = random.choice(WRITABLE), random.choice(READABLE)
    if raw_copy:
        d_type = s_type = random.choice([*READABLE, *PACKED])
    elif random.random() < 0.5:  # where results are not all alike
        d_type, s_type = (random.choice([DType.FP32, DType.BF16, DType.FP16, DType.INT16]) for _ in range(2))
    in_place = random.random() < 0.2 and s_type in (*WRITABLE, *(PACKED if raw_copy else ()))
    d_type = s_type if in_place else d_type
    dst = random_pattern(n, d_type, parts, distinct=in_place)
    aps = {"dst": dst, "src0": dst if in_place else _source(n, s_type, parts, dst)}
    flags = allowed_flags(opcode)
    if opcode not in NO_OP0:
        fields["op0"] = random.choice(list(AluOp) if opcode in DIVIDES else ALU_OPS)
    if opcode not in NO_OP1:
        fields["op1"] = random.choice(ALU_OPS)
    if flags & Flag.ACCUMULATE and random.random() < 0.5:
        fields["op1"], flags = random.choice(list(IDENTITY)), flags & ~int(Flag.REVERSE1)
        fields["flags"] |= int(Flag.ACCUMULATE) | random.choice([0, int(Flag.FRESH)])
    for bit in (Flag.REVERSE0, Flag.REVERSE1):
        fields["flags"] |= flags & int(bit) & random.choice([0, 255])
    for name in {"imm0", "imm1"} & {*isa.OPS[opcode].fields}:
        fields[name] = fp32_bits()
    if opcode in PAIRS:
        same = in_place and d_type in READABLE and random.random() < 0.3
        aps["src1"] = dst if same else _source(n, random.choice(READABLE), parts, dst)
    if opcode in SCALARS and random.random() < 0.4:
        fields["flags"] |= int(Flag.SRC1_SCALAR)
        aps["src1"] = _source(1, random.choice(READABLE), parts, dst)
    if opcode == Opcode.RANGE_SELECT:
        fields |= {f"op{k}": random.choice(COMPARISONS) for k in range(2)}
        fields["imm0"] = random.choice([random.getrandbits(32), random.randint(-300, 300) & 0xFFFFFFFF])
        aps["src1"] = _source(2, DType.FP32, parts, dst)
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


def _few_operands(opcode: Opcode, size: int | None) -> bytes:
    """A reduction, a fill or what the accumulators hold; `size` elements are read, or written."""
    parts = random.randint(1, CONFIG.partitions)
    n = random.choice(SIZES) if size is None else size
    fields = {"parts": parts, "flags": random.choice([0, int(Flag.SATURATE)])}
    d_type, s_type = random.choice(WRITABLE), random.choice(READABLE)
    if random.random() < 0.6:
        d_type, s_type = (random.choice([DType.FP32, DType.FP32, DType.BF16, DType.FP16]) for _ in range(2))
    if opcode == Opcode.MEMSET:
        fields["imm0"] = fp32_bits()
        aps = {"dst": random_pattern(n, d_type, parts)}
    elif opcode == Opcode.READ_ACCUMULATOR:
        fields["op0"] = random.choice(list(IDENTITY))
        fields["flags"] |= random.choice([0, int(Flag.NEGATE)])
        aps = {"dst": random_pattern(1, d_type, parts)}
    else:
        axes = random.randint(1, 4 if n else 3)
        fields |= {"op0": random.choice(list(IDENTITY)), "axes": axes}
        fields["flags"] |= random.choice([0, int(Flag.NEGATE)])
        while True:
            source = random_pattern(n, s_type, parts)
            dst = random_pattern(source.outer(axes), d_type, parts)
            if source.inner(axes) and _apart(dst, source):
                break
        aps = {"dst": dst, "src0": source}
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


def _scales(size: int, apart: list[AccessPattern]) -> AccessPattern:
    """Scales of the bench's one group, at partition 0 of SBUF."""
    while True:
        ap = random_pattern(size, DType.E8M0, CONFIG.partitions)
        if ap.space == Space.SBUF and all(_apart(ap, a) for a in apart):
            return ap


def _mx(opcode: Opcode, size: int | None) -> bytes:
    """MX_SCALE or MX_CAST of eight partitions; four elements are read for each result."""
    n = random.choice(SIZES) if size is None else size
    parts, kind = CONFIG.partitions, random.choice(list(PACKED))
    s_type = random.choice(list(FLOATS))
    if opcode == Opcode.MX_SCALE:
        scale = _scales(n // 4, [])
        fields = {"parts": parts, "op0": int(kind), "op1": random.choice(list(MxRule))}
        aps = {"dst": scale, "src0": _source(n // 4 * 4, s_type, parts, scale)}
    else:
        dst = random_pattern(n // 4, kind, parts)
        fields = {"parts": parts}
        aps = {
            "dst": dst,
            "src0": _source(n // 4 * 4, s_type, parts, dst),
            "src1": _scales(n // 4, [dst]),
        }
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


def _source(size: int, dtype: DType, parts: int, dst: AccessPattern) -> AccessPattern:
    while True:
        ap = random_pattern(size, dtype, parts)
        if _apart(dst, ap):
            return ap


def random_update() -> dict[str, int]:
    """Header fields of an update."""
    value = random.getrandbits(32) - (1 << 31)
    return {
        "update_mode": random.randrange(4),
        "update_sem": random.randrange(CONFIG.core.semaphores),
        "update_value": value,
    }


# --- mistakes ------------------------------------------------------------------------------------------------
_FIELDS = {f.name: f for f in isa.SMALL}
_AP_FIELDS = {f.name: f for f in isa.AP_FIELDS}


def put(word: bytes, base: int, field: isa.Field, value: int) -> bytes:
    """The word with one field changed, whatever is legal."""
    start, bits = base + field.offset, 8 * field.size
    return word[:start] + (value % (1 << bits)).to_bytes(field.size, "little") + word[start + field.size :]


def put_small(word: bytes, name: str, value: int) -> bytes:
    """The word with a small field changed."""
    return put(word, 0, _FIELDS[name], value)


def put_ap(word: bytes, ap: str, name: str, value: int) -> bytes:
    """The word with a field of an access pattern changed."""
    return put(word, isa.AP_OFFSETS[ap], _AP_FIELDS[name], value)


def mutated(word: bytes) -> bytes:
    """One field changed to a value near what is legal, or to anything."""
    p = CONFIG.partitions
    any_byte = random.choice([*range(20), 1 << random.randrange(8), 255, random.getrandbits(8)])
    kind = random.choice(["small", "small", "ap", "ap", "ap"])
    if kind == "small":
        name = random.choice(["parts", "op0", "op1", "flags", "axes"])
        return put_small(
            word, name, random.choice([0, p, p + 1, p + p // 4, any_byte]) if name == "parts" else any_byte
        )
    ap = random.choice(used_aps(word))
    name = random.choice(["addr", "space", "dtype", "part", "count"])
    values: dict[str, Any] = {
        "addr": encoding.raw_ap(word, ap)["addr"] + random.choice([1, 2, 3, 4]),
        "space": random.choice([0, 1, 2, 3, any_byte]),
        "dtype": random.choice([*range(18), any_byte, *(16 * d for d in range(3))]),
        "part": random.choice([0, 1, 2, 4, 6, 8, any_byte]),
        "count": random.choice([0, 1, 2, 0xFFFF, random.randrange(6)]),
    }
    return put_ap(word, ap, name if name != "count" else f"count{random.randrange(4)}", values[name])


def out_of_range(word: bytes) -> bytes:
    """A used pattern moved so that some element leaves its memory; the word as it is where it has no elements."""
    for _ in range(200):
        ap = random.choice(used_aps(word))
        raw = encoding.raw_ap(word, ap)
        pattern = encoding.ap_from_raw(raw)
        width = dtype_bytes(pattern.dtype)
        if random.random() < 0.5:
            far = [random.randrange(3000), 1024 - width, 512 - width, 1024, 512, (1 << 32) - width]
            new = put_ap(word, ap, "addr", random.choice(far) // width * width)
        else:
            stride = random.choice([-300, 300, -(1 << 31), (1 << 31) - 1, 1 << 30, 1 << 29])
            new = put_ap(word, ap, f"stride{random.randrange(4)}", stride)
        if range_faults(new):
            return new
    return word
