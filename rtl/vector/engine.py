"""Vector engine: copies and casts, arithmetic element by element, reductions, fills."""

from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from models.config import ChipConfig
from models.formats import MX_ROWS, DType
from models.fp import IDENTITY
from models.isa import AluOp, Engine, ErrorCode, Flag, Space
from rtl.access.reader import LaneReader, LaneReaderConfig
from rtl.access.writer import LaneWriter, LaneWriterConfig
from rtl.fp import decode, divide, exponential
from rtl.interfaces import (
    ApLayout,
    EngineSignature,
    LaneReadSignature,
    LaneWriteSignature,
    lanes_layout,
    psum_addr_bits,
    sbuf_addr_bits,
)
from rtl.lib.delay import Delay, DelayConfig
from rtl.lib.element import log2_bytes
from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary
from rtl.vector.front import CheckedLayout, VectorFront
from rtl.vector.groups import ALU_LATENCY, TAG_BITS, GroupControl
from rtl.vector.lane import (
    DIVIDE_LATENCY,
    EXP_LATENCY,
    FP32_CODE,
    LATENCY,
    RANK_LATENCY,
    REDUCE_LATENCY,
    LaneConfig,
    SumLayout,
    VectorLane,
)
from rtl.vector.moments import MomentControl, lead_moments
from rtl.vector.quantize import SCALE_LATENCY, TURN_BITS, Quantizer, QuantizerConfig
from rtl.vector.shuffle import SHUFFLE_LATENCY, TRANSPOSE_LATENCY, Shuffle, ShuffleConfig, lead_moves
from rtl.vector.top8 import RankControl
from rtl.vector.xorwow import RandomConfig, RandomUnit, lead_random

RESULTS = 24
"""Results on their way through the lanes or waiting to be written."""


