"""Scalar engine: functions of elements, and their sums."""

from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from models.config import ChipConfig
from models.functions import SLOPED
from models.isa import Engine, ErrorCode, Flag, Space
from models.microcode import OPERANDS
from rtl.access.reader import LaneReader, LaneReaderConfig
from rtl.access.writer import LaneWriter, LaneWriterConfig
from rtl.fp import add, encode
from rtl.interfaces import (
    EngineSignature,
    LaneReadSignature,
    LaneWriteSignature,
    lanes_layout,
    psum_addr_bits,
    sbuf_addr_bits,
)
from rtl.lib.element import log2_bytes
from rtl.lib.queue import Queue, QueueConfig
from rtl.scalar.front import ACCUMULATE, BIAS, FRESH, NEGATE, CheckedLayout, ScalarFront
from rtl.scalar.lane import LATENCY, SLOTS, WRITE
from rtl.scalar.lanes import GROUP, ScalarLanes, ScalarLanesConfig
from rtl.scalar.sequencer import MicroSequencer, MicroSequencerConfig
from rtl.scalar.sums import SumControl, SumsConfig
from rtl.scalar.wide import from_fp32
from rtl.tiles import TileLibrary

RESULTS = 2 * SLOTS
"""Results on their way through the lanes or waiting to be written."""
MINUS_ZERO = 0x80000000
assert add.LATENCY <= encode.LATENCY, "sums are made when results are written"


