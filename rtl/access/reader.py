"""Lane reader: the elements of an access pattern from all partitions at once, one element a cycle."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from models.isa import Space
from rtl.access.pattern import PatternWalker, StartLayout, WalkerConfig
from rtl.interfaces import LaneReadSignature, lanes_layout
from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneReaderConfig:
    """`partitions` P; word address bits of the memories that it reads, None where it does not; `depth` words on their way."""

    partitions: int
    sbuf_addr_bits: int | None
    psum_addr_bits: int | None
    depth: int = 8

    def __post_init__(self) -> None:
        if self.partitions < 4 or self.partitions & (self.partitions - 1):
            raise ValueError(f"partitions must be a power of two from 4, not {self.partitions!r}")
        if self.depth < 4:
            raise ValueError(f"depth must be at least 4, not {self.depth!r}")
        _ = self.walker  # which checks the address bits

    @property
    def walker(self) -> WalkerConfig:
        """The walker's configuration."""
        return WalkerConfig(
            sbuf_bytes=None if self.sbuf_addr_bits is None else 4 << self.sbuf_addr_bits,
            psum_bytes=None if self.psum_addr_bits is None else 4 << self.psum_addr_bits,
        )

    @property
    def spaces(self) -> dict[str, int]:
        """Port name and word address bits of each memory."""
        return {
            name: bits
            for name, bits in (("sbuf", self.sbuf_addr_bits), ("psum", self.psum_addr_bits))
            if bits is not None
        }


def rotated(lanes: Any, partitions: int, quarter: Value) -> list[Value]:
    """Lane i of the result is lane (i + quarter * P / 4) mod P of `lanes`."""
    step = partitions // 4
    out = []
    for i in range(partitions):
        a, b, c, d = (lanes[(i + q * step) % partitions] for q in range(4))
        out.append(Mux(quarter[1], Mux(quarter[0], d, c), Mux(quarter[0], b, a)))
    return out


class LaneItemLayout(data.StructLayout):
    """One element of every lane, zero-extended, and whether it is the pattern's last."""

    def __init__(self, partitions: int) -> None:
        super().__init__({"data": lanes_layout(partitions), "last": unsigned(1)})


class _TicketLayout(data.StructLayout):
    """What has to be done with a word when it is there: where the element lies in it, whether it is a new word."""

    def __init__(self) -> None:
        super().__init__(
            {
                "fresh": unsigned(1),
                "offset": unsigned(2),
                "size": unsigned(2),
                "quarter": unsigned(2),
                "last": unsigned(1),
            }
        )


