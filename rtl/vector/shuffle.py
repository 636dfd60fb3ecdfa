"""Lanes of a quadrant: any lane's element to any other, and blocks of elements turned over; and what leads the turning."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from models.moves import MASK
from rtl.interfaces import lanes_layout
from rtl.tiles import ClockedTile, TileLibrary

SHUFFLE_LATENCY = 1
"""Cycles from an element of all lanes to the shuffled one."""
TRANSPOSE_LATENCY = 2
"""Cycles from a step to the element that it gives."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShuffleConfig:
    """`partitions` P in groups of `quadrant` lanes, a power of two."""

    partitions: int
    quadrant: int

    def __post_init__(self) -> None:
        if not 2 <= self.quadrant <= MASK.size or self.quadrant & (self.quadrant - 1):
            raise ValueError(f"quadrant must be a power of two from 2 to {MASK.size}, not {self.quadrant!r}")
        if self.partitions % self.quadrant:
            raise ValueError(f"partitions must be a multiple of quadrant, not {self.partitions!r}")

    @property
    def bits(self) -> int:
        """Bits of a lane's number in its quadrant."""
        return (self.quadrant - 1).bit_length()


class StepLayout(data.StructLayout):
    """What the lanes are told.

    shuffle, transpose: which of both runs (held). step: an element comes, is put away or is fetched; turn: of a block's Q elements which one;
    odd: of an odd block.
    """

    def __init__(self, bits: int) -> None:
        super().__init__(
            {
                "shuffle": unsigned(1),
                "transpose": unsigned(1),
                "step": unsigned(1),
                "turn": unsigned(bits),
                "odd": unsigned(1),
            }
        )


