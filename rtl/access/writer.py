"""Lane writer: elements of all partitions at once to the places of an access pattern, one element a cycle."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.isa import Space
from rtl.access.pattern import PatternWalker, WalkerConfig
from rtl.access.reader import LaneReaderConfig, rotated
from rtl.interfaces import ApLayout, LaneWriteSignature, lanes_layout
from rtl.tiles import TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneWriterConfig:
    """`partitions` P; word address bits of the memories that it writes, None where it does not."""

    partitions: int
    sbuf_addr_bits: int | None
    psum_addr_bits: int | None

    def __post_init__(self) -> None:
        _ = self._as_reader()  # same rules

    def _as_reader(self) -> LaneReaderConfig:
        return LaneReaderConfig(
            partitions=self.partitions, sbuf_addr_bits=self.sbuf_addr_bits, psum_addr_bits=self.psum_addr_bits
        )

    @property
    def walker(self) -> WalkerConfig:
        """The walker's configuration."""
        return self._as_reader().walker

    @property
    def spaces(self) -> dict[str, int]:
        """Port name and word address bits of each memory."""
        return self._as_reader().spaces


class WriteStartLayout(data.StructLayout):
    """A pattern to fill, log2 of its element's bytes, and how many lanes are written."""

    def __init__(self) -> None:
        super().__init__({"ap": ApLayout(), "size": unsigned(2), "parts": unsigned(8)})


class LaneWriter(wiring.Component):
    """Fills patterns one after the other.

    Members
    -------
    start: WriteStartLayout; `ap.part` is a multiple of P / 4. Lane i < parts goes to partition (ap.part + i) mod P. A start is
        accepted when the pattern before is done.
    data: raw elements in the low bits of each lane, one item an element of the pattern. skip: with it, bit i: lane i is not written.
    sbuf, psum: LaneWriteSignature, those that the configuration has; `ap.space` chooses.
    done: one cycle, when the last element of a pattern has been accepted by the memory; for an empty pattern the cycle after its start.
    error_valid, error_addr: as PatternWalker; elements before the bad one are written.
    idle: nothing under way. clear: one cycle; forgets everything, but a write that waits is still made.
    """

    def __init__(self, config: LaneWriterConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {
            "start": In(stream.Signature(WriteStartLayout())),
            "data": In(stream.Signature(lanes_layout(config.partitions))),
            "skip": In(config.partitions),
            "done": Out(1),
            "error_valid": Out(1),
            "error_addr": Out(32),
            "idle": Out(1),
            "clear": In(1),
        }
        ports |= {n: Out(LaneWriteSignature(bits, config.partitions)) for n, bits in config.spaces.items()}
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        p = cfg.partitions
        m.submodules.walker = walker = self.tiles.place(PatternWalker, cfg.walker)
        active, empty = Signal(), Signal()
        size, quarter, psum, lanes = Signal(2), Signal(2), Signal(), Signal(p)
        start = self.start.payload
        step = (p // 4).bit_length() - 1
        m.d.comb += [
            walker.clear.eq(self.clear),
            walker.start.valid.eq(self.start.valid & ~active),
            walker.start.payload.ap.eq(start.ap),
            walker.start.payload.size.eq(start.size),
            self.start.ready.eq(walker.start.ready & ~active),
            self.error_valid.eq(walker.error_valid),
            self.error_addr.eq(walker.error_addr),
        ]
        with m.If(self.start.valid & self.start.ready):
            plain = [C(i, 8) < start.parts for i in range(p)]
            m.d.sync += [
                active.eq(1),
                empty.eq(
                    Cat(
                        [c == 0 for c in (start.ap.count0, start.ap.count1, start.ap.count2, start.ap.count3)]
                    ).any()
                ),
                size.eq(start.size),
                quarter.eq(start.ap.part[step : step + 2]),
                psum.eq(start.ap.space == Space.PSUM),
                lanes.eq(Cat(rotated(plain, p, -start.ap.part[step : step + 2]))),
            ]

        # one write on its way to the memory
        waiting, last, to_psum = Signal(), Signal(), Signal()
        addr = Signal(cfg.walker.addr_bits - 2)
        mask, word = Signal(4), Signal(lanes_layout(p), reset_less=True)
        held_lanes = Signal(p)
        names = list(cfg.spaces)
        both = len(names) == 2
        taken, take = Signal(), Signal()
        accepted = []
        for name in names:
            port = getattr(self, name)
            mine: Value | int = (to_psum if name == "psum" else ~to_psum) if both else 1
            m.d.comb += [
                port.req.valid.eq(waiting & mine),
                port.req.payload.addr.eq(addr),
                port.req.payload.mask.eq(mask),
                port.req.payload.lanes.eq(held_lanes),
                port.req.payload.data.eq(word),
            ]
            accepted.append(port.req.valid & port.req.ready)
        element = walker.out.payload
        ready = ~waiting | taken
        m.d.comb += [
            taken.eq(Cat(accepted).any()),
            take.eq(walker.out.valid & self.data.valid & ready & ~self.clear),
            walker.out.ready.eq(self.data.valid & ready & ~self.clear),
            self.data.ready.eq(walker.out.valid & ready & ~self.clear),
            self.done.eq((active & empty) | (taken & last)),
            self.idle.eq(~active & ~waiting),
        ]
        with m.If(taken):
            m.d.sync += waiting.eq(0)
        with m.If(self.done):
            m.d.sync += [active.eq(0), empty.eq(0)]
        with m.If(take):
            offset = element.addr[:2]
            m.d.sync += [
                waiting.eq(1),
                last.eq(element.last),
                to_psum.eq(psum),
                addr.eq(element.addr[2:]),
                mask.eq(Mux(size[1], 0xF, Mux(size[0], Mux(offset[1], 0xC, 0x3), 1 << offset))),
                held_lanes.eq(lanes & ~Cat(rotated(list(self.skip), p, -quarter))),
            ]
            for lane, value in enumerate(rotated(self.data.payload, p, -quarter)):
                wide = Mux(size[1], value, Mux(size[0], value[:16].replicate(2), value[:8].replicate(4)))
                m.d.sync += word[lane].eq(wide)
        with m.If(self.clear):
            m.d.sync += [active.eq(0), empty.eq(0), last.eq(0)]
        return m
