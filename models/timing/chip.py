"""Cycles of a whole program image: all blocks of all cores together."""

from collections.abc import Callable
from dataclasses import dataclass

from models.config import ChipConfig
from models.image import Image, check_fits
from models.isa import INSTR_BYTES, Engine
from models.timing.banks import Banks
from models.timing.clock import ACT, Clock, TimingError
from models.timing.dma import Dma
from models.timing.elements import ElementEngine
from models.timing.fetch import Fetch
from models.timing.memory import Memory
from models.timing.semaphores import Semaphores
from models.timing.sequencer import Sequencer, Spin, Target
from models.timing.tensor import TensorEngine
from models.timing.words import Word, Words

DOORBELL = 8
"""Cycles from a core's start to the next one's."""
ANSWER = 3
"""Cycles from the last core's start to the answer of the write that starts it, from which the host counts."""
LIMIT = 100_000_000


@dataclass(frozen=True, slots=True)
class EngineEstimate:
    """`busy`: cycles with work; `waiting`: cycles in which its stream is held by a semaphore; `instructions` done."""

    busy: int
    waiting: int
    instructions: int


@dataclass(frozen=True, slots=True)
class CoreEstimate:
    """`cycles` from the core's start to its end; `columns`, `dma_busy`, as the core's counters; engines that have a stream."""

    cycles: int
    columns: int
    dma_busy: int
    engines: dict[Engine, EngineEstimate]


@dataclass(frozen=True, slots=True)
class Estimate:
    """`cycles` from the last core's start to the end of all; cores by number."""

    cycles: int
    cores: dict[int, CoreEstimate]


class _Stream:
    """A DMA as one engine's stream sees it."""

    def __init__(self, dma: Dma, engine: Engine):
        self.dma, self.engine = dma, engine

    def offer(self, word: Word, taken: Callable[[], None], done: Callable[[int], None]) -> None:
        """See models.timing.sequencer.Target."""
        self.dma.offer(self.engine, word, taken, done)


class _Core:
    """One core's blocks, and the streams that an image gives it."""

    def __init__(
        self, config: ChipConfig, number: int, clock: Clock, memory: Memory, words: Words, image: Image
    ):
        ports = {engine: memory.port() for engine in Engine}
        self.semaphores = semaphores = Semaphores(clock, config.core.semaphores)
        banks = Banks(config)
        self.dma = Dma(clock, memory, semaphores, memory.port(), banks)
        self.tensor = TensorEngine(clock, config, semaphores, banks)
        self.vector, self.scalar, self.gpsimd = (
            ElementEngine(clock, config, semaphores, banks) for _ in range(3)
        )
        own: dict[Engine, Target] = {
            Engine.TENSOR: self.tensor,
            Engine.VECTOR: self.vector,
            Engine.SCALAR: self.scalar,
            Engine.GPSIMD: self.gpsimd,
        }
        self.sequencers: dict[Engine, Sequencer] = {}
        self.last_flight = 0
        spin = Spin()
        for core, engine, address in image.entries:
            if core == number:
                fetch = Fetch(clock, config.core, ports[engine], address, config.memory.bytes)
                fetch.on_idle = lambda: self._idle(clock)
                self.sequencers[engine] = Sequencer(
                    clock,
                    f"core {number} {engine.name.lower()}",
                    engine,
                    fetch,
                    semaphores,
                    words,
                    _reader(image),
                    own.get(engine),
                    _Stream(self.dma, engine),
                    spin,
                )

    def _idle(self, clock: Clock) -> None:
        self.last_flight = clock.now

    def busy(self, engine: Engine) -> int:
        """Cycles with work."""
        blocks = {
            Engine.TENSOR: self.tensor.busy,
            Engine.VECTOR: self.vector.busy,
            Engine.SCALAR: self.scalar.busy,
            Engine.GPSIMD: self.gpsimd.busy,
        }
        return blocks.get(engine, self.dma.sync).cycles

    def end(self) -> int:
        """The first cycle in which nothing runs. Raises TimingError when a stream has not come to its HALT."""
        ends = [self.last_flight]
        for s in self.sequencers.values():
            if s.ended is None:
                sem, value = s.waits_for or (0, 0)
                held = f"waits for ever for semaphore {sem} to be {value}" if s.waits_for else "never ends"
                raise TimingError(f"{s.where}[{s.index}] {held}")
            ends.append(s.ended + 1)
        return max(ends)


def _reader(image: Image) -> Callable[[int], bytes]:
    """Instruction words out of an image's segments."""
    segments = sorted(image.segments)

    def read(address: int) -> bytes:
        for start, data in segments:
            if start <= address < start + len(data):
                return data[address - start : address - start + INSTR_BYTES].ljust(INSTR_BYTES, b"\0")
        return bytes(INSTR_BYTES)

    return read


def estimate(config: ChipConfig, image: Image, *, latency: int = 20, limit: int = LIMIT) -> Estimate:
    """Cycles of `image` on the simulated chip, whose memory channels answer after `latency` cycles.

    Raises ImageError when the image is another chip's, TimingError when a program would stop on an error that its instructions show, when
    it waits for ever, or when it takes more than `limit` cycles.
    """
    check_fits(image, config)
    clock = Clock(limit)
    memory, words = Memory(config, clock, latency), Words(config)
    cores = {n: _Core(config, n, clock, memory, words, image) for n in range(config.cores)}
    used = sorted({core for core, _, _ in image.entries})
    starts = {core: n * DOORBELL for n, core in enumerate(used)}
    for core in used:
        for sequencer in cores[core].sequencers.values():
            clock.at(starts[core], ACT, sequencer.start)
    clock.run()
    out = {}
    for core in used:
        c = cores[core]
        engines = {e: EngineEstimate(c.busy(e), s.waiting, s.instructions) for e, s in c.sequencers.items()}
        out[core] = CoreEstimate(c.end() - starts[core], c.tensor.columns, c.dma.busy.cycles, engines)
    last = max((starts[core] + out[core].cycles for core in used), default=0)
    return Estimate(max(0, last - max(starts.values(), default=0) - ANSWER), out)
