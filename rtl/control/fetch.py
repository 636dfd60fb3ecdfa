"""Instruction fetch: one stream's instructions from memory, a few ahead."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.isa import CHIP_LOCAL, CHIP_SHIFT, INSTR_BYTES, UNIT_MEMORY, UNIT_SHIFT
from rtl.interfaces import BEAT_BYTES, BurstReadSignature, InstrLayout
from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary

BEATS = INSTR_BYTES // BEAT_BYTES
ALIGN_BITS = INSTR_BYTES.bit_length() - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchConfig:
    """`prefetch` instructions fetched ahead; `memory_bytes` of the chip's memory."""

    prefetch: int
    memory_bytes: int

    def __post_init__(self) -> None:
        if self.prefetch < 2:
            raise ValueError(f"prefetch must be at least 2, not {self.prefetch!r}")
        if self.memory_bytes % INSTR_BYTES or self.memory_bytes < INSTR_BYTES:
            raise ValueError(f"memory_bytes must be a multiple of {INSTR_BYTES}, not {self.memory_bytes!r}")


class FetchedLayout(data.StructLayout):
    """An instruction, or `error` when it could not be fetched."""

    def __init__(self) -> None:
        super().__init__({"instr": InstrLayout(), "error": unsigned(1)})


class InstructionFetch(wiring.Component):
    """Members
    -------
    start, address: one cycle; fetch from this 64-bit address on. Only after `stop` or reset.
    stop: one cycle; forget everything fetched. Bursts under way are taken in and dropped; a start in the meantime waits for that.
    chip_id: which chip field of an address is this chip's, besides isa.CHIP_LOCAL.
    out: FetchedLayout, in order. What cannot be fetched (misaligned, not this chip's memory, beyond its end, AXI error) is an item with
        `error`, and the last one.
    read: bursts of BEATS beats. idle: no burst under way.
    """

    def __init__(self, config: FetchConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "start": In(1),
                "address": In(64),
                "stop": In(1),
                "chip_id": In(16),
                "out": Out(stream.Signature(FetchedLayout())),
                "read": Out(BurstReadSignature()),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        m.submodules.queue = queue = self.tiles.place(
            Queue, QueueConfig(width=FetchedLayout().size, depth=cfg.prefetch)
        )
        active, legal, dry = Signal(), Signal(), Signal()
        offset = Signal(UNIT_SHIFT)
        owed = Signal(range(cfg.prefetch + 1))  # instructions asked for or held
        flight, stale = Signal(range(cfg.prefetch + 1)), Signal(range(cfg.prefetch + 1))
        asking = Signal()

        chip = self.address[CHIP_SHIFT:]
        unit = self.address[UNIT_SHIFT:CHIP_SHIFT]
        with m.If(self.start):
            m.d.sync += [
                active.eq(1),
                dry.eq(0),
                offset.eq(self.address[:UNIT_SHIFT]),
                legal.eq(
                    ((chip == CHIP_LOCAL) | (chip == self.chip_id))
                    & (unit == UNIT_MEMORY)
                    & ~self.address[:ALIGN_BITS].any()
                ),
            ]
        inside, asked = Signal(), Signal()
        m.d.comb += [
            inside.eq(legal & (offset < cfg.memory_bytes)),
            asked.eq(self.read.req.valid & self.read.req.ready),
            self.read.req.valid.eq(asking),
            self.read.req.payload.beats.eq(BEATS),
        ]
        # a request, once shown, stays until it is taken; a stop in the meantime makes it stale
        want = active & inside & ~dry & (owed != cfg.prefetch) & (stale == 0)
        held_addr = Signal(UNIT_SHIFT)
        ask = Signal()
        m.d.comb += [ask.eq(want & (~asking | asked) & ~self.stop), self.read.req.payload.addr.eq(held_addr)]
        with m.If(asked):
            m.d.sync += asking.eq(0)
        with m.If(ask):
            m.d.sync += [asking.eq(1), held_addr.eq(offset), offset.eq(offset + INSTR_BYTES)]

        beat, arrived = Signal(), Signal()
        words = Signal(8 * INSTR_BYTES)
        failed = Signal()
        rsp = self.read.rsp
        bad_tail = active & ~inside & ~dry & (flight == 0) & ~asking & (stale == 0)
        m.d.comb += [
            rsp.ready.eq(1),
            beat.eq(rsp.valid),
            arrived.eq(beat & rsp.payload.last),
        ]
        item = Signal(FetchedLayout())
        m.d.comb += [
            item.instr.as_value().eq(Cat(words[8 * BEAT_BYTES :], rsp.payload.data)),
            item.error.eq(failed | rsp.payload.error),
            queue.i.valid.eq((arrived & (stale == 0) & ~dry) | (bad_tail & ~arrived)),
            queue.i.payload.eq(item),
            queue.clear.eq(self.stop),
        ]
        with m.If(beat):
            m.d.sync += [
                words.eq(Cat(words[8 * BEAT_BYTES :], rsp.payload.data)),
                failed.eq((failed | rsp.payload.error) & ~rsp.payload.last),
            ]
        with m.If(bad_tail & ~arrived):
            m.d.comb += item.error.eq(1)
        # the queue has room for all that is owed and for the error at the end
        with m.If(queue.i.valid & queue.i.ready & item.error):
            m.d.sync += dry.eq(1)
        popped = queue.o.valid & queue.o.ready
        m.d.sync += [flight.eq(flight + ask - arrived), owed.eq(owed + ask - popped)]
        with m.If(bad_tail & ~arrived & queue.i.ready):
            m.d.sync += owed.eq(owed + 1 - popped)
        with m.If((stale != 0) & arrived):
            m.d.sync += stale.eq(stale - 1)
        with m.If(self.stop):
            m.d.sync += [active.eq(0), owed.eq(0), stale.eq(flight - arrived)]
        m.d.comb += [
            self.out.valid.eq(queue.o.valid & ~self.stop),
            self.out.payload.as_value().eq(queue.o.payload),
            queue.o.ready.eq(self.out.ready & ~self.stop),
            self.idle.eq(flight == 0),
        ]
        return m
