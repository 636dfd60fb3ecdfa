"""Queue: a FIFO between two streams, with a clear."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rtl.tiles import TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueConfig:
    """`depth` items of `width` bits."""

    width: int
    depth: int

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, not {self.width!r}")
        if self.depth < 2:
            raise ValueError(f"depth must be at least 2, not {self.depth!r}")


class Queue(wiring.Component):
    """Items leave in the order in which they came, two cycles later at the earliest, one a cycle.

    Members
    -------
    i, o: streams of `width` bits. `i.ready` and `o.valid` are registered: neither depends on the other side in the same cycle.
    clear: one cycle; forgets everything.
    level: items held.
    """

    def __init__(self, config: QueueConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "i": In(stream.Signature(config.width)),
                "o": Out(stream.Signature(config.width)),
                "clear": In(1),
                "level": Out(range(config.depth + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        fifo = SyncFIFOBuffered(width=self.config.width, depth=self.config.depth)
        m.submodules.fifo = ResetInserter(self.clear)(fifo)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            self.o.payload.eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
            self.level.eq(fifo.level),
        ]
        return m
