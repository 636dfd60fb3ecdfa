"""What random operations are made of: slots of memory, patterns inside them, and instructions that belong together."""

import random
from dataclasses import dataclass, field

from models import isa
from models.access import AccessPattern
from models.config import ChipConfig
from models.elements import READABLE, WRITABLE
from models.formats import DType, dtype_bytes
from models.isa import Engine, Opcode, Space
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


class Operands:
    """Random operands for `config`, from `rng`. Raises ValueError when the configuration's memories do not hold the slots."""

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

    def _looped(
        self,
        engine: Engine,
        opcode: Opcode,
        fields: dict[str, int],
        aps: dict[str, AccessPattern],
        reads: frozenset[Slot],
        target: Slot | None,
        room: int,
    ) -> Op:
        turns = self.rng.randint(2, 4) if room else 1
        step = self.rng.choice([0, 4, 8]) if room else 0
        part = Part(opcode, {k: int(v) for k, v in fields.items() if k in isa.OPS[opcode].fields}, aps)
        writes = frozenset() if target is None else frozenset({target})
        return Op(engine, (part,), reads, writes, turns, step)
