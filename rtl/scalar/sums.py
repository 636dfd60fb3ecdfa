"""Accumulators of the scalar engine: a lane's four, its adder, and what the lanes are told about them."""

from dataclasses import dataclass
from typing import Any

from amaranth import Array, C, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.fp import IDENTITY, PARTIALS
from models.isa import AluOp
from rtl.fp import add
from rtl.tiles import ClockedTile, TileLibrary

TAG_BITS = (PARTIALS - 1).bit_length()
READ_LATENCY = 2 * add.LATENCY + 1
"""Cycles from `read` to the total of all four."""
assert PARTIALS == 4
assert add.LATENCY < PARTIALS, "a sum must be back before its next element comes"


class SumLayout(data.StructLayout):
    """What the lanes are told each cycle.

    load: all accumulators become `start`. tag: which one is added to the result that is there now. put, put_tag: the adder gives this one's next value.
    halves: the adder takes numbers 0 and 1, or 2 and 3 by tag's upper bit. total: it takes both halves. show: it gives their sum. negate: that changes its sign (held).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "load": unsigned(1),
                "start": unsigned(32),
                "tag": unsigned(TAG_BITS),
                "put": unsigned(1),
                "put_tag": unsigned(TAG_BITS),
                "halves": unsigned(1),
                "total": unsigned(1),
                "show": unsigned(1),
                "negate": unsigned(1),
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SumsConfig:
    """Nothing to choose."""


class SumControl(ClockedTile):
    """Tells all lanes what to do with their accumulators.

    Members
    -------
    start: an instruction starts; `fresh`: its accumulators begin at ADD's identity. `on` (held): results go into them.
    enters: a result is in the lanes' `x` now; the first one after `start` goes to number 0. read: begin to put all four together, once an
    instruction that has no results. negate: held.
    clear: everything becomes +0, and what is under way is forgotten. forget: only the latter.
    o: SumLayout, to all lanes. o.show comes READ_LATENCY cycles after `read`.
    """

    def __init__(self, config: SumsConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        names = ("start", "fresh", "on", "enters", "read", "negate", "clear", "forget")
        super().__init__({**{n: In(1) for n in names}, "o": Out(SumLayout())})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tags = [Signal(TAG_BITS, name=n) for n in ("tag", "put_tag")]
        leaves = Signal(add.LATENCY)
        # apart from `o`, whose other fields it decides: a struct that reads itself is a loop to a simulator
        halves = Signal()
        reading = Signal(READ_LATENCY)
        for tag, moves in zip(tags, (self.enters, leaves[-1]), strict=True):
            with m.If(self.start):
                m.d.sync += tag.eq(0)
            with m.Elif(moves):
                m.d.sync += tag.eq(tag + 1)
        m.d.sync += [
            leaves.eq(Cat(self.enters & self.on, leaves[:-1])),
            reading.eq(Cat(self.read, reading[:-1])),
        ]
        with m.If(self.clear | self.forget):
            m.d.sync += [leaves.eq(0), reading.eq(0)]
        m.d.comb += [
            self.o.load.eq(self.clear | (self.start & self.fresh)),
            self.o.start.eq(Mux(self.clear, 0, IDENTITY[AluOp.ADD])),
            self.o.tag.eq(Mux(halves, Cat(C(0, 1), reading[0]), tags[0])),
            self.o.put.eq(leaves[-1]),
            self.o.put_tag.eq(tags[1]),
            halves.eq(self.read | reading[0]),
            self.o.halves.eq(halves),
            # the first half waits a cycle for the second one
            self.o.total.eq(reading[add.LATENCY]),
            self.o.show.eq(reading[-1]),
            self.o.negate.eq(self.negate),
        ]
        return m


class LaneSums(ClockedTile):
    """One lane's accumulators, +0 after reset as all state that a program can see, and the adder that they share.

    Members
    -------
    x: the FP32 result that is there now. ctl: SumLayout. mine: this lane's accumulators change.
    o: the adder's sum, its sign changed with `negate` (also a NaN's): with ctl.show that of all four.
    """

    def __init__(self, config: SumsConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"x": In(32), "ctl": In(SumLayout()), "mine": In(1), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.add = adder = self.tiles.place(add.Fp32Add, add.Fp32AddConfig())
        ctl = self.ctl
        sums = [Signal(32, name=f"sum{n}") for n in range(PARTIALS)]
        previous = Signal(32, reset_less=True)
        for n, total in enumerate(sums):
            with m.If(self.mine & ctl.load):
                m.d.sync += total.eq(ctl.start)
            with m.Elif(self.mine & ctl.put & (ctl.put_tag == n)):
                m.d.sync += total.eq(adder.o)
        m.d.sync += previous.eq(adder.o)
        upper = ctl.tag[-1]
        m.d.comb += [
            adder.a.eq(Mux(ctl.total, previous, Mux(ctl.halves, Mux(upper, sums[2], sums[0]), self.x))),
            adder.b.eq(
                Mux(ctl.total, adder.o, Mux(ctl.halves, Mux(upper, sums[3], sums[1]), Array(sums)[ctl.tag]))
            ),
            self.o.eq(adder.o ^ Cat(C(0, 31), ctl.negate)),
        ]
        return m
