"""Two lane readers on one memory port."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.interfaces import LaneReadSignature
from rtl.tiles import TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneReadShareConfig:
    """`partitions` P; word address bits; `depth`: most requests that both together have under way, a power of two."""

    partitions: int
    addr_bits: int
    depth: int = 16

    def __post_init__(self) -> None:
        if self.depth < 2 or self.depth & (self.depth - 1):
            raise ValueError(f"depth must be a power of two from 2, not {self.depth!r}")


class LaneReadShare(wiring.Component):
    """Members
    -------
    first, second: LaneReadSignature, seen from here. `first` wins where both ask, but a request that has been shown to the memory stays.
    o: to the memory, which answers in order; an answer goes to whose request it is, in the same cycle.

    Requests go through in the same cycle. Nothing to clear: requesters wait for the answers that they are owed.
    """

    def __init__(self, config: LaneReadShareConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        port = LaneReadSignature(config.addr_bits, config.partitions)
        super().__init__({"first": In(port), "second": In(port), "o": Out(port)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        first, second, o = self.first, self.second, self.o
        kept, was_second, use_second = Signal(), Signal(), Signal()
        # whose requests are under way, oldest first
        owners = Signal(self.config.depth)
        into, out = Signal(range(self.config.depth)), Signal(range(self.config.depth))
        owner = owners.bit_select(out, 1)
        m.d.comb += [
            use_second.eq(Mux(kept, was_second, ~first.req.valid)),
            o.req.valid.eq(Mux(use_second, second.req.valid, first.req.valid)),
            o.req.payload.eq(Mux(use_second, second.req.payload, first.req.payload)),
            first.req.ready.eq(o.req.ready & ~use_second),
            second.req.ready.eq(o.req.ready & use_second),
            first.rsp.eq(o.rsp),
            second.rsp.eq(o.rsp),
            first.rsp_valid.eq(o.rsp_valid & ~owner),
            second.rsp_valid.eq(o.rsp_valid & owner),
        ]
        m.d.sync += [kept.eq(o.req.valid & ~o.req.ready), was_second.eq(use_second)]
        with m.If(o.req.valid & o.req.ready):
            m.d.sync += [owners.bit_select(into, 1).eq(use_second), into.eq(into + 1)]
        with m.If(o.rsp_valid):
            m.d.sync += out.eq(out + 1)
        return m
