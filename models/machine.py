"""Functional model of a chip: runs the binary programs of an image, bit for bit, without cycles.

Engines take turns instruction by instruction; a wait that no engine can ever satisfy ends in the WATCHDOG error, as in hardware.
Programs whose result depends on the interleaving of unsynchronised engines are not defined here either.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from models import addressing, array, cast, encoding, flow, isa
from models.access import AccessPattern
from models.config import ChipConfig
from models.elements import VECTOR_OPS, ElementEngines
from models.fault import Fault, legal
from models.formats import MAC_CLASSES, PACKED, DType, dtype_bytes
from models.fp import PARTIALS
from models.gpsimd import GpsimdEngine
from models.image import Image, check_fits
from models.isa import (
    CONTROL,
    INSTR_BYTES,
    Engine,
    ErrorCode,
    Flag,
    Opcode,
    Space,
    UpdateMode,
    WaitMode,
)
from models.operands import Action, index_of
from models.scalar import ScalarEngine
from models.xorwow import seeded

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]
K = TypeVar("K")
V = TypeVar("V")


TURN = 10_000
"""Instructions that an engine may run before the others get their turn."""
SPIN_LIMIT = 200_000
"""Instructions in a row that only a sequencer sees, after which a core counts as hung."""
WORDS_KEPT, BODIES_KEPT = 4096, 4096
"""Words of an engine, and instructions of a core whatever their headers, that need not be taken apart again."""
HEADER_BYTES = 16
_OPCODES = {int(o): o for o in Opcode}
_WAITS, _UPDATES = frozenset(WaitMode), frozenset(UpdateMode)
_TOGETHER = frozenset((a, b) for kinds in MAC_CLASSES for a in kinds for b in kinds)
"""(Stationary, moving) types."""


@dataclass(slots=True)
class ErrorRecord:
    """What a core's ERR registers hold after its first error."""

    code: ErrorCode
    engine: Engine
    index: int
    addr: int


@dataclass(slots=True)
class EngineState:
    """One instruction stream: base address, index of the next instruction, running or halted."""

    base: int = 0
    index: int = 0
    running: bool = False
    registers: list[int] = field(default_factory=lambda: [0] * isa.REGISTERS)


@dataclass(slots=True)
class Decoded:
    """An instruction word that passed its sequencer's checks: it starts when semaphore `wait` is at least `level`. No action: it depends on registers."""

    opcode: Opcode
    raw: dict[str, int]
    wait: int | None
    level: int
    action: Action | None = None