class LaneReader(wiring.Component):
    """Reads patterns one after the other, the next one's requests behind the last one's.

    Members
    -------
    start: StartLayout; `ap.part` is a multiple of P / 4. Lane i of the result is partition (ap.part + i) mod P.
    sbuf, psum: LaneReadSignature, those that the configuration has; `ap.space` chooses.
    out: LaneItemLayout, one item an element. An element in the word of the element before it does not read the memory again, the
        first one of a pattern always does.
    error_valid, error_addr: as PatternWalker. Elements before the bad one still come.
    idle: nothing under way. clear: one cycle; forgets everything; a request that waits is still made, and what comes back is dropped.

    First item 5 cycles after `start` where the memory grants at once; then one a cycle.
    """

    def __init__(self, config: LaneReaderConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {
            "start": In(stream.Signature(StartLayout())),
            "out": Out(stream.Signature(LaneItemLayout(config.partitions))),
            "error_valid": Out(1),
            "error_addr": Out(32),
            "idle": Out(1),
            "clear": In(1),
        }
        ports |= {n: Out(LaneReadSignature(bits, config.partitions)) for n, bits in config.spaces.items()}
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        m.submodules.walker = walker = self.tiles.place(PatternWalker, cfg.walker)
        m.submodules.tickets = tickets = self.tiles.place(
            Queue, QueueConfig(width=_TicketLayout().size, depth=2 * cfg.depth)
        )
        m.submodules.words = words = self.tiles.place(
            Queue, QueueConfig(width=32 * cfg.partitions, depth=cfg.depth)
        )
        connect(m, flipped(self.start), walker.start)
        m.d.comb += [
            walker.clear.eq(self.clear),
            tickets.clear.eq(self.clear),
            words.clear.eq(self.clear),
            self.error_valid.eq(walker.error_valid),
            self.error_addr.eq(walker.error_addr),
        ]
        size, quarter, psum = Signal(2), Signal(2), Signal()
        with m.If(self.start.valid & self.start.ready):
            ap = self.start.payload.ap
            step = (cfg.partitions // 4).bit_length() - 1
            m.d.sync += [
                size.eq(self.start.payload.size),
                quarter.eq(ap.part[step : step + 2]),
                psum.eq(ap.space == Space.PSUM),
            ]
        room, fresh, push = Signal(), Signal(), Signal()
        request = self._request(m, walker, words, psum, room, fresh, push)
        element = walker.out.payload
        ticket = Signal(_TicketLayout())
        m.d.comb += [
            ticket.fresh.eq(fresh),
            ticket.offset.eq(element.addr[:2]),
            ticket.size.eq(size),
            ticket.quarter.eq(quarter),
            ticket.last.eq(element.last),
            push.eq(walker.out.valid & tickets.i.ready & (~fresh | room)),
            walker.out.ready.eq(tickets.i.ready & (~fresh | room)),
            tickets.i.valid.eq(push),
            tickets.i.payload.eq(ticket),
        ]
        self._deliver(m, tickets, words)
        m.d.comb += self.idle.eq(walker.idle & ~request & ~tickets.o.valid & (tickets.level == 0))
        return m

    def _request(
        self, m: Module, walker: Any, words: Any, psum: Signal, room: Signal, fresh: Signal, push: Signal
    ) -> Value:
        """Ask for the words of elements; returns whether anything is on its way."""
        cfg = self.config
        element = walker.out.payload
        word = element.addr[2:]
        before = Signal(len(word))
        waiting, waiting_psum = Signal(), Signal()
        address = Signal(len(word))
        taken, arrived = Signal(), Signal()
        m.d.comb += fresh.eq(element.first | (word != before))
        names = list(cfg.spaces)
        ports = [getattr(self, n) for n in names]
        both = len(ports) == 2
        for name, port in zip(names, ports, strict=True):
            mine: Value | int = (waiting_psum if name == "psum" else ~waiting_psum) if both else 1
            m.d.comb += [port.req.valid.eq(waiting & mine), port.req.payload.eq(address)]
        m.d.comb += [
            taken.eq(Cat([p.req.valid & p.req.ready for p in ports]).any()),
            arrived.eq(Cat([p.rsp_valid for p in ports]).any()),
        ]
        # words asked for or held, so that what comes back always finds room
        owed = Signal(range(cfg.depth + 1))
        flight, stale = Signal(range(cfg.depth + 1)), Signal(range(cfg.depth + 1))
        ask, turned = Signal(), Signal()
        m.d.comb += [
            room.eq((~waiting | taken) & (owed != cfg.depth) & (stale == 0) & ~turned),
            # answers of two memories could overtake each other
            turned.eq((psum != waiting_psum) & (flight != 0)) if both else turned.eq(0),
            ask.eq(push & fresh),
        ]
        with m.If(push):
            m.d.sync += before.eq(word)
        with m.If(taken):
            m.d.sync += waiting.eq(0)
        with m.If(ask):
            m.d.sync += [waiting.eq(1), waiting_psum.eq(psum), address.eq(word)]
        m.d.sync += [
            flight.eq(flight + ask - arrived),
            owed.eq(owed + ask - (words.o.valid & words.o.ready)),
        ]
        with m.If((stale != 0) & arrived):
            m.d.sync += stale.eq(stale - 1)
        with m.If(self.clear):
            m.d.sync += [stale.eq(flight + ask - arrived), owed.eq(0)]
        lanes = (
            ports[0].rsp
            if not both
            else Mux(ports[1].rsp_valid, ports[1].rsp.as_value(), ports[0].rsp.as_value())
        )
        m.d.comb += [
            words.i.valid.eq(arrived & (stale == 0)),
            words.i.payload.eq(lanes),
        ]
        return flight != 0

    def _deliver(self, m: Module, tickets: Any, words: Any) -> None:
        """Cut elements out of words."""
        cfg = self.config
        held = Signal(32 * cfg.partitions, reset_less=True)
        word = Signal(lanes_layout(cfg.partitions))
        ticket = data.View(_TicketLayout(), tickets.o.payload)
        go = Signal()
        m.d.comb += [
            word.as_value().eq(Mux(ticket.fresh, words.o.payload, held)),
            self.out.valid.eq(tickets.o.valid & (~ticket.fresh | words.o.valid) & ~self.clear),
            self.out.payload.last.eq(ticket.last),
            go.eq(self.out.valid & self.out.ready),
            tickets.o.ready.eq(go),
            words.o.ready.eq(go & ticket.fresh),
        ]
        with m.If(go):
            m.d.sync += held.eq(word)
        for out, lane in zip(
            [self.out.payload.data[i] for i in range(cfg.partitions)],
            rotated(word, cfg.partitions, ticket.quarter),
            strict=True,
        ):
            half = Mux(ticket.offset[1], lane[16:], lane[:16])
            byte = Mux(ticket.offset[0], half[8:16], half[:8])
            m.d.comb += out.eq(Mux(ticket.size[1], lane, Mux(ticket.size[0], half, byte)))
