"""Random vector instructions, memory contents that find mistakes, and judges made from the functional model."""

import random

import numpy as np
from numpy.typing import NDArray

from models import encoding, isa
from models.access import AccessPattern
from models.elements import ALU_OPS, COPIES, DIVIDES, NO_OP0, NO_OP1, NO_SOURCE, PAIRS, VECTOR_OPS
from models.fault import Fault
from models.formats import FLOATS, PACKED, DType, MxRule, dtype_bytes
from models.fp import COMPARISONS, IDENTITY
from models.isa import AluOp, Engine, ErrorCode, Flag, Opcode, Space
from models.machine import Core, Machine
from models.moments import MOMENTS
from models.moves import MOVES, STAYS, mask_field
from models.mx import MX_OPS
from models.operands import Place
from models.ranking import EIGHT, GIVEN, INDEXES, LISTED, RANKS
from models.xorwow import RANDOMS
from tb.vector import moments, randoms
from tb.vector.operands import (
    CONFIG,
    READABLE,
    SIZES,
    WRITABLE,
    disjoint,
    fp32_bits,
    other_source,
    random_pattern,
    random_update,
)

SCALARS = (Opcode.TENSOR_SCALAR, Opcode.EXPONENTIAL)
Partial = tuple[str, int, int]
"""Memory ("sbuf" or "psum"), element index and byte address of a write."""


class LegalError(Exception):
    """The model got as far as its first access: all fields are legal."""


class Judge(Core):
    """Stops where the field checks end."""

    def _place(self, ap: AccessPattern, parts: int, *, scale: bool = False) -> Place:
        raise LegalError


class PartialPlace(Place):
    """The first `kept` elements of a pattern, whatever the others are, one by one."""

    def __init__(self, memory: NDArray[np.uint8], ap: AccessPattern, parts: int, kept: int):
        self.ap, self.parts, self.dtype, self.distinct = ap, parts, ap.dtype, False
        self.at, self.rows = ap.addresses()[:kept], np.arange(ap.part, ap.part + parts)
        self.size, self.memory = self.at.size, memory

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.unsignedinteger]:
        width = dtype_bytes(self.dtype)
        raw = self.memory[rows[:, None, None], self.at[:, None] + np.arange(width)]
        return raw.view(f"<u{width}").reshape(rows.size, self.size)

    def put(self, rows: NDArray[np.int64], raw: NDArray[np.unsignedinteger]) -> None:
        for n in range(self.size):
            self._set(rows, n, raw[:, n])

    def _set(self, rows: NDArray[np.int64], n: int, raw: NDArray[np.unsignedinteger]) -> None:
        width = dtype_bytes(self.dtype)
        at = self.at[n] + np.arange(width)
        self.memory[rows[:, None], at] = raw.astype(f"<u{width}")[:, None].view(np.uint8).reshape(-1, width)

    def words(self) -> NDArray[np.unsignedinteger]:
        return self.take(self.rows)

    look = words

    def read(self) -> NDArray[np.uint32]:
        return self.words().astype(np.uint32)

    def write(self, raw: NDArray[np.uint32], *, where: NDArray[np.bool_] | None = None) -> None:
        for n in range(self.size):
            lanes = np.arange(self.parts) if where is None else np.flatnonzero(where[:, n])
            self._set(self.rows[lanes], n, raw[lanes, n])

    def fill(self, raw: NDArray[np.uint32]) -> None:
        self.write(np.broadcast_to(raw, (self.parts, self.size)))


