"""Eight values of a lane: the largest that came, or those that elements are compared with; and what leads the lanes' lists."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.ranking import EIGHT
from rtl.fp import decode
from rtl.fp.extreme import ordered
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 1
"""Cycles from an element at the list to what takes its place in the lane."""
LOWEST = 0xFF800000
"""-Inf: with eight elements or more it stays only where it is one of them."""
INF = 0x7F800000


class RankLayout(data.StructLayout):
    """What the lanes' lists are told.

    on: the lane's elements come from the list. given: the values come from src1, otherwise they are the largest (both held). begin: the
    list starts anew. load: a value is there. put: an element is. take: the first value leaves, the others move up. Those three are at the
    list's place in the pipeline, one at a time.
    """

    def __init__(self) -> None:
        super().__init__({name: unsigned(1) for name in ("on", "given", "begin", "load", "put", "take")})


class Top8(ClockedTile):
    """Eight FP32 values in order, an element a cycle.

    Members
    -------
    x: FP32 element with `control.put`; value: FP32 value with `control.load`; neither has a NaN but the canonical one.
    number: FP32, takes a found value's place. other: FP32, what a found element is replaced by (held).
    o: LATENCY cycles after `put` the element, or `other` where it is one of the given values that was not found before; after `take` the
       first value, or, of given values, its element's number, +Inf for one that was not found.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports = {name: In(32) for name in ("x", "value", "number", "other")}
        super().__init__({**ports, "control": In(RankLayout()), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        ctl = self.control
        values = [Signal(32, name=f"value{n}", reset_less=True) for n in range(EIGHT)]
        found = [Signal(name=f"found{n}", reset_less=True) for n in range(EIGHT)]
        out = Signal(32, reset_less=True)
        above: list[Value] = []
        hits: list[Value] = []
        for n, value in enumerate(values):
            greater, same = Signal(name=f"greater{n}"), Signal(name=f"same{n}")
            m.d.comb += [greater.eq(ordered(self.x) > ordered(value)), same.eq(~found[n] & (self.x == value))]
            above.append(greater)
            hits.append(same)
        hit = Signal()
        m.d.comb += [hit.eq(ctl.given & Cat(hits).any()), self.o.eq(out)]
        first = Mux(ctl.given & ~found[0], INF, values[0])
        m.d.sync += out.eq(Mux(ctl.take, first, Mux(hit, self.other, self.x)))
        with m.If(ctl.begin):
            m.d.sync += [*(value.eq(LOWEST) for value in values), *(f.eq(0) for f in found)]
        with m.Elif(ctl.load | ctl.take):
            m.d.sync += [values[n].eq(values[n + 1]) for n in range(EIGHT - 1)]
            m.d.sync += [found[n].eq(found[n + 1]) for n in range(EIGHT - 1)]
            m.d.sync += [values[-1].eq(self.value), found[-1].eq(0)]
        with m.Elif(ctl.put & ctl.given):
            # of equal values the first that is still looked for
            for n, same in enumerate(hits):
                with m.If(same) if n == 0 else m.Elif(same):
                    m.d.sync += [values[n].eq(self.number), found[n].eq(1)]
        with m.Elif(ctl.put):
            for n in range(EIGHT):
                with m.If(above[n]):
                    m.d.sync += values[n].eq(Mux(above[n - 1], values[n - 1], self.x) if n else self.x)
        return m


class RankControl(ClockedTile):
    """Eight values from src1 where they are given, then elements, then eight results where these are the list.

    Members
    -------
    start: one cycle; forgets everything. on, given, listed: an instruction of this kind runs, with values from src1, with the list as its
        result; held while results are under way.
    there, load: a value of src1 is there, and is taken.
    open: elements may enter the lanes. element, last: one does, the last.
    room, result: there is room for a result; one of the list's enters the lanes' pipeline.
    control: to the lanes, decode.LATENCY cycles later.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ins = ("start", "on", "given", "listed", "there", "element", "last", "room")
        outs = {name: Out(1) for name in ("load", "open", "result")}
        super().__init__({**{name: In(1) for name in ins}, **outs, "control": Out(RankLayout())})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        kept, owed = Signal(range(EIGHT + 1)), Signal(range(EIGHT + 1))
        m.d.comb += [
            self.load.eq(self.on & self.given & self.there & (kept != EIGHT) & ~self.start),
            self.open.eq(~self.on | ~self.given | (kept == EIGHT)),
            self.result.eq((owed != 0) & self.room & ~self.start),
        ]
        with m.If(self.start):
            m.d.sync += [kept.eq(0), owed.eq(0)]
        with m.Else():
            m.d.sync += kept.eq(kept + self.load)
            with m.If(self.on & self.listed & self.element & self.last):
                m.d.sync += owed.eq(EIGHT)
            with m.Elif(self.result):
                m.d.sync += owed.eq(owed - 1)
        steps: Value = Cat(self.load, self.element & self.on, self.result)
        for stage in range(decode.LATENCY):
            held = Signal(3, name=f"steps{stage}")
            m.d.sync += held.eq(Mux(self.start, 0, steps))
            steps = held
        ctl = self.control
        m.d.comb += [
            ctl.on.eq(self.on),
            ctl.given.eq(self.given),
            ctl.begin.eq(self.start),
            Cat(ctl.load, ctl.put, ctl.take).eq(steps),
        ]
        return m