class ScalarEngine(wiring.Component):
    """Ports: ctl (EngineSignature); sbuf, psum (lane reads); sbuf_w, psum_w (lane writes).

    One instruction after the other: the next one starts when all of the last one's writes have been accepted, and its update follows
    that. Elements are taken SLOTS at a time; they are read before the same element is written, so in place works. The accumulators are +0 after
    reset and after a clear.

    Errors: ILLEGAL_FIELD before anything is done; SBUF_RANGE or PSUM_RANGE at the first bad element that is met, when earlier ones may have
    been written. Nothing is accepted from the cycle after `error_valid` on until `clear`; what was accepted before is forgotten.

    Speed: SLOTS elements of every lane in SLOTS * (1 + the function's steps) cycles, about 30 cycles an instruction beside that; a READ_ACCUMULATOR takes about 30.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        p = config.partitions
        sbuf, psum = sbuf_addr_bits(config), psum_addr_bits(config)
        super().__init__(
            {
                "ctl": Out(EngineSignature()),
                "sbuf": Out(LaneReadSignature(sbuf, p)),
                "psum": Out(LaneReadSignature(psum, p)),
                "sbuf_w": Out(LaneWriteSignature(sbuf, p)),
                "psum_w": Out(LaneWriteSignature(psum, p)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        shape = {
            "partitions": cfg.partitions,
            "sbuf_addr_bits": sbuf_addr_bits(cfg),
            "psum_addr_bits": psum_addr_bits(cfg),
        }
        m.submodules.front = front = self.tiles.place(ScalarFront, cfg)
        m.submodules.reader = reader = self.tiles.place(LaneReader, LaneReaderConfig(**shape))
        m.submodules.writer = writer = self.tiles.place(LaneWriter, LaneWriterConfig(**shape))
        m.submodules.sequencer = sequencer = self.tiles.place(MicroSequencer, MicroSequencerConfig())
        for unit, sbuf, psum in ((reader, self.sbuf, self.psum), (writer, self.sbuf_w, self.psum_w)):
            connect(m, unit.sbuf, flipped(sbuf))
            connect(m, unit.psum, flipped(psum))
        connect(m, flipped(self.ctl.issue), front.issue)

        flush, dead, idle, start, read, done = (
            Signal(name=n) for n in ("flush", "dead", "idle", "start", "read", "done")
        )
        now = Signal(CheckedLayout())
        bias = Signal(lanes_layout(cfg.partitions), reset_less=True)
        checked = front.checked.payload
        ahead, instr = checked.issue.instr, now.issue.instr
        # writer.idle: after a clear, its last write may still wait for the memory; nothing may read past it
        free = reader.start.ready & reader.idle & writer.start.ready & writer.idle & sequencer.idle
        with m.FSM() as fsm:
            reading_bias = fsm.ongoing("BIAS")
            m.d.comb += [
                idle.eq(fsm.ongoing("IDLE")),
                start.eq(idle & front.checked.valid & checked.legal & free & ~dead & ~flush),
                self.ctl.update.valid.eq(fsm.ongoing("RUN") & done & ~flush),
                sequencer.start.eq(read & ~now.recall),
            ]
            with m.State("IDLE"):
                with m.If(start):
                    m.d.sync += [now.eq(checked), done.eq(0)]
                    m.next = "READ"
                    with m.If(ahead.flags[BIAS]):
                        m.next = "BIAS"
            with m.State("BIAS"):
                with m.If(reader.out.valid):
                    m.d.sync += bias.eq(reader.out.payload.data)
                    m.next = "READ"
                with m.If(flush):
                    m.next = "IDLE"
            with m.State("READ"):
                m.d.comb += read.eq(reader.start.ready & ~flush)
                with m.If(read):
                    m.next = "RUN"
                with m.If(flush):
                    m.next = "IDLE"
            with m.State("RUN"):
                with m.If(writer.done):
                    m.d.sync += done.eq(1)
                with m.If(flush | (self.ctl.update.valid & self.ctl.update.ready)):
                    m.next = "IDLE"
        source = Mux(read, instr.src0, ahead.src1)
        m.d.comb += [
            front.checked.ready.eq(start),
            reader.start.valid.eq((start & ahead.flags[BIAS]) | (read & ~now.recall)),
            reader.start.payload.ap.eq(source),
            reader.start.payload.size.eq(
                Mux(read, log2_bytes(instr.src0.dtype), log2_bytes(ahead.src1.dtype))
            ),
            # an empty destination is done in the cycle after its start, so it starts when its end is looked for
            writer.start.valid.eq(read),
            writer.start.payload.ap.eq(instr.dst),
            writer.start.payload.size.eq(log2_bytes(instr.dst.dtype)),
            writer.start.payload.parts.eq(instr.parts),
            sequencer.function.eq(instr.op0),
            sequencer.count.eq(now.count),
            sequencer.parameter.eq(from_fp32(m, "parameter", instr.imm1)),
            self.ctl.update.payload.mode.eq(instr.update_mode),
            self.ctl.update.payload.sem.eq(instr.update_sem),
            self.ctl.update.payload.value.eq(instr.update_value),
            *(unit.clear.eq(flush) for unit in (reader, writer, sequencer)),
            self.ctl.busy.eq(~front.idle | ~idle | ~reader.idle | ~writer.idle),
        ]
        m.submodules.sums = sums = self.tiles.place(SumControl, SumsConfig())
        m.d.comb += [
            sums.start.eq(read),
            sums.fresh.eq(instr.flags[FRESH]),
            sums.on.eq(instr.flags[ACCUMULATE]),
            sums.read.eq(read & now.recall),
            sums.negate.eq(instr.flags[NEGATE]),
            sums.clear.eq(self.ctl.clear),
            sums.forget.eq(flush),
        ]
        self._lanes(m, now, reader, writer, sequencer, bias, reading_bias, flush, sums)
        self._faults(m, front, now, reader, writer, idle, flush, dead)
        return m

    def _lanes(
        self,
        m: Module,
        now: Any,
        reader: Any,
        writer: Any,
        sequencer: Any,
        bias: Any,
        reading_bias: Value,
        flush: Signal,
        sums: Any,
    ) -> None:
        """Elements into the lanes while there is room for their results."""
        p = self.config.partitions
        m.submodules.results = results = self.tiles.place(Queue, QueueConfig(width=32 * p, depth=RESULTS))
        instr = now.issue.instr
        credit, taken = Signal(range(RESULTS + 1), init=RESULTS), Signal()
        under_way = Signal(LATENCY)
        m.d.comb += [
            sequencer.ready.eq(reader.out.valid & (credit != 0) & ~reading_bias),
            reader.out.ready.eq(sequencer.take | reading_bias),
            taken.eq(results.o.valid & results.o.ready),
        ]
        m.d.sync += [
            credit.eq(credit - (sequencer.take | sums.read) + taken),
            # what the accumulators show takes a result's place from its FP32 value on
            under_way.eq((under_way << 1) | sequencer.last | (sums.o.show << WRITE)),
        ]
        with m.If(flush):
            m.d.sync += [credit.eq(RESULTS), under_way.eq(0)]
        m.d.comb += sums.enters.eq(under_way[WRITE])
        saturate = Flag.SATURATE.bit_length() - 1
        factor = from_fp32(m, "factor", instr.imm0)
        # functions whose parameter is imm1 have no other bias than src1's
        sloped = Cat(instr.op0 == f.value for f in SLOPED).any()
        outs: list[Value] = []
        for n in range(p // GROUP):
            m.submodules[f"lanes{n}"] = lanes = self.tiles.place(ScalarLanes, ScalarLanesConfig())
            own = slice(32 * GROUP * n, 32 * GROUP * (n + 1))
            m.d.comb += [
                lanes.step.eq(sequencer.step),
                lanes.raw.eq(reader.out.payload.data.as_value()[own]),
                lanes.dtype.eq(instr.src0.dtype),
                lanes.scale.eq(factor),
                lanes.own_bias.eq(instr.flags[BIAS]),
                lanes.bias.eq(Mux(sloped, MINUS_ZERO, instr.imm1)),
                lanes.biases.eq(bias.as_value()[own]),
                lanes.o_dtype.eq(instr.dst.dtype),
                lanes.saturate.eq(instr.flags[saturate]),
                lanes.sums.eq(sums.o),
                lanes.mine.eq(Cat((instr.parts > GROUP * n + i) | self.ctl.clear for i in range(GROUP))),
            ]
            for name in OPERANDS:
                port = f"constant_{name}"
                m.d.comb += getattr(lanes, port).eq(getattr(sequencer, port))
            outs.append(lanes.o)
        m.d.comb += [
            results.clear.eq(flush),
            results.i.valid.eq(under_way[-1]),
            results.i.payload.eq(Cat(outs)),
            writer.data.valid.eq(results.o.valid),
            writer.data.payload.as_value().eq(results.o.payload),
            results.o.ready.eq(writer.data.ready),
        ]

    def _faults(
        self,
        m: Module,
        front: Any,
        now: Any,
        reader: Any,
        writer: Any,
        idle: Signal,
        flush: Signal,
        dead: Signal,
    ) -> None:
        """The first fault: report it, forget what is under way, and stay dead until `clear`."""
        checked, instr = front.checked, now.issue.instr
        bias_bad = Signal()

        def range_code(space: Value) -> Value:
            return Mux(space == Space.PSUM, ErrorCode.PSUM_RANGE.value, ErrorCode.SBUF_RANGE.value)

        with m.If(reader.start.valid & reader.start.ready):
            m.d.sync += bias_bad.eq(idle)
        illegal = checked.valid & ~checked.payload.legal & idle
        source = Mux(bias_bad, instr.src1.space, instr.src0.space)
        faults: list[tuple[Value, Value, Value, Value]] = [
            (illegal, C(ErrorCode.ILLEGAL_FIELD.value, 8), checked.payload.issue.index, C(0, 32)),
            (writer.error_valid, range_code(instr.dst.space), now.issue.index, writer.error_addr),
            (reader.error_valid, range_code(source), now.issue.index, reader.error_addr),
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
                    error.engine.eq(Engine.SCALAR.value),
                    error.index.eq(index),
                    error.addr.eq(addr),
                ]
        m.d.sync += flush_next.eq(valid)
        with m.If(valid):
            m.d.sync += dead.eq(1)
        with m.If(self.ctl.clear):
            m.d.sync += dead.eq(0)
