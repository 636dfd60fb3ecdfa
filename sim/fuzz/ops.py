"""Random operations: legal instructions whose operands lie in slots, so that a schedule can tell which depend on which."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from models import addressing, isa
from models.access import AccessPattern
from models.config import ChipConfig
from models.elements import (
    ALU_OPS,
    DIVIDES,
    NO_OP0,
    NO_OP1,
    NO_SOURCE,
    PAIRS,
    READABLE,
    REDUCES,
    VECTOR_OPS,
    WRITABLE,
)
from models.formats import FLOATS, MAC_CLASSES, MX_ROWS, PACKED, DType, MxRule, dtype_bytes
from models.fp import COMPARISONS, IDENTITY
from models.functions import ActFunc
from models.gpsimd import GPSIMD_OPS, INDICES, REDUCING, affine
from models.isa import AluOp, Cond, Engine, Flag, Opcode, RegOp, Space
from models.mx import MX_OPS
from models.ranking import EIGHT, GIVEN, INDEXES, LISTED, RANKS
from sim.fuzz.contents import CORNERS

SLOT_BYTES = 512
"""Bytes of a slot in each partition (of a memory slot: in each of its rows)."""
SBUF_SLOTS, PSUM_SLOTS, MEMORY_SLOTS = 6, 4, 4
MEMORY_BASE = 0x40000
SCRATCH = 14
"""Register that a loop or a dynamic address uses; the others hold what random REGISTERs leave."""

Slot = tuple[str, int]
"""("sbuf" | "psum" | "memory", number)."""


@dataclass(frozen=True, slots=True)
class Part:
    """One instruction of an operation."""

    opcode: Opcode
    fields: dict[str, int] = field(default_factory=dict)
    aps: dict[str, AccessPattern] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Op:
    """Instructions of one engine that belong together, what they read and write, and `turns`: how often a loop runs them.

    `step` (bytes) moves the addresses of dst and src0 with every turn.
    """

    engine: Engine
    parts: tuple[Part, ...]
    reads: frozenset[Slot] = frozenset()
    writes: frozenset[Slot] = frozenset()
    turns: int = 1
    step: int = 0

    @property
    def is_dma(self) -> bool:
        """Whether it is done by the DMA, beside its engine."""
        return self.parts[0].opcode == Opcode.DMA

    @property
    def is_control(self) -> bool:
        """Whether only the sequencer sees it."""
        return self.parts[0].opcode in isa.CONTROL

    def __str__(self) -> str:
        names = "+".join(p.opcode.name for p in self.parts)
        return f"{self.engine.name.lower()}: {names}" + (f" x {self.turns}" if self.turns > 1 else "")


def memory_slot(config: ChipConfig, number: int) -> int:
    """Byte address of a memory slot: P rows of SLOT_BYTES."""
    return MEMORY_BASE + number * config.partitions * SLOT_BYTES


class Generator:
    """Random operations for `config`, from `rng`. Raises ValueError when the configuration's memories do not hold the slots."""

    def __init__(self, config: ChipConfig, rng: random.Random):
        self.config, self.rng = config, rng
        for key, size, slots in (
            ("sbuf.bytes_per_partition", config.sbuf.bytes_per_partition, SBUF_SLOTS),
            ("psum.banks * psum.bank_bytes", config.psum.bytes_per_partition, PSUM_SLOTS),
        ):
            if size < slots * SLOT_BYTES:
                raise ValueError(
                    f"{key} must be at least {slots * SLOT_BYTES} for random programs, not {size}"
                )

    def ops(self, count: int) -> list[Op]:
        """`count` operations of all kinds."""
        kinds: list[tuple[int, Callable[[], Op]]] = [
            (5, self._vector),
            (1, self._mx),
            (2, self._activate),
            (2, self._gpsimd),
            (3, self._matmul),
            (1, self._transpose),
            (3, self._dma),
            (2, self._control),
        ]
        weights = [w for w, _ in kinds]
        return [self.rng.choices([k for _, k in kinds], weights)[0]() for _ in range(count)]

    # --- operands --------------------------------------------------------------------------------------------
    def _slot(self, *, space: Space | None = None, apart: frozenset[Slot] = frozenset()) -> Slot:
        names = [("sbuf", n) for n in range(SBUF_SLOTS)] if space != Space.PSUM else []
        names += [("psum", n) for n in range(PSUM_SLOTS)] if space != Space.SBUF else []
        return self.rng.choice([s for s in names if s not in apart])

    def _part(self, parts: int) -> int:
        quarter = self.config.partitions // 4
        return self.rng.choice(
            [q * quarter for q in range(4) if q * quarter + parts <= self.config.partitions]
        )

    def _dims(self, size: int) -> list[tuple[int, int]]:
        """One to four (stride, count) pairs of `size` elements, dense or not."""
        rng = self.rng
        counts = []
        for _ in range(rng.randint(0, 3)):
            counts.append(rng.choice([d for d in range(1, size + 1) if size % d == 0]))
            size //= counts[-1]
        counts.append(size)
        rng.shuffle(counts)
        if rng.random() < 0.5:
            strides: list[int] = []
            step = rng.choice([1, 1, -1])
            for count in reversed(counts):
                strides.insert(0, step)
                step *= count
        else:
            strides = [rng.choice([0, 1, 2, 3, -1, rng.randint(-20, 20)]) for _ in counts]
        return list(zip(strides, counts, strict=True))

    def _pattern(
        self, slot: Slot, size: int, dtype: DType, part: int, *, room: int = 0, four: bool = False
    ) -> AccessPattern:
        """Elements inside a slot, with `room` bytes behind them."""
        kind, number = slot
        space, width = (Space.SBUF if kind == "sbuf" else Space.PSUM), dtype_bytes(dtype)
        dims: list[tuple[int, int]]
        for _ in range(50):
            dims = self._dims(size)
            if four:
                dims = [(0, 1)] * (4 - len(dims)) + dims
            offsets = AccessPattern(0, dtype, tuple(dims)).addresses()
            low, high = int(offsets.min()), int(offsets.max())
            if high - low + width + room <= SLOT_BYTES:
                break
        else:
            dims, low, high = [(1, size)], 0, (size - 1) * width
        start = self.rng.randrange(0, (SLOT_BYTES - room - width - (high - low)) // width + 1) * width
        return AccessPattern(number * SLOT_BYTES + start - low, dtype, tuple(dims), space, part)

    def _size(self) -> int:
        return self.rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 30, 36, 48, 64])

    def _imm(self) -> int:
        rng = self.rng
        if rng.random() < 0.3:
            return rng.choice(CORNERS)
        return rng.getrandbits(1) << 31 | rng.randint(118, 136) << 23 | rng.getrandbits(23)

    def _types(self) -> tuple[DType, DType]:
        """Of a destination and of a source."""
        rng = self.rng
        if rng.random() < 0.7:
            common = [DType.FP32, DType.FP32, DType.BF16]
            return rng.choice(common), rng.choice(common)
        return rng.choice(sorted(WRITABLE)), rng.choice(sorted(READABLE))

    # --- kinds -----------------------------------------------------------------------------------------------
    def _vector(self) -> Op:
        rng = self.rng
        opcode = rng.choice([op for op in VECTOR_OPS if op not in MX_OPS])
        parts, size = rng.randint(1, self.config.partitions), self._size()
        fields = {"parts": parts, "imm0": self._imm(), "imm1": self._imm()} | self._operations(opcode)
        flags = fields["flags"]
        d_type, s_type = self._types()
        room = rng.choice([0, 0, 32])
        if opcode in RANKS:
            size = max(size, EIGHT)
        if opcode == Opcode.FIND_INDEX8:
            d_type = rng.choice(INDEXES)
        if opcode == Opcode.TENSOR_REDUCE:
            fields["axes"] = rng.randint(1, 4)
        source = self._slot()
        used: dict[str, AccessPattern] = {}
        reads: set[Slot] = set()
        count = 1 if opcode == Opcode.READ_ACCUMULATOR else size
        if opcode not in NO_SOURCE:
            used["src0"] = self._pattern(source, size, s_type, self._part(parts), room=room, four=True)
            reads.add(source)
            if opcode in LISTED:
                count = EIGHT
            if opcode == Opcode.TENSOR_REDUCE:
                count = used["src0"].outer(fields["axes"])
        extra = 2 if opcode == Opcode.RANGE_SELECT else int(bool(flags & Flag.SRC1_SCALAR))
        if opcode in PAIRS or extra:
            other = self._slot()
            o_type = DType.FP32 if opcode == Opcode.RANGE_SELECT else rng.choice(sorted(READABLE))
            used["src1"] = self._pattern(other, extra or size, o_type, self._part(parts))
            reads.add(other)
        if opcode in GIVEN:
            other = source if rng.random() < 0.7 else self._slot()
            part = used["src0"].part if other == source else self._part(parts)
            used["src1"] = self._pattern(other, EIGHT, s_type, part)
            reads.add(other)
        target = self._slot(apart=frozenset(reads))
        used["dst"] = self._pattern(target, count, d_type, self._part(parts), room=room)
        return self._looped(Engine.VECTOR, opcode, fields, used, frozenset(reads), target, room)

    def _mx(self) -> Op:
        """Scales of a tensor, and perhaps the cast with them."""
        rng, p = self.rng, self.config.partitions
        parts, columns = MX_ROWS * rng.randint(1, p // MX_ROWS), rng.choice([1, 2, 3, 5, 8, 16])
        kind, offset = rng.choice(list(PACKED)), rng.choice([0, 4, 8, 12] if p >= 32 else [0])
        source, scales = self._slot(), self._slot(space=Space.SBUF)
        src = self._pattern(source, 4 * columns, rng.choice(list(FLOATS)), 0)
        scale = self._pattern(scales, columns, DType.E8M0, offset)
        fields = {"parts": parts, "op0": int(kind), "op1": int(rng.choice(list(MxRule)))}
        chain = [Part(Opcode.MX_SCALE, fields, {"dst": scale, "src0": src})]
        reads, writes = {source}, {scales}
        if rng.random() < 0.6:
            target = self._slot(apart=frozenset({source, scales}))
            dst = self._pattern(target, columns, kind, 0)
            chain.append(Part(Opcode.MX_CAST, {"parts": parts}, {"dst": dst, "src0": src, "src1": scale}))
            reads.add(scales)
            writes.add(target)
        if source == scales:
            chain = chain[1:]
            if not chain:
                return self._mx()
            writes.discard(scales)
        return Op(Engine.VECTOR, tuple(chain), frozenset(reads), frozenset(writes))

    def _operations(self, opcode: Opcode) -> dict[str, int]:
        """op0, op1 and flags of a vector instruction."""
        rng, known = self.rng, VECTOR_OPS[opcode]
        op0: AluOp
        op1: AluOp
        if opcode in REDUCES:
            op0 = rng.choice(list(IDENTITY))
        elif opcode in NO_OP0:
            op0 = AluOp.BYPASS
        else:
            op0 = rng.choice(list(AluOp) if opcode in DIVIDES else ALU_OPS)
        op1 = AluOp.BYPASS if opcode in NO_OP1 else rng.choice(ALU_OPS)
        always = 0
        if known & Flag.ACCUMULATE:
            if rng.random() < 0.5:
                op1, known = rng.choice(list(IDENTITY)), known & ~int(Flag.REVERSE1)
                always = int(Flag.ACCUMULATE)
            else:
                known &= ~int(Flag.ACCUMULATE | Flag.FRESH)
        if opcode == Opcode.RANGE_SELECT:
            op0, op1 = rng.choice(COMPARISONS), rng.choice(COMPARISONS)
        flags = sum(int(bit) * rng.getrandbits(1) for bit in Flag if bit & known) | always
        return {"op0": int(op0), "op1": int(op1), "flags": flags}

    def _activate(self) -> Op:
        rng = self.rng
        parts, size = rng.randint(1, self.config.partitions), self._size()
        if rng.random() < 0.2:
            return self._scalar_sums(parts)
        fields = {
            "parts": parts,
            "op0": int(rng.choice(list(ActFunc))),
            "flags": rng.getrandbits(1) * int(Flag.SATURATE)
            | rng.choice([0, int(Flag.ACCUMULATE), int(Flag.ACCUMULATE | Flag.FRESH)]),
        }
        fields |= {"imm0": self._imm(), "imm1": self._imm()}
        d_type, s_type = self._types()
        room = rng.choice([0, 0, 32])
        source = self._slot()
        used = {"src0": self._pattern(source, size, s_type, self._part(parts), room=room)}
        reads = {source}
        if rng.random() < 0.5:
            bias = self._slot()
            used["src1"] = self._pattern(bias, 1, DType.FP32, self._part(parts))
            fields["flags"] |= int(Flag.SRC1_SCALAR)
            reads.add(bias)
        target = self._slot(apart=frozenset(reads))
        used["dst"] = self._pattern(target, size, d_type, self._part(parts), room=room)
        return self._looped(Engine.SCALAR, Opcode.ACTIVATE, fields, used, frozenset(reads), target, room)

    def _scalar_sums(self, parts: int) -> Op:
        """What the scalar engine's accumulators hold."""
        rng = self.rng
        flags = rng.getrandbits(1) * int(Flag.SATURATE) | rng.getrandbits(1) * int(Flag.NEGATE)
        fields = {"parts": parts, "op0": int(AluOp.ADD), "flags": flags}
        target, room = self._slot(), rng.choice([0, 0, 32])
        used = {"dst": self._pattern(target, 1, self._types()[0], self._part(parts), room=room)}
        return self._looped(Engine.SCALAR, Opcode.READ_ACCUMULATOR, fields, used, frozenset(), target, room)

    def _gpsimd(self) -> Op:
        rng = self.rng
        opcode = rng.choice(GPSIMD_OPS)
        parts, size, room = rng.randint(1, self.config.partitions), self._size(), rng.choice([0, 0, 32])
        flags = rng.getrandbits(1) * int(Flag.SATURATE)
        if opcode == Opcode.LOCAL_GATHER:
            return self._gather(parts, size, flags)
        fields = {
            "parts": parts,
            "flags": flags,
            "imm0": rng.randint(-9, 9) & 0xFFFFFFFF,
            "imm1": self._imm(),
        }
        d_type, s_type = self._types()
        used: dict[str, AccessPattern] = {}
        reads: set[Slot] = set()
        if opcode != Opcode.IOTA:
            source = self._slot(space=Space.SBUF)
            used["src0"] = self._pattern(source, size, s_type, self._part(parts), room=room)
            reads.add(source)
            fields["op0"] = int(rng.choice(COMPARISONS if opcode == Opcode.AFFINE_SELECT else REDUCING))
        if opcode != Opcode.PARTITION_REDUCE:
            start = rng.choice([rng.randint(-40, 40) & 0xFFFFFFFF, rng.getrandbits(32)])
            used["src1"] = AccessPattern(start, DType.FP32, tuple(self._dims(size)))
        target = self._slot(space=Space.SBUF, apart=frozenset(reads))
        written = 1 if opcode == Opcode.PARTITION_REDUCE else parts
        used["dst"] = self._pattern(target, size, d_type, self._part(written), room=room)
        return self._looped(Engine.GPSIMD, opcode, fields, used, frozenset(reads), target, room)

    def _gather(self, parts: int, size: int, flags: int) -> Op:
        """An IOTA that makes indices, and a LOCAL_GATHER of what they name."""
        rng = self.rng
        d_type, s_type = self._types()
        source = self._slot(space=Space.SBUF)
        place = self._slot(space=Space.SBUF, apart=frozenset({source}))
        target = self._slot(space=Space.SBUF, apart=frozenset({source, place}))
        src0 = self._pattern(source, self._size(), s_type, self._part(parts))
        index = self._pattern(place, size, rng.choice(INDICES), self._part(parts))
        dst = self._pattern(target, size, d_type, self._part(parts))
        steps, multiplier, low, span = [(0, size)], 0, 0, 0
        for _ in range(20):
            tried = [(rng.randint(-3, 3), count) for _, count in self._dims(size)]
            factor = rng.randint(-2, 2)
            values = affine(AccessPattern(0, DType.FP32, tuple(tried)), parts, factor).view(np.int32)
            if values.max() - values.min() < src0.size:
                steps, multiplier = tried, factor
                low, span = int(values.min()), int(values.max() - values.min())
                break
        start = rng.randint(0, src0.size - 1 - span) - low
        numbers = AccessPattern(start & 0xFFFFFFFF, DType.FP32, tuple(steps))
        making = {"parts": parts, "imm0": multiplier & 0xFFFFFFFF}
        return Op(
            Engine.GPSIMD,
            (
                Part(Opcode.IOTA, making, {"dst": index, "src1": numbers}),
                Part(
                    Opcode.LOCAL_GATHER,
                    {"parts": parts, "flags": flags},
                    {"dst": dst, "src0": src0, "src1": index},
                ),
            ),
            frozenset({source}),
            frozenset({place, target}),
        )

    def _looped(
        self,
        engine: Engine,
        opcode: Opcode,
        fields: dict[str, int],
        aps: dict[str, AccessPattern],
        reads: frozenset[Slot],
        target: Slot,
        room: int,
    ) -> Op:
        turns = self.rng.randint(2, 4) if room else 1
        step = self.rng.choice([0, 4, 8]) if room else 0
        part = Part(opcode, {k: int(v) for k, v in fields.items() if k in isa.OPS[opcode].fields}, aps)
        return Op(engine, (part,), reads, frozenset({target}), turns, step)

    def _matmul(self) -> Op:
        """Weights, and one to three matmuls through them, all of them double rows or none."""
        rng, p = self.rng, self.config.partitions
        classes = [c & frozenset(self.config.tensor.formats) for c in MAC_CLASSES]
        kinds = rng.choice([c for c in classes if c])
        doubles = kinds & frozenset(self.config.tensor.double_row)
        double = bool(doubles) and rng.random() < 0.5
        pair = sorted(doubles if double else kinds)
        k, m = rng.randint(1, p), rng.randint(1, p)
        packed = pair[0] in PACKED
        reads: set[Slot] = set()

        def operand(count: int) -> dict[str, AccessPattern]:
            slot = self._slot(space=Space.SBUF)
            part = 0 if packed else self._part(k)
            reads.add(slot)
            out = {"src0": self._pattern(slot, count, rng.choice(pair), part)}
            if packed or double:
                other = self._slot(space=Space.SBUF)
                reads.add(other)
                dtype, part = (out["src0"].dtype, self._part(k)) if double else (DType.E8M0, 0)
                out["src1"] = self._pattern(other, count, dtype, part)
            return out

        size = {"parts": k, "cols": m, "flags": int(Flag.DOUBLE_ROW) if double else 0}
        parts = [Part(Opcode.LOAD_STATIONARY, size, operand(m))]
        target = self._slot(space=Space.PSUM)
        for _ in range(rng.randint(1, 3)):
            n = rng.choice([1, 2, 5, 16, 40, 64])
            dst = self._pattern(target, n, DType.FP32, self._part(m))
            flags = size["flags"] | rng.choice([0, int(Flag.ACCUMULATE)])
            parts.append(Part(Opcode.MATMUL, {**size, "flags": flags}, {"dst": dst, **operand(n)}))
        return Op(Engine.TENSOR, tuple(parts), frozenset(reads | {target}), frozenset({target}))

    def _transpose(self) -> Op:
        """Elements of any type, into PSUM as any type of that width."""
        rng, p = self.rng, self.config.partitions
        k, m, width = rng.randint(1, p), rng.randint(1, p), rng.choice([1, 2, 4])
        kinds = [d for d in DType if dtype_bytes(d) == width]
        source, target = self._slot(space=Space.SBUF), self._slot(space=Space.PSUM)
        aps = {
            "dst": self._pattern(target, k, rng.choice(kinds), self._part(m)),
            "src0": self._pattern(source, m, rng.choice(kinds), self._part(k)),
        }
        part = Part(Opcode.TRANSPOSE, {"parts": k, "cols": m}, aps)
        return Op(Engine.TENSOR, (part,), frozenset({source, target}), frozenset({target}))

    def _dma(self) -> Op:
        rng, p = self.rng, self.config.partitions
        slots = [self._slot(), ("memory", rng.randrange(MEMORY_SLOTS))]
        if rng.random() < 0.3:
            slots[1] = self._slot(apart=frozenset(slots[:1]))
        rng.shuffle(slots)
        rows, row_bytes = rng.randint(1, p), rng.choice([1, 3, 16, 64, 100, rng.randint(1, SLOT_BYTES)])
        fields = {"rows": rows, "row_bytes": row_bytes}
        for name, slot in zip(("src", "dst"), slots, strict=True):
            first, at = rng.randint(0, p - rows), rng.randint(0, SLOT_BYTES - row_bytes)
            fields[name], fields[f"{name}_stride"] = self._row(slot, first, at)
        return Op(
            rng.choice(list(Engine)),
            (Part(Opcode.DMA, fields),),
            frozenset(slots[:1]),
            frozenset(slots[1:]),
        )

    def _row(self, slot: Slot, first: int, at: int) -> tuple[int, int]:
        """Address of byte `at` of a slot's row `first`, and the stride to the next row."""
        kind, number = slot
        if kind == "memory":
            return addressing.memory_address(
                memory_slot(self.config, number) + first * SLOT_BYTES + at
            ), SLOT_BYTES
        space = Space.SBUF if kind == "sbuf" else Space.PSUM
        stride = addressing.SBUF_PARTITION_STRIDE if kind == "sbuf" else addressing.PSUM_PARTITION_STRIDE
        return addressing.core_address(0, space, first, number * SLOT_BYTES + at), stride

    def _control(self) -> Op:
        """Register arithmetic, a branch over some of it, or a loop around it."""
        rng = self.rng
        body = [
            Part(
                Opcode.REGISTER,
                {
                    "reg_op": int(rng.choice(list(RegOp))),
                    "rd": rng.randrange(1, SCRATCH),
                    "ra": rng.randrange(isa.REGISTERS),
                    "rb": rng.randrange(isa.REGISTERS),
                    "use_imm": rng.getrandbits(1),
                    "imm": rng.choice([0, 1, -1, rng.getrandbits(31), rng.randint(-100, 100)]),
                },
            )
            for _ in range(rng.randint(1, 4))
        ]
        if rng.random() < 0.5:
            branch = {
                "cond": int(rng.choice(list(Cond))),
                "ra": rng.randrange(isa.REGISTERS),
                "rb": rng.randrange(isa.REGISTERS),
                "use_imm": rng.getrandbits(1),
                "imm": rng.choice([0, 1, -1, rng.randint(-100, 100)]),
            }
            body.insert(0, Part(Opcode.BRANCH, branch))
            return Op(rng.choice(list(Engine)), tuple(body))
        return Op(rng.choice(list(Engine)), tuple(body), turns=rng.choice([1, 3]))