class Prefix(Core):
    """Does the first `limit` of an instruction's `results` only; operands of `whole` are read from end to end, src0 in blocks of `block`."""

    limit = results = 0
    block = 1
    whole: tuple[str, ...] = ()

    def __init__(self, chip: Machine, number: int) -> None:
        super().__init__(chip, number)
        self._named: dict[str, AccessPattern] = {}

    def _pattern(self, word: bytes, name: str, parts: int, *, scale: bool = False) -> AccessPattern:
        ap = self._named[name] = super()._pattern(word, name, parts, scale=scale)
        return ap

    def execute(self, engine: Engine, word: bytes) -> None:
        # what was found for another limit is of no use
        self._bodies.clear()
        super().execute(engine, word)

    def _place(self, ap: AccessPattern, parts: int, *, scale: bool = False) -> Place:
        # a destination in place has its source's pattern, but is another object
        name = next(n for n, named in self._named.items() if named is ap)
        block = self.block if name == "src0" else 1
        group = max(1, ap.size // self.results)
        kept = ap.size if name in self.whole else -(-self.limit // block) * block * group
        return PartialPlace(self._space(ap.space), ap, parts, kept)


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
    return (
        0
        if opcode in (*MX_OPS, Opcode.FIND_INDEX8, Opcode.RANDOM_STATE)
        else int(Flag.SATURATE) | own.get(opcode, 0)
    )


def execute(core: Core, word: bytes) -> Fault | None:
    """Run one vector instruction on a model core; what stops it is returned."""
    raw = encoding.raw_fields(word)
    if raw["flags"] & ~allowed_flags(Opcode(raw["opcode"])):
        return Fault(ErrorCode.ILLEGAL_FIELD)
    try:
        core.execute(Engine.VECTOR, word)
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
    three = (*PAIRS, *GIVEN, Opcode.RANGE_SELECT, Opcode.MX_CAST)
    return ["dst", "src0", "src1"] if scalar or opcode in three else ["dst", "src0"]


def read_first(word: bytes) -> tuple[str, ...]:
    """Sources that an instruction has read from end to end before it writes its first result."""
    opcode = Opcode(encoding.raw_fields(word)["opcode"])
    values = ("src1",) if opcode in (*GIVEN, Opcode.RANGE_SELECT) else ()
    return ("src0", *values) if opcode in (*LISTED, *MOMENTS) else values


def block_of(word: bytes) -> int:
    """Elements of src0 that an instruction reads before it writes the first of as many results."""
    return CONFIG.quadrant if encoding.raw_fields(word)["opcode"] == Opcode.LANE_TRANSPOSE else 1


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
            # a block's results come with the elements of the next one
            came = max(0, int(bad[0]) - (block_of(word) if block_of(word) > 1 and name == "src0" else 0))
            before = 0 if name in read_first(word) else came // group
            out[(int(code), int(addresses[bad[0]]) & 0xFFFFFFFF)] = before
    return out


def random_instruction(size: int | None = None) -> bytes:
    """A legal instruction with all its accesses in range; sources apart from the destination, or exactly in place."""
    opcode = random.choice(list(VECTOR_OPS))
    if opcode in RANDOMS:
        return randoms.random_random(opcode, size)
    if opcode in (Opcode.TENSOR_REDUCE, *NO_SOURCE):
        return _few_operands(opcode, size)
    if opcode in MX_OPS:
        return _mx(opcode, size)
    if opcode in RANKS:
        return _ranked(opcode, size)
    if opcode in MOVES:
        return _move(opcode, size)
    if opcode in MOMENTS:
        return moments.random_moments(opcode, size)
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
    aps = {"dst": dst, "src0": dst if in_place else other_source(n, s_type, parts, dst)}
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
        aps["src1"] = dst if same else other_source(n, random.choice(READABLE), parts, dst)
    if opcode in SCALARS and random.random() < 0.4:
        fields["flags"] |= int(Flag.SRC1_SCALAR)
        aps["src1"] = other_source(1, random.choice(READABLE), parts, dst)
    if opcode == Opcode.RANGE_SELECT:
        fields |= {f"op{k}": random.choice(COMPARISONS) for k in range(2)}
        fields["imm0"] = random.choice([random.getrandbits(32), random.randint(-300, 300) & 0xFFFFFFFF])
        aps["src1"] = other_source(2, DType.FP32, parts, dst)
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
            if source.inner(axes) and disjoint(dst, source):
                break
        aps = {"dst": dst, "src0": source}
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


def _scales(size: int, apart: list[AccessPattern]) -> AccessPattern:
    """Scales of the bench's one group, at partition 0 of SBUF."""
    while True:
        ap = random_pattern(size, DType.E8M0, CONFIG.partitions)
        if ap.space == Space.SBUF and all(disjoint(ap, a) for a in apart):
            return ap


def _mx(opcode: Opcode, size: int | None) -> bytes:
    """MX_SCALE or MX_CAST of eight partitions; four elements are read for each result."""
    n = random.choice(SIZES) if size is None else size
    parts, kind = CONFIG.partitions, random.choice(list(PACKED))
    s_type = random.choice(list(FLOATS))
    if opcode == Opcode.MX_SCALE:
        scale = _scales(n // 4, [])
        fields = {"parts": parts, "op0": int(kind), "op1": random.choice(list(MxRule))}
        aps = {"dst": scale, "src0": other_source(n // 4 * 4, s_type, parts, scale)}
    else:
        dst = random_pattern(n // 4, kind, parts)
        fields = {"parts": parts}
        aps = {
            "dst": dst,
            "src0": other_source(n // 4 * 4, s_type, parts, dst),
            "src1": _scales(n // 4, [dst]),
        }
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


def _ranked(opcode: Opcode, size: int | None) -> bytes:
    """An instruction of the lanes' lists, whose values are often elements of src0."""
    parts = random.randint(1, CONFIG.partitions)
    n = max(EIGHT, random.choice(SIZES) if size is None else size)
    fields = {"parts": parts}
    s_type, d_type = random.choice(READABLE), random.choice(WRITABLE)
    if random.random() < 0.6:
        d_type, s_type = (random.choice([DType.FP32, DType.FP32, DType.BF16, DType.FP16]) for _ in range(2))
    if opcode == Opcode.FIND_INDEX8:
        d_type = random.choice(INDEXES)
        fields["imm0"] = random.choice([0, 0, random.getrandbits(32), random.randint(-300, 300) & 0xFFFFFFFF])
    else:
        fields["flags"] = random.choice([0, int(Flag.SATURATE)])
    if opcode == Opcode.MATCH_REPLACE8:
        fields["imm0"] = fp32_bits()
    in_place = opcode == Opcode.MATCH_REPLACE8 and random.random() < 0.3 and s_type in WRITABLE
    d_type = s_type if in_place else d_type
    while True:
        dst = random_pattern(EIGHT if opcode in LISTED else n, d_type, parts, distinct=in_place)
        aps = {"dst": dst, "src0": dst if in_place else other_source(n, s_type, parts, dst)}
        if opcode not in GIVEN:
            break
        aps["src1"] = _eight_of(aps["src0"])
        if random.random() < 0.3:
            aps["src1"] = random_pattern(EIGHT, random.choice(READABLE), parts)
        if in_place or disjoint(dst, aps["src1"]):
            break
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


def _move(opcode: Opcode, size: int | None) -> bytes:
    """A shuffle or a transposition of all partitions, the latter of whole blocks."""
    quadrant = parts = CONFIG.quadrant
    n = random.choice(SIZES) if size is None else size
    if opcode == Opcode.LANE_TRANSPOSE:
        n = n // quadrant * quadrant if size is None else -(-n // quadrant) * quadrant
    fields = {"parts": parts, "flags": random.choice([0, int(Flag.SATURATE)])}
    d_type, s_type = random.choice(WRITABLE), random.choice(READABLE)
    if random.random() < 0.6:
        d_type = s_type = random.choice([*READABLE, *PACKED])
    in_place = random.random() < 0.3 and d_type == s_type
    if opcode == Opcode.STREAM_SHUFFLE:
        stays = random.choice([0.0, 0.1, 0.5])
        fields["mask"] = mask_field(
            [STAYS if random.random() < stays else random.randrange(quadrant) for _ in range(quadrant)]
        )
    dst = random_pattern(n, d_type, parts, distinct=in_place)
    aps = {"dst": dst, "src0": dst if in_place else other_source(n, s_type, parts, dst)}
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


def _eight_of(ap: AccessPattern) -> AccessPattern:
    """Eight elements near those of a pattern, some of them twice."""
    memory = CONFIG.sbuf if ap.space == Space.SBUF else CONFIG.psum
    addresses, width = ap.addresses(), dtype_bytes(ap.dtype)
    while True:
        first = int(random.choice(addresses))
        stride = random.choice([0, 1, -1, ap.dims[-1][0], random.randint(-9, 9)])
        out = AccessPattern(
            first, ap.dtype, ((stride, EIGHT // 2), (random.choice([0, stride]), 2)), ap.space, ap.part
        )
        reached = out.addresses()
        if reached.min() >= 0 and reached.max() + width <= memory.bytes_per_partition:
            return out
