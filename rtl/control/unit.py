"""Control of a core: a fetch and a sequencer an engine, semaphores, errors, registers, joined. No arithmetic here."""

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from models.config import ChipConfig
from models.isa import Engine
from rtl.control.errors import ErrorConfig, ErrorUnit
from rtl.control.fetch import FetchConfig, InstructionFetch
from rtl.control.registers import CoreRegisters
from rtl.control.semaphores import SemaphoreConfig, SemaphoreUnit
from rtl.control.sequencer import Sequencer, SequencerConfig
from rtl.interfaces import BurstReadSignature, CoreControlSignature, EngineSignature, IssueLayout
from rtl.lib.queue import Queue, QueueConfig
from rtl.lib.stream_arbiter import StreamArbiter, StreamArbiterConfig
from rtl.tiles import TileLibrary

BLOCKS = ("tensor", "vector", "scalar", "gpsimd", "dma")
"""What instructions are issued to, in the order in which their errors win."""
DMA_PENDING = 16


class ControlUnit(wiring.Component):
    """Members
    -------
    control: host side. fetch0 ...: instruction reads, one an engine. tensor, vector, scalar, gpsimd, dma: what instructions are issued to.
    columns: a moving column entered the array. chip_id: this chip's number.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {f"fetch{e.value}": Out(BurstReadSignature()) for e in Engine}
        ports |= {name: In(EngineSignature()) for name in BLOCKS}
        super().__init__(
            {**ports, "control": Out(CoreControlSignature()), "columns": In(1), "chip_id": In(16)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        blocks = {name: getattr(self, name) for name in BLOCKS}
        m.submodules.registers = regs = self.tiles.place(CoreRegisters, cfg)
        m.submodules.semaphores = sems = self.tiles.place(
            SemaphoreUnit,
            SemaphoreConfig(
                count=cfg.core.semaphores, sources=len(Engine) + len(BLOCKS) + 1, waiters=len(Engine)
            ),
        )
        m.submodules.errors = errors = self.tiles.place(
            ErrorUnit, ErrorConfig(sources=len(Engine) + len(BLOCKS), waiters=len(Engine))
        )
        m.submodules.dma_arbiter = dma_arbiter = self.tiles.place(
            StreamArbiter, StreamArbiterConfig(ports=len(Engine), width=IssueLayout().size)
        )
        connect(m, flipped(self.control), regs.control)
        fetches, sequencers = [], []
        for e in Engine:
            fetch = self.tiles.place(
                InstructionFetch,
                FetchConfig(
                    prefetch=cfg.core.prefetch, keep=cfg.core.loop_buffer, memory_bytes=cfg.memory.bytes
                ),
            )
            seq = self.tiles.place(Sequencer, SequencerConfig(engine=e, semaphores=cfg.core.semaphores))
            m.submodules[f"fetch{e.value}"], m.submodules[f"sequencer{e.value}"] = fetch, seq
            fetches.append(fetch)
            sequencers.append(seq)
            connect(m, fetch.read, flipped(getattr(self, f"fetch{e.value}")))
            connect(m, fetch.out, seq.fetched)
            connect(m, seq.update, getattr(sems, f"update{e.value}"))
            stop = regs.clear | errors.failed
            m.d.comb += [
                fetch.start.eq(regs.start[e]),
                fetch.address.eq(regs.program[e]),
                fetch.stop.eq(stop | seq.halted),
                fetch.jump.eq(seq.jump),
                fetch.jump_to.eq(seq.jump_to),
                fetch.chip_id.eq(self.chip_id),
                seq.start.eq(regs.start[e]),
                seq.stop.eq(stop),
                seq.address.eq(regs.program[e]),
                getattr(sems, f"wait{e.value}_sem").eq(seq.wait_sem),
                seq.wait_value.eq(getattr(sems, f"wait{e.value}_value")),
                regs.running[e].eq(seq.running),
                regs.index[e].eq(seq.index),
                errors.waiting[e].eq(seq.waiting | seq.spinning),
                getattr(errors, f"index{e.value}").eq(seq.index),
                getattr(errors, f"error{e.value}_valid").eq(seq.error_valid),
                getattr(errors, f"error{e.value}").eq(seq.error),
                *self._stream(seq.dma, getattr(dma_arbiter, f"i{e.value}")),
            ]
        for n, (name, block) in enumerate(blocks.items()):
            if name != "dma":
                connect(m, flipped(block.update), getattr(sems, f"update{len(Engine) + n}"))
            m.d.comb += [
                getattr(errors, f"error{len(Engine) + n}_valid").eq(block.error_valid),
                getattr(errors, f"error{len(Engine) + n}").eq(block.error),
                block.clear.eq(regs.clear),
            ]
            if name != "dma":
                seq = sequencers[Engine[name.upper()]]
                m.d.comb += seq.engine_done.eq(block.update.valid & block.update.ready)
                connect(m, seq.engine, flipped(block.issue))
        self._dma(
            m, regs, sequencers, dma_arbiter, getattr(sems, f"update{len(Engine) + BLOCKS.index('dma')}")
        )
        connect(m, regs.update, getattr(sems, f"update{len(Engine) + len(BLOCKS)}"))

        idle_sequencers = Cat([s.running & ~s.waiting & ~s.spinning for s in sequencers]) == 0
        engines_busy = Cat([b.busy for b in blocks.values()]).any()
        busy = {e: self.sync_busy if e == Engine.SYNC else getattr(self, e.name.lower()).busy for e in Engine}
        m.d.comb += [
            errors.limit.eq(regs.watchdog),
            errors.clear.eq(regs.clear),
            errors.progress.eq(engines_busy | sems.updated | ~idle_sequencers),
            regs.failed.eq(errors.failed),
            regs.first.eq(errors.first),
            regs.dma_busy.eq(self.dma.busy),
            regs.busy.eq(engines_busy | Cat([~f.idle for f in fetches]).any()),
            sems.clear.eq(regs.clear_semaphores),
            sems.read_sem.eq(regs.sem),
            regs.sem_value.eq(sems.read_value),
            regs.count.eq(Cat(self.columns, self.dma.busy, *(busy[e] for e in Engine))),
        ]
        return m

    @staticmethod
    def _stream(source: Any, target: Any) -> list[Any]:
        """Connect streams whose payloads have the same bits but not the same shape."""
        return [
            target.valid.eq(source.valid),
            target.payload.eq(source.payload),
            source.ready.eq(target.ready),
        ]

    def _dma(self, m: Module, regs: Any, sequencers: list[Any], arbiter: Any, target: Any) -> None:
        """One DMA for all streams: remember whose instructions it holds; they end in order."""
        bits = (len(Engine) - 1).bit_length()
        m.submodules.dma_owners = owners = self.tiles.place(Queue, QueueConfig(width=bits, depth=DMA_PENDING))
        issue, update = self.dma.issue, self.dma.update
        served = Signal()
        m.d.comb += [
            issue.valid.eq(arbiter.o.valid & owners.i.ready),
            issue.payload.as_value().eq(arbiter.o.payload),
            arbiter.o.ready.eq(issue.ready & owners.i.ready),
            owners.i.valid.eq(issue.valid & issue.ready),
            owners.i.payload.eq(arbiter.source),
            target.valid.eq(update.valid & owners.o.valid),
            target.payload.eq(update.payload),
            update.ready.eq(target.ready & owners.o.valid),
            served.eq(update.valid & update.ready),
            owners.o.ready.eq(served),
            owners.clear.eq(regs.clear),
        ]
        for e, seq in zip(Engine, sequencers, strict=True):
            m.d.comb += seq.dma_done.eq(served & (owners.o.payload == e.value))
        self.sync_busy = Signal()
        left = Signal(range(DMA_PENDING + 1))
        sync = Engine.SYNC.value
        m.d.sync += left.eq(
            left + (owners.i.valid & (arbiter.source == sync)) - (served & (owners.o.payload == sync))
        )
        with m.If(regs.clear):
            m.d.sync += left.eq(0)
        # a DMA that ended in an error gives no update: what it leaves in `left` until the clear is not busy
        m.d.comb += self.sync_busy.eq((left != 0) & self.dma.busy)