class VectorEngine(wiring.Component):
    """Ports: ctl (EngineSignature); sbuf0, sbuf1, psum0, psum1 (lane reads of operands 0 and 1); sbuf_w, psum_w (lane writes).

    One instruction after the other: the next one starts when all of the last one's writes have been accepted, and its update follows
    that. One element of every lane a cycle. Elements are read before the same element is written, so in place works; an instruction
    whose destination overlaps its sources in another order is not defined.

    Errors: ILLEGAL_FIELD before anything is done; SBUF_RANGE or PSUM_RANGE at the first bad element that is met, when earlier ones may have
    been written; where several patterns leave their memories it is the one that does so first in time. Nothing is accepted from the cycle
    after `error_valid` on until `clear`; what was accepted before is forgotten.

    Speed: beside one cycle for each element, 22 cycles an instruction where memories grant at once (a reduction 25, and its groups are
    filled up to a multiple of four elements; a scan takes five cycles for each element;
    eight given values and eight results of a list take a cycle each; a transposition gives its first element after a block).
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        p = config.partitions
        sbuf, psum = sbuf_addr_bits(config), psum_addr_bits(config)
        super().__init__(
            {
                "ctl": Out(EngineSignature()),
                "sbuf0": Out(LaneReadSignature(sbuf, p)),
                "sbuf1": Out(LaneReadSignature(sbuf, p)),
                "psum0": Out(LaneReadSignature(psum, p)),
                "psum1": Out(LaneReadSignature(psum, p)),
                "sbuf_w": Out(LaneWriteSignature(sbuf, p)),
                "psum_w": Out(LaneWriteSignature(psum, p)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg, p = self.config, self.config.partitions
        m.submodules.front = front = self.tiles.place(VectorFront, cfg)
        shape = {
            "partitions": p,
            "sbuf_addr_bits": sbuf_addr_bits(cfg),
            "psum_addr_bits": psum_addr_bits(cfg),
        }
        readers = []
        for i in range(2):
            m.submodules[f"reader{i}"] = reader = self.tiles.place(LaneReader, LaneReaderConfig(**shape))
            connect(m, reader.sbuf, flipped(getattr(self, f"sbuf{i}")))
            connect(m, reader.psum, flipped(getattr(self, f"psum{i}")))
            readers.append(reader)
        m.submodules.writer = writer = self.tiles.place(LaneWriter, LaneWriterConfig(**shape))
        connect(m, writer.sbuf, flipped(self.sbuf_w))
        connect(m, writer.psum, flipped(self.psum_w))
        connect(m, flipped(self.ctl.issue), front.issue)

        flush, dead, idle = Signal(), Signal(), Signal()
        now = Signal(CheckedLayout())
        start, have_scalar, done, late = Signal(), Signal(), Signal(), Signal()
        checked = front.checked.payload
        instr = checked.issue.instr
        # writer.idle: after a clear, its last write may still wait for the memory; nothing may read past it
        ready = [readers[0].start.ready, readers[1].start.ready, writer.start.ready, writer.idle]
        with m.FSM() as fsm:
            m.d.comb += [
                idle.eq(fsm.ongoing("IDLE")),
                start.eq(idle & front.checked.valid & checked.legal & Cat(ready).all() & ~dead & ~flush),
                self.ctl.update.valid.eq(~idle & done & (~now.scalar | have_scalar) & ~late & ~flush),
            ]
            with m.State("IDLE"):
                with m.If(start):
                    m.d.sync += [now.eq(checked), have_scalar.eq(0), done.eq(0)]
                    m.next = "RUN"
            with m.State("RUN"):
                with m.If(writer.done):
                    m.d.sync += done.eq(1)
                with m.If(flush | (self.ctl.update.valid & self.ctl.update.ready)):
                    m.next = "IDLE"
        m.submodules.random = rnd = self.tiles.place(RandomUnit, RandomConfig(partitions=p))
        m.submodules.moments = moments = self.tiles.place(MomentControl, None)
        source = Signal(ApLayout())
        m.d.comb += [
            source.eq(instr.src0),
            moments.ready.eq(readers[0].start.ready),
            front.checked.ready.eq(start),
            readers[0].start.valid.eq((start & ~checked.fill) | moments.again),
            readers[0].start.payload.ap.eq(source),
            readers[0].start.payload.size.eq(log2_bytes(source.dtype)),
            readers[1].start.valid.eq(start & (checked.pair | checked.scalar | checked.given)),
            readers[1].start.payload.ap.eq(instr.src1),
            readers[1].start.payload.size.eq(log2_bytes(instr.src1.dtype)),
            writer.start.valid.eq(start),
            writer.start.payload.ap.eq(instr.dst),
            writer.start.payload.size.eq(log2_bytes(instr.dst.dtype)),
            writer.start.payload.parts.eq(instr.parts),
            self.ctl.update.payload.mode.eq(now.issue.instr.update_mode),
            self.ctl.update.payload.sem.eq(now.issue.instr.update_sem),
            self.ctl.update.payload.value.eq(now.issue.instr.update_value),
            *(unit.clear.eq(flush) for unit in (*readers, writer)),
            self.ctl.busy.eq(~front.idle | ~idle | ~readers[0].idle | ~readers[1].idle | ~writer.idle),
        ]
        with m.If(moments.again):
            m.d.comb += source.eq(now.issue.instr.src0)
        # scales lie at an offset in the quadrants of the data that they belong to
        with m.If(checked.scale):
            m.d.comb += [
                writer.start.payload.ap.part.eq(instr.src0.part),
                writer.start.payload.parts.eq(p),
            ]
        with m.If(checked.pack):
            m.d.comb += readers[1].start.payload.ap.part.eq(instr.dst.part)
        m.submodules.groups = groups = self.tiles.place(GroupControl, None)
        left = Signal(len(checked.count))
        # states that are loaded or seeded are there before the update
        m.d.comb += [
            late.eq((now.load & (left != 0)) | (now.seed & rnd.busy)),
            rnd.start.eq(start & checked.seed),
        ]
        m.d.comb += [
            groups.start.eq(start),
            groups.group.eq(checked.group),
            groups.on.eq(now.reduce & ~idle),
            groups.scan.eq(now.scan & ~idle),
        ]
        with m.If(start):
            m.d.sync += left.eq(checked.count)
        self._lanes(
            m, now, readers, writer, have_scalar, flush, groups, moments, rnd, left, start, instr.imm0, idle
        )
        self._faults(m, front, now, readers, writer, idle, flush, dead)
        return m

    def _lanes(
        self,
        m: Module,
        now: Any,
        readers: list[Any],
        writer: Any,
        have_scalar: Signal,
        flush: Signal,
        groups: Any,
        moments: Any,
        rnd: Any,
        left: Signal,
        start: Signal,
        first_number: Value,
        idle: Signal,
    ) -> None:
        """Operands into the lanes while there is room for their results. `left`: elements that a fill has still to give."""
        p = self.config.partitions
        m.submodules.results = results = self.tiles.place(Queue, QueueConfig(width=33 * p, depth=RESULTS))
        instr = now.issue.instr
        scalar, high = (Signal(lanes_layout(p), name=n, reset_less=True) for n in ("scalar", "high"))
        have_low, pace = Signal(), Signal(range(divide.PACE))
        # of an MX block's four elements, which one enters; whether it is the last
        turn, four, ends = Signal(TURN_BITS), Signal(), Signal()
        first, second = readers[0].out, readers[1].out
        # fire: an element enters; enters: one that gives a result
        fire, enters, credit = Signal(), Signal(), Signal(range(RESULTS + 1), init=RESULTS)
        second_ok = Mux(now.pair, second.valid, ~now.scalar | have_scalar)
        taken = Signal()
        rank = self._ranking(m, now, readers, idle, start | flush)
        shape = ShuffleConfig(partitions=p, quadrant=self.config.quadrant)
        m.submodules.moves = moves = self.tiles.place(Shuffle, shape)
        lead_moves(m, moves, now, first, idle, start | flush)
        lead_moments(m, moments, now, idle, start | flush, fire, first.payload.last, (credit != 0) & ~flush)
        lead_random(m, rnd, now, self.ctl.clear, fire, first.payload.data)
        there = Mux(now.fill, left != 0, first.valid)
        one_each = ~now.listed & ~now.moments & ~now.load & ~now.transpose
        m.d.comb += [
            fire.eq(
                there
                & second_ok
                & (credit != 0)
                & (pace == 0)
                & ~flush
                & ~now.reduce
                & ~now.scan
                & rank.open
                & moments.open
                & rnd.open
            ),
            four.eq(now.scale | now.pack),
            ends.eq(~four | turn.all()),
            enters.eq((fire & ends & one_each) | groups.result | rank.result | moments.result | moves.result),
            rank.element.eq(fire),
            moves.element.eq(fire),
            *(unit.room.eq((credit != 0) & ~flush) for unit in (rank, moves)),
            first.ready.eq((fire | groups.take) & ~now.fill),
            second.ready.eq(
                Mux(now.pair, (fire & ends) | groups.take, now.scalar & ~have_scalar) | rank.load
            ),
            taken.eq(results.o.valid & results.o.ready),
        ]
        # one scalar, or the two bounds of a range, the first of which moves on
        with m.If(now.scalar & ~have_scalar & second.valid & second.ready):
            m.d.sync += [
                have_scalar.eq(~now.span | have_low),
                have_low.eq(1),
                high.eq(second.payload.data),
                scalar.eq(Mux(now.span, high.as_value(), second.payload.data.as_value())),
            ]
        with m.If(start):
            m.d.sync += turn.eq(0)
        with m.Elif(fire):
            m.d.sync += turn.eq(turn + 1)
        with m.If(start):
            m.d.sync += [have_low.eq(0), pace.eq(0)]
        with m.Elif(fire & now.divide):
            m.d.sync += pace.eq(divide.PACE - 1)
        with m.Elif(pace != 0):
            m.d.sync += pace.eq(pace - 1)
        with m.If(fire | (groups.take & now.fill)):
            m.d.sync += left.eq(left - 1)
        m.d.sync += credit.eq(credit - enters + taken)
        under_way = Signal(max(REDUCE_LATENCY, EXP_LATENCY, DIVIDE_LATENCY, RANK_LATENCY))
        # what has left is not to be seen again where the next instruction's results take longer
        m.d.sync += under_way.eq(Mux(start, 0, (under_way << 1) | enters))
        with m.If(flush):
            m.d.sync += [credit.eq(RESULTS), under_way.eq(0), left.eq(0)]
        imm = ~now.pair & ~now.scalar & ~now.given
        saturate, reverse0, negate = (f.bit_length() - 1 for f in (Flag.SATURATE, Flag.REVERSE0, Flag.NEGATE))
        m.d.comb += [
            groups.negate.eq(instr.flags[negate]),
            groups.op.eq(instr.op0),
            groups.valid.eq(Mux(now.fill, left != 0, first.valid & (~now.scan | second.valid)) & ~flush),
            groups.initial.eq(instr.imm0),
            groups.room.eq((credit != 0) & ~flush),
        ]
        sums = self._sums(m, now, start, under_way)
        number = Signal(32, reset_less=True)
        with m.If(start):
            m.d.sync += number.eq(first_number)
        with m.Elif(fire):
            m.d.sync += number.eq(number + 1)
        m.submodules.number = numbers = self.tiles.place(decode.Decode, decode.DecodeConfig())
        m.d.comb += [numbers.raw.eq(number), numbers.dtype.eq(DType.INT32.value)]
        mx, blank = self._quantizer(m, now, fire, turn, second.payload.data)
        moving = now.shuffle | now.transpose
        outs: list[Value] = []
        skips: list[Value] = []
        for i in range(p):
            m.submodules[f"lane{i}"] = lane = self.tiles.place(VectorLane, LaneConfig())
            operand = Mux(now.pack, mx.factor[i // MX_ROWS], second.payload.data[i])
            m.d.comb += [
                lane.a.eq(
                    Mux(
                        now.fill,
                        Mux(now.random, rnd.o[i], instr.imm0),
                        Mux(moving, moves.o[i], first.payload.data[i]),
                    )
                ),
                lane.b.eq(
                    Mux(imm, Mux(now.drop, rnd.keep[i], instr.imm0), Mux(now.scalar, scalar[i], operand))
                ),
                lane.c.eq(Mux(now.second | now.rank, instr.imm0, instr.imm1)),
                lane.second.eq(now.second),
                lane.reverse0.eq(instr.flags[reverse0] & ~now.choose & ~now.select),
                lane.flip.eq(instr.flags[reverse0]),
                lane.exponential.eq(now.exponential),
                lane.divide.eq(now.divide),
                lane.divide_start.eq(now.divide & under_way[decode.LATENCY - 1]),
                lane.select.eq(now.select),
                lane.within.eq(now.span),
                lane.recall.eq(now.recall),
                lane.mine.eq((instr.parts > i) | self.ctl.clear),
                lane.sums.eq(sums),
                lane.span.number.eq(numbers.o),
                lane.span.low.eq(scalar[i]),
                lane.span.high.eq(high[i]),
                lane.rank.eq(rank.control),
                lane.moments.eq(moments.control),
                lane.reverse1.eq(instr.flags[reverse0 + 1]),
                lane.a_dtype.eq(
                    Mux(now.fill, Mux(now.random, DType.UINT32.value, FP32_CODE), instr.src0.dtype)
                ),
                lane.b_dtype.eq(Mux(imm | now.pack, FP32_CODE, instr.src1.dtype)),
                lane.o_dtype.eq(instr.dst.dtype),
                lane.op0.eq(Mux(now.pack, AluOp.MUL.value, instr.op0)),
                lane.op1.eq(Mux(now.reduce, instr.op0, instr.op1)),
                lane.reduce.eq(groups.control),
                lane.saturate.eq(instr.flags[saturate]),
                lane.copy.eq(now.copy),
            ]
            m.d.comb += [
                mx.exps[i].eq(lane.exp),
                mx.raws[i].eq(Mux(blank[i // MX_ROWS], 0, lane.o)),
            ]
            outs.append(
                Mux(now.scale, mx.scale[i], Mux(now.pack, mx.word[i], Mux(now.drop & lane.zero, 0, lane.o)))
            )
            skips.append(
                Mux(now.scale, mx.skip[i], now.choose & (lane.zero ^ instr.flags[reverse0])) | moves.stays[i]
            )
        m.d.comb += [
            results.clear.eq(flush),
            results.i.valid.eq(under_way[LATENCY - 1]),
            results.i.payload.eq(Cat(outs, skips)),
            writer.data.valid.eq(results.o.valid),
            writer.data.payload.as_value().eq(results.o.payload[: 32 * p]),
            writer.skip.eq(results.o.payload[32 * p :]),
            results.o.ready.eq(writer.data.ready),
        ]
        for other, latency in (
            (now.reduce, REDUCE_LATENCY),
            (now.exponential, EXP_LATENCY),
            (now.divide, DIVIDE_LATENCY),
            (now.scale, decode.LATENCY + SCALE_LATENCY),
            (now.rank, RANK_LATENCY),
            (now.shuffle, LATENCY + SHUFFLE_LATENCY),
            (now.transpose, LATENCY + TRANSPOSE_LATENCY),
        ):
            with m.If(other):
                m.d.comb += results.i.valid.eq(under_way[latency - 1])

    def _quantizer(self, m: Module, now: Any, fire: Signal, turn: Signal, scales: Any) -> tuple[Any, Value]:
        """The unit for MX scales and x4 words, led along with the lanes; and, with a group's raw elements, whether their scale is NaN."""
        instr, cfg = (
            now.issue.instr,
            QuantizerConfig(partitions=self.config.partitions, quadrant=self.config.quadrant),
        )
        m.submodules.quantizer = mx = self.tiles.place(Quantizer, cfg)
        m.submodules.mx_enter = enter = self.tiles.place(
            Delay, DelayConfig(width=1 + TURN_BITS, cycles=decode.LATENCY)
        )
        m.submodules.mx_leave = leave = self.tiles.place(
            Delay, DelayConfig(width=1 + cfg.groups, cycles=LATENCY)
        )
        m.d.comb += [
            enter.i.eq(Cat(fire & now.scale, turn)),
            leave.i.eq(Cat(fire & now.pack, mx.blank)),
            mx.enter.eq(enter.o[0]),
            mx.turn.eq(enter.o[1:]),
            mx.dtype.eq(Mux(now.scale, instr.op0, instr.dst.dtype)),
            mx.nki.eq(instr.op1[0]),
            mx.offset.eq(Mux(now.scale, instr.dst.part, instr.src1.part)),
            mx.parts.eq(instr.parts),
            mx.scale_in.eq(scales),
            mx.leave.eq(leave.o[0]),
        ]
        return mx, leave.o[1:]

    def _ranking(self, m: Module, now: Any, readers: list[Any], idle: Signal, restart: Value) -> Any:
        """What leads the lanes' lists of eight values."""
        m.submodules.rank = rank = self.tiles.place(RankControl, None)
        m.d.comb += [
            rank.start.eq(restart),
            rank.on.eq(now.rank & ~idle),
            rank.given.eq(now.given),
            rank.listed.eq(now.listed),
            rank.there.eq(readers[1].out.valid),
            rank.last.eq(readers[0].out.payload.last),
        ]
        return rank

    def _sums(self, m: Module, now: Any, start: Signal, under_way: Signal) -> Signal:
        """What the lanes' accumulators do: a clear makes them +0, an instruction with FRESH its operation's identity."""
        instr, clear = now.issue.instr, self.ctl.clear
        sums, began, enters, leaves = Signal(SumLayout()), Signal(), Signal(), Signal()
        op = Mux(now.span, AluOp.MAX.value, instr.op1)
        m.d.sync += began.eq(start)
        # elements come to the second ALU this many cycles after they entered
        at = decode.LATENCY + ALU_LATENCY - 1
        for later, more in (
            (now.exponential, exponential.LATENCY),
            (now.divide, divide.LATENCY - ALU_LATENCY),
        ):
            with m.If(later):
                m.d.comb += [enters.eq(under_way[at + more]), leaves.eq(under_way[at + more + ALU_LATENCY])]
        with m.If(~now.exponential & ~now.divide):
            m.d.comb += [enters.eq(under_way[at]), leaves.eq(under_way[at + ALU_LATENCY])]
        tags = [Signal(TAG_BITS, name=n) for n in ("sum_tag", "sum_put_tag")]
        for tag, moves in zip(tags, (enters, leaves), strict=True):
            with m.If(began):
                m.d.sync += tag.eq(0)
            with m.Elif(moves):
                m.d.sync += tag.eq(tag + 1)
        m.d.comb += [
            sums.on.eq(now.accumulate),
            sums.load.eq(clear | (began & now.accumulate & instr.flags[Flag.FRESH.bit_length() - 1])),
            sums.tag.eq(tags[0]),
            sums.put.eq(leaves & now.accumulate),
            sums.put_tag.eq(tags[1]),
        ]
        with m.If(~clear), m.Switch(op):
            for code, bits in IDENTITY.items():
                with m.Case(code.value):
                    m.d.comb += sums.start.eq(bits)
        return sums

    def _faults(
        self,
        m: Module,
        front: Any,
        now: Any,
        readers: list[Any],
        writer: Any,
        idle: Signal,
        flush: Signal,
        dead: Signal,
    ) -> None:
        """The first fault: report it, forget what is under way, and stay dead until `clear`."""
        checked, instr = front.checked, now.issue.instr

        def range_code(ap: Any) -> Value:
            return Mux(ap.space == Space.PSUM, ErrorCode.PSUM_RANGE.value, ErrorCode.SBUF_RANGE.value)

        illegal = checked.valid & ~checked.payload.legal & idle
        faults: list[tuple[Value, Value, Value, Value]] = [
            (illegal, C(ErrorCode.ILLEGAL_FIELD.value, 8), checked.payload.issue.index, C(0, 32)),
            (writer.error_valid, range_code(instr.dst), now.issue.index, writer.error_addr),
            (readers[0].error_valid, range_code(instr.src0), now.issue.index, readers[0].error_addr),
            (readers[1].error_valid, range_code(instr.src1), now.issue.index, readers[1].error_addr),
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
                    error.engine.eq(Engine.VECTOR.value),
                    error.index.eq(index),
                    error.addr.eq(addr),
                ]
        m.d.sync += flush_next.eq(valid)
        with m.If(valid):
            m.d.sync += dead.eq(1)
        with m.If(self.ctl.clear):
            m.d.sync += dead.eq(0)
