"""GpSimd engine: numbers of elements, masks made from them, gathers, reductions across partitions."""

from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from models.config import ChipConfig
from models.fp import IDENTITY
from models.gpsimd import REDUCING
from models.isa import Engine, ErrorCode, Flag
from rtl.access.reader import LaneReader, LaneReaderConfig
from rtl.access.share import LaneReadShare, LaneReadShareConfig
from rtl.access.writer import LaneWriter, LaneWriterConfig
from rtl.fp import encode
from rtl.gpsimd.affine import AffineWalker
from rtl.gpsimd.front import CheckedLayout, GpsimdFront
from rtl.gpsimd.gather import GatherControl
from rtl.gpsimd.lane import LATENCY, VALUE_LATENCY, CatchLayout, GpsimdLane, HeldLayout
from rtl.gpsimd.tree import PACE, ReduceTree, TreeConfig
from rtl.interfaces import (
    EngineSignature,
    LaneReadSignature,
    LaneWriteSignature,
    lanes_layout,
    sbuf_addr_bits,
)
from rtl.lib.element import log2_bytes
from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary

RESULTS = 24
"""Results on their way or waiting to be written: enough for a PARTITION_REDUCE's latency at its pace, and for the others'."""


class GpsimdEngine(wiring.Component):
    """Ports: ctl (EngineSignature); sbuf (lane read), sbuf_w (lane write).

    One instruction after the other: the next one starts when all of the last one's writes have been accepted, and its update follows
    that. IOTA, AFFINE_SELECT and PARTITION_REDUCE read elements before the same element is written, so in place works; LOCAL_GATHER reads
    its source again and again: its destination may lie on neither of its sources.

    Errors: ILLEGAL_FIELD before anything is done; SBUF_RANGE at the first bad element that is met, INDEX_RANGE at the first bad index (element
    by element, in each the lowest lane first), when earlier elements may have been written. Nothing is accepted from the cycle after
    `error_valid` on until `clear`; what was accepted before is forgotten.

    Speed: one element of every lane a cycle; PARTITION_REDUCE one in PACE cycles; LOCAL_GATHER walks over its source once for eight elements.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        bits, p = sbuf_addr_bits(config), config.partitions
        super().__init__(
            {
                "ctl": Out(EngineSignature()),
                "sbuf": Out(LaneReadSignature(bits, p)),
                "sbuf_w": Out(LaneWriteSignature(bits, p)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg, p = self.config, self.config.partitions
        shape = {"partitions": p, "sbuf_addr_bits": sbuf_addr_bits(cfg), "psum_addr_bits": None}
        m.submodules.front = front = self.tiles.place(GpsimdFront, cfg)
        m.submodules.share = share = self.tiles.place(
            LaneReadShare, LaneReadShareConfig(partitions=p, addr_bits=sbuf_addr_bits(cfg))
        )
        m.submodules.source = source = self.tiles.place(LaneReader, LaneReaderConfig(**shape))
        m.submodules.index = index = self.tiles.place(LaneReader, LaneReaderConfig(**shape))
        m.submodules.writer = writer = self.tiles.place(LaneWriter, LaneWriterConfig(**shape))
        # indices are read ahead while elements walk past: they take the cycles that those leave
        connect(m, source.sbuf, share.first)
        connect(m, index.sbuf, share.second)
        connect(m, share.o, flipped(self.sbuf))
        connect(m, writer.sbuf, flipped(self.sbuf_w))
        connect(m, flipped(self.ctl.issue), front.issue)
        m.submodules.gather = gather = self.tiles.place(GatherControl, None)

        flush, dead, idle, start, done = (Signal(name=n) for n in ("flush", "dead", "idle", "start", "done"))
        now = Signal(CheckedLayout())
        checked = front.checked.payload
        ahead, instr = checked.issue.instr, now.issue.instr
        # writer.idle: after a clear, its last write may still wait for the memory; nothing may read past it
        ready = [source.start.ready, index.start.ready, writer.start.ready, writer.idle]
        with m.FSM() as fsm:
            m.d.comb += [
                idle.eq(fsm.ongoing("IDLE")),
                start.eq(idle & front.checked.valid & checked.legal & Cat(ready).all() & ~dead & ~flush),
                self.ctl.update.valid.eq(~idle & done & ~flush),
            ]
            with m.State("IDLE"):
                with m.If(start):
                    m.d.sync += [now.eq(checked), done.eq(0)]
                    m.next = "RUN"
            with m.State("RUN"):
                with m.If(writer.done):
                    m.d.sync += done.eq(1)
                with m.If(flush | (self.ctl.update.valid & self.ctl.update.ready)):
                    m.next = "IDLE"
        src0 = Mux(idle, ahead.src0.as_value(), instr.src0.as_value())
        m.d.comb += [
            front.checked.ready.eq(start),
            source.start.valid.eq((start & (checked.choose | checked.reduce)) | gather.walk_valid),
            source.start.payload.ap.as_value().eq(src0),
            source.start.payload.size.eq(
                Mux(idle, log2_bytes(ahead.src0.dtype), log2_bytes(instr.src0.dtype))
            ),
            gather.walk_ready.eq(source.start.ready),
            index.start.valid.eq(start & checked.gather),
            index.start.payload.ap.eq(ahead.src1),
            index.start.payload.size.eq(log2_bytes(ahead.src1.dtype)),
            gather.start.eq(start & checked.gather),
            gather.count.eq(checked.count),
            writer.start.valid.eq(start),
            writer.start.payload.ap.eq(ahead.dst),
            writer.start.payload.size.eq(log2_bytes(ahead.dst.dtype)),
            writer.start.payload.parts.eq(Mux(checked.reduce, 1, ahead.parts)),
            self.ctl.update.payload.mode.eq(instr.update_mode),
            self.ctl.update.payload.sem.eq(instr.update_sem),
            self.ctl.update.payload.value.eq(instr.update_value),
            *(unit.clear.eq(flush) for unit in (source, index, writer, gather)),
            self.ctl.busy.eq(~front.idle | ~idle | ~source.idle | ~index.idle | ~writer.idle),
        ]
        bad, bad_index = self._lanes(m, front, now, source, index, gather, writer, start, flush)
        self._faults(m, front, now, (source, index, writer), bad, bad_index, idle, flush, dead)
        return m

    def _lanes(
        self,
        m: Module,
        front: Any,
        now: Any,
        source: Any,
        index: Any,
        gather: Any,
        writer: Any,
        start: Signal,
        flush: Signal,
    ) -> tuple[Value, Value]:
        """Elements into the lanes while there is room for their results; returns whether an index was bad, and the first that was."""
        p = self.config.partitions
        m.submodules.results = results = self.tiles.place(Queue, QueueConfig(width=32 * p, depth=RESULTS))
        m.submodules.affine = numbers = self.tiles.place(AffineWalker, None)
        instr, checked = now.issue.instr, front.checked.payload
        offsets, settled = self._offsets(m, instr.imm0, start)
        left, pace = Signal(len(checked.count)), Signal(range(PACE))
        fire, enters, room, credit, taken = (
            Signal(name="fire"),
            Signal(name="enters"),
            Signal(name="room"),
            Signal(range(RESULTS + 1), init=RESULTS, name="credit"),
            Signal(name="taken"),
        )
        there = Mux(now.iota, left != 0, source.out.valid & (now.choose | now.reduce))
        m.d.comb += [
            room.eq((credit != 0) & ~flush),
            fire.eq(there & room & (pace == 0) & (settled | now.reduce)),
            enters.eq(fire | gather.get),
            source.out.ready.eq((fire & ~now.iota) | gather.element_ready),
            index.out.ready.eq(gather.index_ready),
            gather.index_valid.eq(index.out.valid),
            gather.element_valid.eq(source.out.valid),
            gather.element_last.eq(source.out.payload.last),
            gather.room.eq(room),
            taken.eq(results.o.valid & results.o.ready),
            numbers.start.eq(start),
            numbers.ap.eq(checked.issue.instr.src1),
            numbers.next.eq(fire),
        ]
        under_way = Signal(LATENCY)
        m.d.sync += [
            credit.eq(credit - enters + taken),
            # what has left is not to be seen again where the next instruction's results take another way
            under_way.eq(Mux(start, 0, (under_way << 1) | enters)),
        ]
        with m.If(start):
            m.d.sync += [left.eq(Mux(checked.iota, checked.count, 0)), pace.eq(0)]
        with m.Else():
            with m.If(fire & now.iota):
                m.d.sync += left.eq(left - 1)
            with m.If(fire & now.reduce):
                m.d.sync += pace.eq(PACE - 1)
            with m.Elif(pace != 0):
                m.d.sync += pace.eq(pace - 1)
        with m.If(flush):
            m.d.sync += [credit.eq(RESULTS), under_way.eq(0), left.eq(0)]

        held, catch = Signal(HeldLayout()), Signal(CatchLayout())
        m.d.comb += [
            held.iota.eq(now.iota),
            held.choose.eq(now.choose),
            held.gather.eq(now.gather),
            held.copy.eq(now.copy),
            held.op.eq(instr.op0),
            held.rest.eq(instr.imm1),
            held.dtype.eq(instr.src0.dtype),
            held.o_dtype.eq(instr.dst.dtype),
            held.saturate.eq(instr.flags[Flag.SATURATE.bit_length() - 1]),
            held.limit.eq(now.limit),
            catch.put.eq(gather.put),
            catch.take.eq(gather.take),
            catch.slot.eq(gather.slot),
            catch.number.eq(gather.number),
        ]
        lanes = []
        for i in range(p):
            m.submodules[f"lane{i}"] = lane = self.tiles.place(GpsimdLane, None)
            m.d.comb += [
                lane.held.eq(held),
                lane.catch.eq(catch),
                lane.raw.eq(source.out.payload.data[i]),
                lane.number.eq(numbers.value),
                lane.offset.eq(offsets[i]),
                lane.index.eq(index.out.payload.data[i]),
            ]
            lanes.append(lane)
        total, total_valid = self._tree(m, now, lanes, under_way[VALUE_LATENCY - 1] & now.reduce, flush)
        outs = Cat(lane.o for lane in lanes)
        m.d.comb += [
            results.clear.eq(flush),
            results.i.valid.eq(Mux(now.reduce, total_valid, under_way[-1])),
            results.i.payload.eq(Mux(now.reduce, total, outs)),
            writer.data.valid.eq(results.o.valid),
            writer.data.payload.as_value().eq(results.o.payload),
            results.o.ready.eq(writer.data.ready),
        ]
        bad = [lane.bad & (instr.parts > i) for i, lane in enumerate(lanes)]
        first: Value = C(0, 32)
        for lane, is_bad in reversed(list(zip(lanes, bad, strict=True))):
            first = Mux(is_bad, lane.seen, first)
        return Cat(bad).any(), first

    def _offsets(self, m: Module, multiplier: Value, start: Signal) -> tuple[list[Value], Value]:
        """Lane number times multiplier, from a tree of adders with registers: right once `settled`."""
        p = self.config.partitions
        offsets: list[Value] = [C(0, 32)]
        for i in range(1, p):
            offset = Signal(32, name=f"offset{i}", reset_less=True)
            m.d.sync += offset.eq((offsets[i // 2] << 1) + (multiplier if i & 1 else 0))
            offsets.append(offset)
        levels = (p - 1).bit_length()
        wait = Signal(range(levels + 1))
        with m.If(start):
            m.d.sync += wait.eq(levels)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        return offsets, wait == 0

    def _tree(
        self, m: Module, now: Any, lanes: list[Any], valid: Value, flush: Signal
    ) -> tuple[Value, Value]:
        """All lanes to one, those beyond `parts` as identities, and its cast."""
        p, instr = self.config.partitions, now.issue.instr
        m.submodules.tree = tree = self.tiles.place(ReduceTree, TreeConfig(lanes=p))
        m.submodules.encode = enc = self.tiles.place(encode.Encode, encode.EncodeConfig())
        identity = Signal(32)
        with m.Switch(instr.op0):
            for op in REDUCING:
                with m.Case(op.value):
                    m.d.comb += identity.eq(IDENTITY[op])
        under_way = Signal(encode.LATENCY)
        m.d.sync += under_way.eq(Mux(flush, 0, (under_way << 1) | tree.o_valid))
        data = Signal(lanes_layout(p))
        m.d.comb += [
            *(data[i].eq(Mux(instr.parts > i, lane.value, identity)) for i, lane in enumerate(lanes)),
            tree.valid.eq(valid),
            tree.data.eq(data),
            tree.op.eq(instr.op0),
            tree.clear.eq(flush),
            enc.x.eq(tree.o),
            enc.dtype.eq(instr.dst.dtype),
            enc.saturate.eq(instr.flags[Flag.SATURATE.bit_length() - 1]),
        ]
        return enc.raw, under_way[-1]

    def _faults(
        self,
        m: Module,
        front: Any,
        now: Any,
        units: tuple[Any, ...],
        bad: Value,
        bad_index: Value,
        idle: Signal,
        flush: Signal,
        dead: Signal,
    ) -> None:
        """The first fault: report it, forget what is under way, and stay dead until `clear`."""
        checked = front.checked
        illegal = checked.valid & ~checked.payload.legal & idle
        sbuf = C(ErrorCode.SBUF_RANGE.value, 8)
        faults: list[tuple[Value, Value, Value, Value]] = [
            (illegal, C(ErrorCode.ILLEGAL_FIELD.value, 8), checked.payload.issue.index, C(0, 32)),
            *((unit.error_valid, sbuf, now.issue.index, unit.error_addr) for unit in units),
            (bad & ~idle, C(ErrorCode.INDEX_RANGE.value, 8), now.issue.index, bad_index),
        ]
        valid, flush_next, error = Signal(), Signal(), self.ctl.error
        m.d.comb += [
            valid.eq(Cat([f[0] for f in faults]).any() & ~dead & ~self.ctl.clear),
            self.ctl.error_valid.eq(valid),
            flush.eq(flush_next | self.ctl.clear),
            front.clear.eq(flush | dead),
        ]
        for n, (fault, code, index, addr) in enumerate(faults):
            with m.If(fault) if n == 0 else m.Elif(fault):
                m.d.comb += [
                    error.code.eq(code),
                    error.engine.eq(Engine.GPSIMD.value),
                    error.index.eq(index),
                    error.addr.eq(addr),
                ]
        m.d.sync += flush_next.eq(valid)
        with m.If(valid):
            m.d.sync += dead.eq(1)
        with m.If(self.ctl.clear):
            m.d.sync += dead.eq(0)
