"""Register slice: a stream with registers on both sides, so that no path in logic crosses it."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.tiles import TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceConfig:
    """Items of `width` bits."""

    width: int

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, not {self.width!r}")


class RegisterSlice(wiring.Component):
    """Items leave in the order in which they came, one cycle later at the earliest, one a cycle; it holds two.

    Members
    -------
    i, o: streams of `width` bits. `i.ready`, `o.valid` and `o.payload` are registered.
    """

    def __init__(self, config: SliceConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"i": In(stream.Signature(config.width)), "o": Out(stream.Signature(config.width))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # The spare register takes the item that arrives in the cycle in which the other side stops.
        spare = Signal(self.config.width)
        spare_full = Signal()
        head = Signal(self.config.width)
        head_full = Signal()
        m.d.comb += [
            self.i.ready.eq(~spare_full),
            self.o.valid.eq(head_full),
            self.o.payload.eq(head),
        ]
        with m.If(self.o.ready | ~head_full):
            m.d.sync += [head_full.eq(spare_full | self.i.valid), spare_full.eq(0)]
            with m.If(spare_full):
                m.d.sync += head.eq(spare)
            with m.Else():
                m.d.sync += head.eq(self.i.payload)
        with m.Elif(self.i.valid & ~spare_full):
            m.d.sync += [spare.eq(self.i.payload), spare_full.eq(1)]
        return m
