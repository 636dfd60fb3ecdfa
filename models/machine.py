"""Functional model of a chip: runs the binary programs of an image, bit for bit, without cycles.

Engines take turns instruction by instruction; a wait that no engine can ever satisfy ends in the WATCHDOG error, as in hardware.
Programs whose result depends on the interleaving of unsynchronised engines are not defined here either.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from models import addressing, array, encoding, flow, isa
from models.access import AccessPattern
from models.config import ChipConfig
from models.elements import VECTOR_OPS, ElementEngines
from models.fault import Fault, legal
from models.formats import MAC_CLASSES, PACKED, DType, dtype_bytes
from models.fp import PARTIALS
from models.gpsimd import GPSIMD_OPS, GpsimdEngine
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
from models.scalar import ScalarEngine
from models.xorwow import seeded

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]


TURN = 10_000
"""Instructions that an engine may run before the others get their turn."""
SPIN_LIMIT = 200_000
"""Instructions in a row that only a sequencer sees, after which a core counts as hung."""


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
class Stationary:
    """What LOAD_STATIONARY left in the array."""

    dtype: DType
    words: U32
    scale: U8 | None
    double: bool


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
        self.stationary: Stationary | None = None
        self.accumulators = np.zeros((cfg.partitions, PARTIALS), dtype=np.float32)
        self.scalar_accumulators = np.zeros_like(self.accumulators)
        self.random = seeded(0, cfg.partitions)
        self.error: ErrorRecord | None = None
        self.counters = Counters()
        self.spinning = 0
        """Instructions that only sequencers saw, since the last one that did something."""

    # --- control ---------------------------------------------------------------------------------------------
    def step(self, engine: Engine) -> bool:
        """Try one instruction of `engine`; True when one was executed (or the core stopped on it)."""
        state = self.engines[engine]
        if not state.running or self.error is not None:
            return False
        try:
            word = self._fetch(state)
            raw = encoding.raw_fields(word)
            opcode = self._decode(engine, raw)
            if raw["wait_mode"] == WaitMode.GE and self.semaphores[raw["wait_sem"]] < raw["wait_value"]:
                return False
            jump = None
            if opcode in CONTROL:
                jump = flow.control(opcode, raw, state.registers)
            else:
                self._execute(engine, opcode, *flow.indexed(opcode, word, raw, state.registers))
        except flow.FieldError:
            self.error = ErrorRecord(ErrorCode.ILLEGAL_FIELD, engine, state.index, 0)
            return True
        except Fault as f:
            self.error = ErrorRecord(f.code, engine, state.index, f.addr)
            return True
        self._update(raw)
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
        return self.chip.memory[address : address + INSTR_BYTES].tobytes()

    def _decode(self, engine: Engine, raw: dict[str, int]) -> Opcode:
        if raw["opcode"] not in list(Opcode) or engine not in isa.OPS[Opcode(raw["opcode"])].engines:
            raise Fault(ErrorCode.ILLEGAL_OPCODE)
        count = len(self.semaphores)
        legal(raw["wait_mode"] in list(WaitMode) and raw["update_mode"] in list(UpdateMode))
        flow.check(Opcode(raw["opcode"]), raw)
        legal(raw["wait_mode"] == WaitMode.NONE or raw["wait_sem"] < count)
        legal(raw["update_mode"] == UpdateMode.NONE or raw["update_sem"] < count)
        return Opcode(raw["opcode"])

    def _update(self, raw: dict[str, int]) -> None:
        mode, sem, value = raw["update_mode"], raw["update_sem"], raw["update_value"]
        if mode == UpdateMode.NONE:
            return
        old = self.semaphores[sem]
        new = value if mode == UpdateMode.SET else old + value if mode == UpdateMode.ADD else old - value
        self.semaphores[sem] = (new + (1 << 31)) % (1 << 32) - (1 << 31)

    def _execute(self, engine: Engine, opcode: Opcode, word: bytes, raw: dict[str, int]) -> None:
        if opcode == Opcode.DMA:
            self._dma(raw)
        elif opcode == Opcode.LOAD_STATIONARY:
            self._load_stationary(word, raw)
        elif opcode == Opcode.MATMUL:
            self._matmul(word, raw)
        elif engine == Engine.SCALAR:
            self._scalar(opcode, word, raw)
        elif opcode == Opcode.TRANSPOSE:
            self._transpose(word, raw)
        elif opcode in VECTOR_OPS:
            self._vector(opcode, word, raw)
        elif opcode in GPSIMD_OPS:
            self._gpsimd(opcode, word, raw)

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

    def _words(
        self, ap: AccessPattern, other: AccessPattern | None, parts: int, double: bool
    ) -> tuple[U32, U8 | None]:
        """What the array takes of an operand: words, and scales where it has them."""
        words = self._read(ap, parts)
        if other is None:
            return words, None
        if double:
            return array.pairs(words, self._read(other, parts)), None
        return words, self._scales(other, ap.part, parts)

    def _shape(self, raw: dict[str, int]) -> tuple[int, int]:
        k, m = raw["parts"], raw["cols"]
        legal(1 <= k <= self.config.partitions and 1 <= m <= self.config.partitions)
        return k, m

    def _load_stationary(self, word: bytes, raw: dict[str, int]) -> None:
        k, m = self._shape(raw)
        double = raw["flags"] == Flag.DOUBLE_ROW
        legal(double or raw["flags"] == 0)
        ap, other = self._operand(word, k, double)
        legal(ap.size == m)
        self.stationary = Stationary(ap.dtype, *self._words(ap, other, k, double), double)

    def _matmul(self, word: bytes, raw: dict[str, int]) -> None:
        k, m = self._shape(raw)
        double = bool(raw["flags"] & Flag.DOUBLE_ROW)
        legal(raw["flags"] & ~int(Flag.ACCUMULATE | Flag.DOUBLE_ROW) == 0)
        held = self.stationary
        legal(held is not None and held.words.shape == (k, m) and held.double == double)
        assert held is not None
        ap, other = self._operand(word, k, double)
        legal(any({ap.dtype, held.dtype} <= c for c in MAC_CLASSES))
        dst = self._pattern(word, "dst", m)
        legal(dst.dtype == DType.FP32 and dst.space == Space.PSUM and dst.size == ap.size)
        legal(ap.size <= self.config.psum.bank_bytes // 4)
        if ap.size == 0:
            return
        addresses = self._addresses(dst)
        moving, m_scale = self._words(ap, other, k, double)
        result = array.matmul(held.words, moving, held.dtype, ap.dtype, held.scale, m_scale, double=double)
        self.counters.columns += ap.size
        for run in _distinct_runs(addresses):
            part = AccessPattern(0, DType.FP32, ((1, 1),), Space.PSUM, dst.part)
            self._accumulate(
                addresses[run], result[:, run], part.part, m, bool(raw["flags"] & Flag.ACCUMULATE)
            )

    def _transpose(self, word: bytes, raw: dict[str, int]) -> None:
        k, m = self._shape(raw)
        legal(raw["flags"] == 0)
        src, dst = self._pattern(word, "src0", k), self._pattern(word, "dst", m)
        legal(src.space == Space.SBUF and dst.space == Space.PSUM)
        legal(src.size == m and dst.size == k and dtype_bytes(dst.dtype) == dtype_bytes(src.dtype))
        self._addresses(dst)
        words = self._read(src, k)
        self.stationary = None
        self.counters.columns += k
        self._write(dst, m, words.T)

    def _accumulate(
        self, addresses: NDArray[np.int64], result: NDArray[np.float32], part: int, m: int, add: bool
    ) -> None:
        words = self.psum[part : part + m].view(np.uint32)
        at = addresses // 4
        if add:
            result = array.accumulate(words[:, at].view(np.float32), result)
        words[:, at] = result.view(np.uint32)

    # --- DMA -------------------------------------------------------------------------------------------------
    def _dma(self, raw: dict[str, int]) -> None:
        n = raw["row_bytes"]
        if n == 0:
            return
        for r in range(raw["rows"]):
            src = (raw["src"] + r * raw["src_stride"]) % (1 << 64)
            dst = (raw["dst"] + r * raw["dst_stride"]) % (1 << 64)
            source, target = self._dma_row(src, n), self._dma_row(dst, n)
            target[:] = source.copy()
            self.counters.dma_bytes += n

    def _dma_row(self, address: int, n: int) -> U8:
        """A view of `n` bytes at a 64-bit address."""
        cfg = self.config
        chip, unit, offset = (
            address >> addressing.CHIP_SHIFT,
            (address >> addressing.UNIT_SHIFT) & 0xFF,
            address & addressing.OFFSET_MASK,
        )
        bad = Fault(ErrorCode.DMA_RANGE, address)
        if chip not in (addressing.CHIP_LOCAL, self.chip.chip_id):
            raise bad
        if unit == addressing.UNIT_MEMORY:
            if offset + n > cfg.memory.bytes:
                raise bad
            return self.chip.memory[offset : offset + n]
        if unit != addressing.UNIT_CORE0 + self.number:
            raise bad
        psum = offset >= addressing.CORE_PSUM_BASE
        stride = addressing.PSUM_PARTITION_STRIDE if psum else addressing.SBUF_PARTITION_STRIDE
        partition, start = divmod(offset - (addressing.CORE_PSUM_BASE if psum else 0), stride)
        rows = self.psum if psum else self.sbuf
        if partition >= cfg.partitions or start + n > rows.shape[1]:
            raise bad
        return rows[partition, start : start + n]


def _distinct_runs(addresses: NDArray[np.int64]) -> Iterator[slice]:
    """Consecutive slices within which no address repeats, so that accumulation can be vectorised in order."""
    if np.unique(addresses).size == addresses.size:
        yield slice(0, addresses.size)
        return
    seen: set[int] = set()
    start = 0
    for i, a in enumerate(addresses.tolist()):
        if a in seen:
            yield slice(start, i)
            start, seen = i, set()
        seen.add(a)
    yield slice(start, addresses.size)


class Machine:
    """A chip: memory and cores."""

    def __init__(self, config: ChipConfig, *, chip_id: int = 0):
        self.config, self.chip_id = config, chip_id
        self.memory: U8 = np.zeros(config.memory.bytes, dtype=np.uint8)
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