class Known(dict[K, V], Generic[K, V]):
    """What was worked out before, at most `limit` entries: the oldest gives way."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def add(self, key: K, value: V) -> V:
        """Keep `value`, and give it back."""
        if len(self) >= self.limit:
            del self[next(iter(self))]
        self[key] = value
        return value


@dataclass(slots=True)
class Counters:
    """Counts that do not depend on time."""

    instructions: dict[Engine, int] = field(default_factory=lambda: dict.fromkeys(Engine, 0))
    columns: int = 0
    dma_bytes: int = 0


class Core(ElementEngines, ScalarEngine, GpsimdEngine):
    """State and behaviour of one core."""

    def __init__(self, chip: "Machine", number: int):
        cfg = chip.config
        self.chip, self.number, self.config = chip, number, cfg
        self.sbuf: U8 = np.zeros((cfg.partitions, cfg.sbuf.bytes_per_partition), dtype=np.uint8)
        self.psum: U8 = np.zeros((cfg.partitions, cfg.psum.bytes_per_partition), dtype=np.uint8)
        self.semaphores = [0] * cfg.core.semaphores
        self.engines = {e: EngineState() for e in Engine}
        self.stationary: array.Operand | None = None
        self.accumulators = np.zeros((cfg.partitions, PARTIALS), dtype=np.float32)
        self.scalar_accumulators = np.zeros_like(self.accumulators)
        self.random = seeded(0, cfg.partitions)
        self.error: ErrorRecord | None = None
        self.counters = Counters()
        self.spinning = 0
        """Instructions that only sequencers saw, since the last one that did something."""
        self._words: dict[Engine, Known[bytes, Decoded]] = {e: Known(WORDS_KEPT) for e in Engine}
        self._bodies: Known[tuple[Engine, Opcode, bytes], Action] = Known(BODIES_KEPT)

    # --- control ---------------------------------------------------------------------------------------------
    def step(self, engine: Engine) -> bool:
        """Try one instruction of `engine`; True when one was executed (or the core stopped on it)."""
        state = self.engines[engine]
        if not state.running or self.error is not None:
            return False
        try:
            word = self._fetch(state)
            known = self._words[engine].get(word)
            if known is None:
                known = self._words[engine].add(word, self._decoded(engine, word))
            if known.wait is not None and self.semaphores[known.wait] < known.level:
                return False
            opcode, jump = known.opcode, None
            if known.action is not None:
                known.action()
            elif opcode in CONTROL:
                jump = flow.control(opcode, known.raw, state.registers)
            else:
                self._action(engine, opcode, *flow.indexed(opcode, word, known.raw, state.registers))()
        except flow.FieldError:
            self.error = ErrorRecord(ErrorCode.ILLEGAL_FIELD, engine, state.index, 0)
            return True
        except Fault as f:
            self.error = ErrorRecord(f.code, engine, state.index, f.addr)
            return True
        if known.raw["update_mode"]:
            self._update(known.raw)
        self.counters.instructions[engine] += 1
        state.index = state.index + 1 if jump is None else jump
        self.spinning = self.spinning + 1 if opcode in CONTROL else 0
        if opcode == Opcode.HALT:
            state.running = False
        return True

    def _fetch(self, state: EngineState) -> bytes:
        address = state.base + state.index * INSTR_BYTES
        if address % INSTR_BYTES or address + INSTR_BYTES > self.config.memory.bytes:
            raise Fault(ErrorCode.FETCH_ERROR, addressing.memory_address(address))
        return bytes(self.chip.bytes[address : address + INSTR_BYTES])

    def _decoded(self, engine: Engine, word: bytes) -> Decoded:
        """A word's header, checked. Its action is found when it first runs: what is wrong with it stops the core then, not while it waits."""
        raw = encoding.raw_fields(word)
        opcode = self._decode(engine, raw)
        wait = raw["wait_sem"] if raw["wait_mode"] == WaitMode.GE else None
        known = Decoded(opcode, raw, wait, raw["wait_value"])
        if opcode not in CONTROL and not any(raw[key] for key in flow.DYNAMIC.values()):

            def first() -> None:
                action = self._action(engine, opcode, word, raw)
                action()
                known.action = action

            known.action = first
        return known

    def _decode(self, engine: Engine, raw: dict[str, int]) -> Opcode:
        opcode = _OPCODES.get(raw["opcode"])
        if opcode is None or engine not in isa.OPS[opcode].engines:
            raise Fault(ErrorCode.ILLEGAL_OPCODE)
        count = len(self.semaphores)
        legal(raw["wait_mode"] in _WAITS and raw["update_mode"] in _UPDATES)
        flow.check(opcode, raw)
        legal(raw["wait_mode"] == WaitMode.NONE or raw["wait_sem"] < count)
        legal(raw["update_mode"] == UpdateMode.NONE or raw["update_sem"] < count)
        return opcode

    def _update(self, raw: dict[str, int]) -> None:
        mode, sem, value = raw["update_mode"], raw["update_sem"], raw["update_value"]
        old = self.semaphores[sem]
        new = value if mode == UpdateMode.SET else old + value if mode == UpdateMode.ADD else old - value
        self.semaphores[sem] = (new + (1 << 31)) % (1 << 32) - (1 << 31)

    def execute(self, engine: Engine, word: bytes) -> None:
        """What an instruction does, whatever its header: no wait, no update. Raises Fault."""
        raw = encoding.raw_fields(word)
        self._action(engine, Opcode(raw["opcode"]), word, raw)()

    def _action(self, engine: Engine, opcode: Opcode, word: bytes, raw: dict[str, int]) -> Action:
        """The action of an instruction, whatever its header. Raises Fault for what is wrong with it."""
        if opcode == Opcode.DMA:
            return lambda: self._dma(raw)
        body = (engine, opcode, word[HEADER_BYTES:])
        action = self._bodies.get(body)
        return action or self._bodies.add(body, self._prepare(engine, opcode, word, raw))

    def _prepare(self, engine: Engine, opcode: Opcode, word: bytes, raw: dict[str, int]) -> Action:
        if opcode == Opcode.LOAD_STATIONARY:
            return self._load_stationary(word, raw)
        if opcode == Opcode.MATMUL:
            return self._matmul(word, raw)
        if opcode == Opcode.TRANSPOSE:
            return self._transpose(word, raw)
        if engine == Engine.SCALAR:
            return self._scalar(opcode, word, raw)
        if opcode in VECTOR_OPS:
            return self._vector(opcode, word, raw)
        return self._gpsimd(opcode, word, raw)

    # --- tensor ----------------------------------------------------------------------------------------------
    def _operand(self, word: bytes, parts: int, double: bool) -> tuple[AccessPattern, AccessPattern | None]:
        """A matmul's operand, and its second rows or its scales."""
        ap = self._pattern(word, "src0", parts)
        legal(ap.dtype in self.config.tensor.formats and ap.space == Space.SBUF)
        if double:
            second = self._pattern(word, "src1", parts)
            legal(ap.dtype in self.config.tensor.double_row and second.dtype == ap.dtype)
            legal(second.space == Space.SBUF and second.size == ap.size)
            return ap, second
        if ap.dtype not in PACKED:
            return ap, None
        scale = self._pattern(word, "src1", 0, scale=True)
        offsets = (0, 4, 8, 12) if self.config.partitions >= 32 else (0,)
        legal(scale.dtype == DType.E8M0 and scale.space == Space.SBUF and scale.part in offsets)
        legal(ap.part % self.config.quadrant == 0 and scale.size == ap.size)
        return ap, scale

    def _reader(
        self, ap: AccessPattern, other: AccessPattern | None, parts: int, double: bool
    ) -> Callable[[], array.Operand]:
        """What the array takes of an operand, read when it is asked for: words, and scales where it has them."""
        place = self._place(ap, parts)
        if other is None:
            return lambda: array.Operand(ap.dtype, place.words())
        if double:
            second = self._place(other, parts)
            return lambda: array.Operand(ap.dtype, array.pairs(place.words(), second.words()), double=True)
        scales = self._scales(other, ap.part, parts)
        return lambda: array.Operand(ap.dtype, place.words(), scales.read())

    def _shape(self, raw: dict[str, int]) -> tuple[int, int]:
        k, m = raw["parts"], raw["cols"]
        legal(1 <= k <= self.config.partitions and 1 <= m <= self.config.partitions)
        return k, m

    def _load_stationary(self, word: bytes, raw: dict[str, int]) -> Action:
        k, m = self._shape(raw)
        double = raw["flags"] == Flag.DOUBLE_ROW
        legal(double or raw["flags"] == 0)
        ap, other = self._operand(word, k, double)
        legal(ap.size == m)
        read = self._reader(ap, other, k, double)

        def run() -> None:
            self.stationary = read()

        return run

    def _matmul(self, word: bytes, raw: dict[str, int]) -> Action:
        k, m = self._shape(raw)
        double = bool(raw["flags"] & Flag.DOUBLE_ROW)
        legal(raw["flags"] & ~int(Flag.ACCUMULATE | Flag.DOUBLE_ROW) == 0)
        # what the array holds may be another thing every time; when it is wrong, that comes before operands out of range
        self._held(k, m, double, None)
        ap, other = self._operand(word, k, double)
        self._held(k, m, double, ap.dtype)
        dst = self._pattern(word, "dst", m)
        legal(dst.dtype == DType.FP32 and dst.space == Space.PSUM and dst.size == ap.size)
        legal(ap.size <= self.config.psum.bank_bytes // 4)
        if ap.size == 0:
            return lambda: self._nothing(k, m, double, ap.dtype)
        out, read = self._place(dst, m), self._reader(ap, other, k, double)
        add = bool(raw["flags"] & Flag.ACCUMULATE)
        sums = out.view.view(np.float32)

        def run() -> None:
            held = self._held(k, m, double, ap.dtype)
            self.counters.columns += ap.size
            if out.distinct:
                array.multiply_into(held, read(), sums, add=add)
            else:
                _accumulate_in_turn(sums, array.multiply(held, read()), add=add)

        return run

    def _held(self, k: int, m: int, double: bool, dtype: DType | None) -> array.Operand:
        """What is in the array. Raises Fault unless it is of this shape and goes with moving operands of this type."""
        held = self.stationary
        legal(held is not None and held.words.shape == (k, m) and held.double == double)
        assert held is not None
        legal(dtype is None or (held.dtype, dtype) in _TOGETHER)
        return held

    def _nothing(self, k: int, m: int, double: bool, dtype: DType) -> None:
        """A matmul without columns."""
        self._held(k, m, double, dtype)

    def _transpose(self, word: bytes, raw: dict[str, int]) -> Action:
        k, m = self._shape(raw)
        legal(raw["flags"] == 0)
        src, dst = self._pattern(word, "src0", k), self._pattern(word, "dst", m)
        legal(src.space == Space.SBUF and dst.space == Space.PSUM)
        legal(src.size == m and dst.size == k and dtype_bytes(dst.dtype) == dtype_bytes(src.dtype))
        out, place = self._place(dst, m), self._place(src, k)

        def run() -> None:
            words = place.words()
            self.stationary = None
            self.counters.columns += k
            out.write(words.T)

        return run

    # --- DMA -------------------------------------------------------------------------------------------------
    def _dma(self, raw: dict[str, int]) -> None:
        n, rows = raw["row_bytes"], raw["rows"]
        if n == 0 or rows == 0:
            return
        block = self._dma_block(raw["src"], raw["src_stride"], rows, n)
        target = self._dma_block(raw["dst"], raw["dst_stride"], rows, n)
        apart = rows == 1 or (target is not None and abs(target.strides[0]) >= n)
        if block is not None and target is not None and apart and not np.may_share_memory(block, target):
            target[...] = block
            self.counters.dma_bytes += n * rows
            return
        for r in range(rows):
            source = self._dma_row((raw["src"] + r * raw["src_stride"]) % (1 << 64), n)
            target = self._dma_row((raw["dst"] + r * raw["dst_stride"]) % (1 << 64), n)
            target[:] = source.copy()
            self.counters.dma_bytes += n

    def _dma_block(self, address: int, stride: int, rows: int, n: int) -> U8 | None:
        """All rows as one view [rows, n]; None where they are not evenly spaced in one memory, or leave it."""
        try:
            first = self._dma_row(address, n)
            last = self._dma_row((address + (rows - 1) * stride) % (1 << 64), n)
        except Fault:
            return None
        unit = address >> addressing.UNIT_SHIFT & 0xFF
        memory, pitch = self.chip.memory, stride
        if unit != addressing.UNIT_MEMORY:
            psum = address & addressing.OFFSET_MASK >= addressing.CORE_PSUM_BASE
            memory = self.psum if psum else self.sbuf
            partition = addressing.PSUM_PARTITION_STRIDE if psum else addressing.SBUF_PARTITION_STRIDE
            if stride % partition == 0:
                pitch = stride // partition * memory.shape[1]
            elif address // partition != (address + (rows - 1) * stride) // partition:
                return None
        start, end = (_address_of(row) - _address_of(memory) for row in (first, last))
        if end != start + (rows - 1) * pitch or not 0 <= end <= memory.size - n:
            return None
        return np.ndarray((rows, n), np.uint8, memory, start, (pitch, 1))

    def _dma_row(self, address: int, n: int) -> U8:
        """A view of `n` bytes at a 64-bit address."""
        cfg = self.config
        chip, unit, offset = (
            address >> addressing.CHIP_SHIFT,
            (address >> addressing.UNIT_SHIFT) & 0xFF,
            address & addressing.OFFSET_MASK,
        )
        if chip not in (addressing.CHIP_LOCAL, self.chip.chip_id):
            raise Fault(ErrorCode.DMA_RANGE, address)
        if unit == addressing.UNIT_MEMORY:
            if offset + n > cfg.memory.bytes:
                raise Fault(ErrorCode.DMA_RANGE, address)
            return self.chip.memory[offset : offset + n]
        if unit != addressing.UNIT_CORE0 + self.number:
            raise Fault(ErrorCode.DMA_RANGE, address)
        psum = offset >= addressing.CORE_PSUM_BASE
        stride = addressing.PSUM_PARTITION_STRIDE if psum else addressing.SBUF_PARTITION_STRIDE
        partition, start = divmod(offset - (addressing.CORE_PSUM_BASE if psum else 0), stride)
        rows = self.psum if psum else self.sbuf
        if partition >= cfg.partitions or start + n > rows.shape[1]:
            raise Fault(ErrorCode.DMA_RANGE, address)
        return rows[partition, start : start + n]


def _address_of(x: U8) -> int:
    """Of its first byte, in this process."""
    return int(x.__array_interface__["data"][0])


def _accumulate_in_turn(sums: F32, result: F32, *, add: bool) -> None:
    """Columns of `result` into places of which some are the same, one after the other."""
    for n in range(result.shape[1]):
        at: tuple[Any, ...] = (slice(None), *index_of(n, sums.shape[1:]))
        column = result[:, n]
        sums[at] = array.accumulate(sums[at], column) if add else cast.canonical(column)


class Machine:
    """A chip: memory and cores."""

    def __init__(self, config: ChipConfig, *, chip_id: int = 0):
        self.config, self.chip_id = config, chip_id
        self.memory: U8 = np.zeros(config.memory.bytes, dtype=np.uint8)
        self.bytes = memoryview(self.memory.data)
        """The same memory: its slices cost less."""
        self.cores = [Core(self, i) for i in range(config.cores)]

    def load(self, image: Image) -> None:
        """Put an image into memory and start its streams. Raises ImageError when it was made for another chip."""
        check_fits(image, self.config)
        for address, data in image.segments:
            self.memory[address : address + len(data)] = np.frombuffer(data, dtype=np.uint8)
        for core, engine, address in image.entries:
            self.cores[core].engines[engine] = EngineState(address, 0, True)

    def run(self) -> None:
        """Run until every stream has halted or its core has stopped on an error (see `Core.error`)."""
        while True:
            moved = False
            for core in self.cores:
                for engine in Engine:
                    # a loop that waits for nothing must not keep the other engines from their turn
                    for _ in range(TURN):
                        if not core.step(engine):
                            break
                        moved |= core.spinning < SPIN_LIMIT
            if not moved:
                break
        for core in self.cores:
            stuck = [e for e in Engine if core.engines[e].running]
            if stuck and core.error is None:
                core.error = ErrorRecord(ErrorCode.WATCHDOG, stuck[0], core.engines[stuck[0]].index, 0)

    def outputs(self, image: Image) -> Image:
        """The image's output regions as they are now."""
        out = Image(image.config_hash, image.memory_bytes)
        for address, length in image.outputs:
            out.add(address, self.memory[address : address + length].tobytes())
        return out
