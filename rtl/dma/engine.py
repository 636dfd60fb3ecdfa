"""DMA engine: one instruction after the other; its chunks run through source, aligner and target at the same time."""

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from models.config import ChipConfig
from models.isa import ErrorCode
from rtl.dma.align import AlignConfig, Aligner, AlignLayout
from rtl.dma.chunks import ChunkGenerator
from rtl.dma.source import DmaSource, SourceLayout
from rtl.dma.target import DmaTarget, TargetLayout
from rtl.interfaces import (
    BurstReadSignature,
    BurstWriteSignature,
    EngineSignature,
    IssueLayout,
    RowReadSignature,
    RowWriteSignature,
    psum_addr_bits,
    sbuf_addr_bits,
)
from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary

CHUNKS = 4
"""Chunks that source, aligner and target may be apart."""


class DmaEngine(wiring.Component):
    """Ports: ctl (EngineSignature), core_index, chip_id, read, write (bursts), sbuf_read, psum_read, sbuf_write, psum_write (rows).

    The next instruction starts when the last byte of the one before has been written and its response is there: it sees
    everything that earlier ones wrote. Source and target rows of one instruction that overlap are not defined.

    Errors: DMA_RANGE at the first row that leaves its memory, when the rows before it are written; BUS_ERROR with the row's address, its
    other bytes undefined, later rows mostly not written. An error or `clear` lets the bursts under way run out with all strobes low; `busy`
    stays high until then.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        sbuf, psum, p = sbuf_addr_bits(config), psum_addr_bits(config), config.partitions
        super().__init__(
            {
                "ctl": Out(EngineSignature()),
                "core_index": In(8),
                "chip_id": In(16),
                "read": Out(BurstReadSignature()),
                "write": Out(BurstWriteSignature()),
                "sbuf_read": Out(RowReadSignature(sbuf, p)),
                "psum_read": Out(RowReadSignature(psum, p)),
                "sbuf_write": Out(RowWriteSignature(sbuf, p)),
                "psum_write": Out(RowWriteSignature(psum, p)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.chunks = chunks = self.tiles.place(ChunkGenerator, self.config)
        m.submodules.source = source = self.tiles.place(DmaSource, self.config)
        m.submodules.align = align = self.tiles.place(Aligner, AlignConfig())
        m.submodules.target = target = self.tiles.place(DmaTarget, self.config)
        connect(m, source.read, flipped(self.read))
        connect(m, source.sbuf, flipped(self.sbuf_read))
        connect(m, source.psum, flipped(self.psum_read))
        connect(m, target.write, flipped(self.write))
        connect(m, target.sbuf, flipped(self.sbuf_write))
        connect(m, target.psum, flipped(self.psum_write))
        connect(m, source.beat, align.beat)
        connect(m, align.out, target.beat)
        m.d.comb += [chunks.core_index.eq(self.core_index), chunks.chip_id.eq(self.chip_id)]
        empty = self._spread(m, chunks, source, align, target)

        issue, update, error = self.ctl.issue, self.ctl.update, self.ctl.error
        now = Signal(IssueLayout())
        fault, fault_addr = Signal(), Signal(64)
        stop, dead, running, quiet = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            quiet.eq(chunks.done & empty & source.quiet & target.quiet),
            chunks.stop.eq(stop),
            align.mute.eq(stop),
            chunks.instr.eq(issue.payload.instr),
            update.payload.mode.eq(now.instr.update_mode),
            update.payload.sem.eq(now.instr.update_sem),
            update.payload.value.eq(now.instr.update_value),
            error.engine.eq(now.engine),
            error.index.eq(now.index),
            self.ctl.busy.eq(running),
        ]
        bus = align.error_valid | target.error_valid
        with m.If(bus & ~fault & ~stop):
            m.d.sync += [fault.eq(1), fault_addr.eq(align.error_row)]
            with m.If(~align.error_valid):
                m.d.sync += fault_addr.eq(target.error_row)
        with m.If(bus):
            m.d.sync += stop.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += issue.ready.eq(~dead & ~self.ctl.clear)
                with m.If(issue.valid & issue.ready):
                    m.d.comb += chunks.start.eq(1)
                    m.d.sync += [now.eq(issue.payload), fault.eq(0), stop.eq(0), running.eq(1)]
                    m.next = "RUN"
            with m.State("RUN"):
                cancelled = Signal()
                with m.If(self.ctl.clear):
                    m.d.sync += [stop.eq(1), cancelled.eq(1)]
                with m.Elif(quiet & ~bus):
                    m.next = "END"
                    with m.If(cancelled):
                        m.d.sync += [cancelled.eq(0), running.eq(0)]
                        m.next = "IDLE"
            with m.State("END"):
                failed = fault | chunks.bad
                m.d.comb += [
                    error.code.eq(ErrorCode.DMA_RANGE),
                    error.addr.eq(chunks.bad_addr),
                    self.ctl.error_valid.eq(failed & ~self.ctl.clear),
                    update.valid.eq(~failed & ~self.ctl.clear),
                ]
                with m.If(fault):
                    m.d.comb += [error.code.eq(ErrorCode.BUS_ERROR), error.addr.eq(fault_addr)]
                with m.If(failed | update.ready | self.ctl.clear):
                    m.d.sync += [running.eq(0), dead.eq(failed)]
                    m.next = "IDLE"
        with m.If(self.ctl.clear):
            m.d.sync += dead.eq(0)
        return m

    def _spread(self, m: Module, chunks: Any, source: Any, align: Any, target: Any) -> Any:
        """A chunk goes to all three at once, each at its own pace; returns whether none waits."""
        out = chunks.out.payload
        from_layout, align_layout, to_layout = SourceLayout(), AlignLayout(), TargetLayout()
        for_source, for_align, for_target = Signal(from_layout), Signal(align_layout), Signal(to_layout)
        m.d.comb += [
            for_source.place.eq(out.src),
            for_source.bytes.eq(out.bytes),
            for_align.src.eq(out.src.offset),
            for_align.dst.eq(out.dst.offset),
            for_align.bytes.eq(out.bytes),
            for_align.row.eq(out.src_row),
            for_target.place.eq(out.dst),
            for_target.bytes.eq(out.bytes),
            for_target.row.eq(out.dst_row),
        ]
        queues = []
        for name, value, unit in (
            ("for_source", for_source, source),
            ("for_align", for_align, align),
            ("for_target", for_target, target),
        ):
            bits = value.as_value()
            m.submodules[name] = queue = self.tiles.place(Queue, QueueConfig(width=len(bits), depth=CHUNKS))
            m.d.comb += [
                queue.i.payload.eq(bits),
                unit.chunk.valid.eq(queue.o.valid),
                unit.chunk.payload.as_value().eq(queue.o.payload),
                queue.o.ready.eq(unit.chunk.ready),
            ]
            queues.append(queue)
        ready = Cat([q.i.ready for q in queues]).all()
        m.d.comb += chunks.out.ready.eq(ready)
        for queue in queues:
            m.d.comb += queue.i.valid.eq(chunks.out.valid & ready)
        return Cat([q.level == 0 for q in queues]).all()
