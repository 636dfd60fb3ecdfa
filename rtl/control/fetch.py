"""Instruction fetch: one stream's instructions from memory, a few ahead, and the latest kept for branches back."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Signal, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from models.addressing import CHIP_LOCAL, CHIP_SHIFT, UNIT_MEMORY, UNIT_SHIFT
from models.isa import INSTR_BYTES
from rtl.interfaces import BEAT_BYTES, BurstReadSignature, InstrLayout
from rtl.tiles import TileLibrary

BEATS = INSTR_BYTES // BEAT_BYTES
ALIGN_BITS = INSTR_BYTES.bit_length() - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchConfig:
    """`prefetch` instructions fetched ahead; the latest `keep`, a power of two, held; `memory_bytes` of the chip's memory."""

    prefetch: int
    keep: int
    memory_bytes: int

    def __post_init__(self) -> None:
        if self.prefetch < 2:
            raise ValueError(f"prefetch must be at least 2, not {self.prefetch!r}")
        if self.keep < 2 * self.prefetch or self.keep & (self.keep - 1):
            raise ValueError(
                f"keep must be a power of two and at least twice prefetch ({self.prefetch}), not {self.keep!r}"
            )
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
    jump, jump_to: one cycle; go on with this instruction, counted from `address`. One that is held comes in the next cycle; for another,
        everything is forgotten and fetched anew.
    chip_id: which chip field of an address is this chip's, besides addressing.CHIP_LOCAL.
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
                "jump": In(1),
                "jump_to": In(32),
                "chip_id": In(16),
                "out": Out(stream.Signature(FetchedLayout())),
                "read": Out(BurstReadSignature()),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        held: Any = memory.Memory(shape=FetchedLayout().size, depth=cfg.keep, init=[])
        m.submodules.held = held
        put, get = held.write_port(), held.read_port(domain="comb")
        active, legal, dry = Signal(), Signal(), Signal()
        base = Signal(UNIT_SHIFT)
        # instruction numbers: oldest held, next to go out, next to arrive, next to ask for
        oldest, out, arrives, asks = Signal(32), Signal(32), Signal(32), Signal(32)
        flight, stale = Signal(range(cfg.keep + 1)), Signal(range(cfg.keep + 1))
        asking = Signal()
        numbers = (oldest, out, arrives, asks)

        chip = self.address[CHIP_SHIFT:]
        unit = self.address[UNIT_SHIFT:CHIP_SHIFT]
        offset, inside, asked = Signal(UNIT_SHIFT + 1), Signal(), Signal()
        m.d.comb += [
            offset.eq(base + (asks << ALIGN_BITS)),
            inside.eq(legal & (offset < cfg.memory_bytes)),
            asked.eq(self.read.req.valid & self.read.req.ready),
            self.read.req.valid.eq(asking),
            self.read.req.payload.beats.eq(BEATS),
        ]
        ahead = Signal()
        m.d.comb += ahead.eq((asks - out)[:32] < cfg.prefetch)
        # a request, once shown, stays until it is taken; a stop in the meantime makes it stale
        want = active & inside & ~dry & ahead & (stale == 0)
        held_addr = Signal(UNIT_SHIFT)
        ask = Signal()
        m.d.comb += [
            ask.eq(want & (~asking | asked) & ~self.stop & ~self.jump),
            self.read.req.payload.addr.eq(held_addr),
        ]
        with m.If(asked):
            m.d.sync += asking.eq(0)
        with m.If(ask):
            m.d.sync += [asking.eq(1), held_addr.eq(offset), asks.eq(asks + 1)]

        beat, arrived = Signal(), Signal()
        words = Signal(8 * INSTR_BYTES)
        failed = Signal()
        rsp = self.read.rsp
        m.d.comb += [rsp.ready.eq(1), beat.eq(rsp.valid), arrived.eq(beat & rsp.payload.last)]
        with m.If(beat):
            m.d.sync += [
                words.eq(Cat(words[8 * BEAT_BYTES :], rsp.payload.data)),
                failed.eq((failed | rsp.payload.error) & ~rsp.payload.last),
            ]
        item, keep, tail = Signal(FetchedLayout()), Signal(), Signal()
        m.d.comb += [
            # beyond what can be fetched: an item that says so, in its turn
            tail.eq(active & ~inside & ~dry & ahead & (flight == 0) & (stale == 0) & ~self.jump),
            keep.eq((arrived & (stale == 0) & ~dry) | tail),
            item.instr.as_value().eq(Cat(words[8 * BEAT_BYTES :], rsp.payload.data)),
            item.error.eq(failed | rsp.payload.error | tail),
            put.addr.eq(arrives[: put.addr.shape().width]),
            put.data.eq(item),
            put.en.eq(keep),
        ]
        with m.If(keep):
            m.d.sync += arrives.eq(arrives + 1)
            with m.If((arrives - oldest)[:32] == cfg.keep):
                m.d.sync += oldest.eq(oldest + 1)
            with m.If(item.error):
                m.d.sync += dry.eq(1)
        with m.If(tail):
            m.d.sync += asks.eq(asks + 1)
        m.d.sync += flight.eq(flight + ask - arrived)
        with m.If((stale != 0) & arrived):
            m.d.sync += stale.eq(stale - 1)

        m.d.comb += [
            get.addr.eq(out[: get.addr.shape().width]),
            self.out.valid.eq((out != arrives) & ~self.stop & ~self.jump),
            self.out.payload.as_value().eq(get.data),
            self.idle.eq(flight == 0),
        ]
        with m.If(self.out.valid & self.out.ready):
            m.d.sync += out.eq(out + 1)
        with m.If(self.jump):
            # what is still to arrive must not take the place of what comes after the target
            here = ((self.jump_to - oldest)[:32] < (arrives - oldest)[:32]) | (
                (self.jump_to == arrives) & ~dry
            )
            room = (asks - self.jump_to)[:32] <= cfg.keep
            m.d.sync += out.eq(self.jump_to)
            with m.If(~(here & room)):
                m.d.sync += [n.eq(self.jump_to) for n in numbers]
                m.d.sync += [dry.eq(0), stale.eq(flight - arrived)]
        with m.If(self.start):
            m.d.sync += [
                active.eq(1),
                dry.eq(0),
                base.eq(self.address[:UNIT_SHIFT]),
                legal.eq(
                    ((chip == CHIP_LOCAL) | (chip == self.chip_id))
                    & (unit == UNIT_MEMORY)
                    & ~self.address[:ALIGN_BITS].any()
                ),
            ]
        with m.If(self.stop):
            m.d.sync += [active.eq(0), stale.eq(flight - arrived)]
            m.d.sync += [n.eq(0) for n in numbers]
        return m
