"""Gather control: indices into slots a group at a time, the whole source past them, what they caught out again."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib.wiring import In, Out

from models.cost import GATHER_SLOTS as SLOTS
from rtl.tiles import ClockedTile, TileLibrary

NUMBER_BITS = 16
"""Bits of an element's number in the source."""


class GatherControl(ClockedTile):
    """All lanes of a port read the same word, but each wants another element: so every element goes past every lane, which keeps those that its
    SLOTS indices name. N elements from a source of R take ceil(N / SLOTS) walks over the source.

    Members
    -------
    start: one cycle; `count` elements are to be gathered. clear: forget everything.
    index_valid, index_ready: the next index of every lane. put: it goes into slot `slot`.
    walk_valid, walk_ready: the source's pattern begins. element_valid, element_ready, element_last: its elements. take: element `number` is there.
    get: what slot `slot` caught goes on; only where there is `room`.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "start": In(1),
                "count": In(64),
                "clear": In(1),
                "index_valid": In(1),
                "index_ready": Out(1),
                "put": Out(1),
                "slot": Out(range(SLOTS)),
                "walk_valid": Out(1),
                "walk_ready": In(1),
                "element_valid": In(1),
                "element_ready": Out(1),
                "element_last": In(1),
                "take": Out(1),
                "number": Out(NUMBER_BITS),
                "room": In(1),
                "get": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        left, number = Signal(64), Signal(NUMBER_BITS)
        slot, last = Signal(range(SLOTS)), Signal(range(SLOTS))
        m.d.comb += [self.slot.eq(slot), self.number.eq(number)]
        with m.FSM() as fsm:
            m.d.comb += [
                self.index_ready.eq(fsm.ongoing("FILL") & ~self.clear),
                self.put.eq(self.index_ready & self.index_valid),
                self.walk_valid.eq(fsm.ongoing("WALK") & ~self.clear),
                self.element_ready.eq(fsm.ongoing("TAKE") & ~self.clear),
                self.take.eq(self.element_ready & self.element_valid),
                self.get.eq(fsm.ongoing("GIVE") & self.room & ~self.clear),
            ]
            with m.State("IDLE"):
                m.d.sync += [left.eq(self.count), slot.eq(0)]
                with m.If(self.start & (self.count != 0)):
                    m.next = "FILL"
            with m.State("FILL"):
                with m.If(self.put):
                    m.d.sync += [left.eq(left - 1), slot.eq(slot + 1), last.eq(slot)]
                    with m.If((slot == SLOTS - 1) | (left == 1)):
                        m.next = "WALK"
                with m.If(self.clear):
                    m.next = "IDLE"
            with m.State("WALK"):
                m.d.sync += [number.eq(0), slot.eq(0)]
                with m.If(self.walk_ready):
                    m.next = "TAKE"
                with m.If(self.clear):
                    m.next = "IDLE"
            with m.State("TAKE"):
                with m.If(self.take):
                    m.d.sync += number.eq(number + 1)
                    with m.If(self.element_last):
                        m.next = "GIVE"
                with m.If(self.clear):
                    m.next = "IDLE"
            with m.State("GIVE"):
                with m.If(self.get):
                    m.d.sync += slot.eq(slot + 1)
                    with m.If(slot == last):
                        m.d.sync += slot.eq(0)
                        m.next = "FILL"
                        with m.If(left == 0):
                            m.next = "IDLE"
                with m.If(self.clear):
                    m.next = "IDLE"
        return m