class ShuffleQuadrant(ClockedTile):
    """The lanes of one quadrant.

    Members
    -------
    i: an element of every lane, with `control.step`. mask: a byte a lane (held).
    o: SHUFFLE_LATENCY cycles later lane mask[n]'s element in lane n; of a transposition, TRANSPOSE_LATENCY cycles after a step, what lane `turn` had
        with step n of the block before, in lane n.
    control: StepLayout.

    A block's element of lane k and step t lies in the store of lane k + t, modulo Q: all that one step brings, and all that one step fetches, lie in
    different stores. Its place there is t in even blocks and k in odd ones, so that a step puts its elements where it fetches those of the block
    before: one store of Q words a lane holds both.
    """

    def __init__(self, config: ShuffleConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        q = config.quadrant
        super().__init__(
            {
                "i": In(lanes_layout(q)),
                "mask": In(8 * MASK.size),
                "control": In(StepLayout(config.bits)),
                "o": Out(lanes_layout(q)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        q, bits, ctl = self.config.quadrant, self.config.bits, self.control
        crossed, fetched = (Signal(lanes_layout(q), name=n, reset_less=True) for n in ("crossed", "fetched"))
        later, turn, odd = Signal(), Signal(bits), Signal()
        m.d.sync += [later.eq(ctl.step & ctl.transpose), turn.eq(ctl.turn), odd.eq(ctl.odd)]
        flat = self.i.as_value()
        stored = []
        for lane in range(q):
            back = Signal(bits, name=f"back{lane}")
            source = Signal(bits, name=f"source{lane}")
            place = Signal(bits, name=f"place{lane}")
            m.d.comb += [
                back.eq(lane - ctl.turn),
                source.eq(Mux(ctl.transpose, back, self.mask[8 * lane : 8 * lane + bits])),
                place.eq(Mux(odd, lane - turn, turn)),
            ]
            with m.If(ctl.step):
                m.d.sync += crossed[lane].eq(flat.word_select(source, 32))
            store: Any = Memory(shape=32, depth=q, init=[])
            m.submodules[f"store{lane}"] = store
            read, write = store.read_port(domain="comb"), store.write_port()
            m.d.comb += [
                read.addr.eq(place),
                write.addr.eq(place),
                write.data.eq(crossed[lane]),
                write.en.eq(later),
            ]
            stored.append(read.data)
        held: Value = Cat(stored)
        for level in range(bits):
            shifted = Signal(32 * q, name=f"shifted{level}")
            m.d.comb += shifted.eq(Mux(turn[level], held.rotate_right(32 << level), held))
            held = shifted
        with m.If(later):
            m.d.sync += fetched.as_value().eq(held)
        m.d.comb += self.o.as_value().eq(Mux(ctl.transpose, fetched.as_value(), crossed.as_value()))
        return m


class ShuffleControl(ClockedTile):
    """Steps of transpositions: Q elements in; as many steps for each further block, which give one of the block before; and Q for the last one.

    Members
    -------
    start: one cycle; forgets everything. shuffle, transpose: an instruction of this kind runs; held while results are under way.
    element, last: an element enters, the last. room: for a result.
    result: one enters the pipeline with this step; of a shuffle each element is one.
    control: to the lanes.
    """

    def __init__(self, config: ShuffleConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ins = ("start", "shuffle", "transpose", "element", "last", "room")
        super().__init__(
            {
                **{name: In(1) for name in ins},
                "result": Out(1),
                "control": Out(StepLayout(config.bits)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        turn, odd = Signal(self.config.bits), Signal()
        # full: a whole block is there. over: no more elements come
        full, over = Signal(), Signal()
        gives, step = Signal(), Signal()
        m.d.comb += [
            step.eq(self.element | (over & self.room)),
            gives.eq(self.transpose & full & step & ~self.start),
            self.result.eq(gives),
            self.control.shuffle.eq(self.shuffle),
            self.control.transpose.eq(self.transpose),
            self.control.step.eq((self.transpose & step) | (self.shuffle & self.element)),
            self.control.turn.eq(turn),
            self.control.odd.eq(odd),
        ]
        with m.If(self.start):
            m.d.sync += [turn.eq(0), odd.eq(0), full.eq(0), over.eq(0)]
        with m.Elif(self.transpose & step):
            m.d.sync += turn.eq(turn + 1)
            with m.If(self.element & self.last):
                m.d.sync += over.eq(1)
            with m.If(turn.all()):
                m.d.sync += [odd.eq(~odd), full.eq(~over)]
                with m.If(over):
                    m.d.sync += over.eq(0)
        return m


class Shuffle(ClockedTile):
    """All quadrants. Members as ShuffleControl's and ShuffleQuadrant's; stays: lanes whose entry of the mask is 255 in a shuffle."""

    def __init__(self, config: ShuffleConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        p = config.partitions
        ins = ("start", "shuffle", "transpose", "element", "last", "room")
        super().__init__(
            {
                **{name: In(1) for name in ins},
                "mask": In(8 * MASK.size),
                "i": In(lanes_layout(p)),
                "result": Out(1),
                "o": Out(lanes_layout(p)),
                "stays": Out(p),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        q = cfg.quadrant
        m.submodules.control = control = self.tiles.place(ShuffleControl, cfg)
        for name in ("start", "shuffle", "transpose", "element", "last", "room"):
            m.d.comb += getattr(control, name).eq(getattr(self, name))
        m.d.comb += self.result.eq(control.result)
        stays = Cat(self.mask[8 * n : 8 * n + 8].all() & self.shuffle for n in range(q))
        for first in range(0, cfg.partitions, q):
            m.submodules[f"quadrant{first // q}"] = unit = self.tiles.place(ShuffleQuadrant, cfg)
            m.d.comb += [
                unit.mask.eq(self.mask),
                unit.control.eq(control.control),
                self.stays[first : first + q].eq(stays),
                *(unit.i[n].eq(self.i[first + n]) for n in range(q)),
                *(self.o[first + n].eq(unit.o[n]) for n in range(q)),
            ]
        return m


def lead_moves(m: Module, unit: Any, now: Any, elements: Any, idle: Value, restart: Value) -> None:
    """What a Shuffle is told: the instruction that runs, and the elements that come for it."""
    m.d.comb += [
        unit.start.eq(restart),
        unit.shuffle.eq(now.shuffle & ~idle),
        unit.transpose.eq(now.transpose & ~idle),
        unit.mask.eq(now.issue.instr.mask),
        unit.last.eq(elements.payload.last),
        *(i.eq(x) for i, x in zip(unit.i, elements.payload.data, strict=True)),
    ]
