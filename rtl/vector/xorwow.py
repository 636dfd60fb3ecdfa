"""Random numbers: one XORWOW generator in each lane, and what seeds, draws, stores and loads them all."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.xorwow import FRACTION, ROUNDS, START, STEP, WORDS
from rtl.interfaces import lanes_layout
from rtl.tiles import ClockedTile, TileLibrary

THRESHOLD_BITS = 33
BIAS = 127


class XorwowLayout(data.StructLayout):
    """What a generator does: `begin` takes seed and lane, `round` steps with its result in the place of v, `draw` steps, `shift` moves the state

    by one word, with `load` a new one into its end instead of its first. One of them at a time.
    """

    def __init__(self) -> None:
        super().__init__({name: unsigned(1) for name in ("begin", "round", "draw", "shift", "load")})


class Xorwow(ClockedTile):
    """A generator, a word a cycle.

    Members
    -------
    control: XorwowLayout, with `mine`. seed, lane: with control.begin. new: with control.load.
    word: what a draw takes. first: the state's first word. Until the first `begin` they mean nothing.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ins = {"control": In(XorwowLayout()), "mine": In(1), "seed": In(32), "lane": In(8), "new": In(32)}
        super().__init__({**ins, "word": Out(32), "first": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        ctl = self.control
        state = [Signal(32, name=name, reset_less=True) for name in "xyzwvd"]
        x, _, _, _, v, d = state
        t, after, count = Signal(32), Signal(32), Signal(32)
        m.d.comb += [
            t.eq(x ^ (x >> 2)),
            after.eq((v ^ (v << 4)) ^ (t ^ (t << 1))),
            count.eq(d + STEP),
            self.word.eq(after + count),
            self.first.eq(x),
        ]
        with m.If(self.mine & ctl.begin):
            m.d.sync += [word.eq(start) for word, start in zip(state, START, strict=True)]
            m.d.sync += [state[0].eq(START[0] ^ self.seed), state[1].eq(START[1] ^ self.lane)]
        with m.Elif(self.mine & (ctl.round | ctl.draw | ctl.shift)):
            m.d.sync += [
                *(state[n].eq(state[n + 1]) for n in range(WORDS - 2)),
                v.eq(Mux(ctl.shift, d, Mux(ctl.round, self.word, after))),
                d.eq(Mux(ctl.shift, Mux(ctl.load, self.new, x), count)),
            ]
        return m


def lead_random(m: Module, unit: Any, now: Any, clear: Value, element: Value, new: Any) -> None:
    """What a RandomUnit is told: the instruction that runs, and the elements that enter the lanes."""
    instr = now.issue.instr
    m.d.comb += [
        unit.clear.eq(clear),
        unit.on.eq(now.draws | now.random | now.load),
        unit.element.eq(element),
        unit.draws.eq(now.draws),
        unit.store.eq(now.random & ~now.draws),
        unit.load.eq(now.load),
        unit.parts.eq(instr.parts),
        unit.seed.eq(instr.imm0),
        unit.whole.eq(now.copy),
        unit.bits.eq(instr.axes),
        unit.probability.eq(instr.imm0),
        unit.new.eq(new),
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomConfig:
    """`partitions` P."""

    partitions: int


class RandomUnit(ClockedTile):
    """All lanes' generators. From reset on, and after a clear, they take ROUNDS + 1 cycles to get seed 0.

    Members
    -------
    clear: seed 0 for all lanes. start: one cycle; a lane below `parts` gets `seed`, as it is from the next cycle on, when what was begun before is done. busy: one of them is under way.
    on: an instruction uses the generators (held). open: its elements may enter; `element`: one does. draws, store, load: what it does with it, of
        lanes below `parts` (held): takes a word, the state's next word, or puts `new` into the state; else nothing.
    whole, bits: what `o` is of a word drawn (held): itself, or the number of its upper FRACTION bits, all but the first `bits` of them cleared.
    probability: FP32 from +0 to 1, held from two cycles before the first element on. keep: of each lane, whether its word is not below it.
    """

    def __init__(self, config: RandomConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        flags = ("clear", "start", "on", "element", "draws", "store", "load", "whole")
        lanes = lanes_layout(config.partitions)
        super().__init__(
            {name: In(1) for name in flags}
            | {"parts": In(8), "seed": In(32), "bits": In(5), "probability": In(32), "new": In(lanes)}
            | {"busy": Out(1), "open": Out(1), "o": Out(lanes), "keep": Out(config.partitions)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        left, every = Signal(range(ROUNDS + 2), init=ROUNDS + 1), Signal(init=1)
        seed, wanted = Signal(32), Signal()
        control = Signal(XorwowLayout())
        begins, rounds = left == ROUNDS + 1, (left != 0) & (left <= ROUNDS)
        m.d.comb += [
            self.busy.eq((left != 0) | wanted),
            self.open.eq(~self.on | ~self.busy),
            control.begin.eq(begins),
            control.round.eq(rounds),
            control.draw.eq(self.element & self.draws),
            control.shift.eq(self.element & (self.store | self.load)),
            control.load.eq(self.load),
        ]
        with m.If(self.clear):
            m.d.sync += [left.eq(ROUNDS + 1), every.eq(1), seed.eq(0), wanted.eq(0)]
        with m.Elif(left != 0):
            m.d.sync += [left.eq(left - 1), wanted.eq(wanted | self.start)]
        with m.Elif(wanted):
            m.d.sync += [left.eq(ROUNDS + 1), every.eq(0), seed.eq(self.seed), wanted.eq(0)]
        with m.Elif(self.start):
            m.d.sync += wanted.eq(1)
        kept = Signal(FRACTION)
        for n in range(FRACTION):
            m.d.comb += kept[FRACTION - 1 - n].eq(self.bits > n)
        limit = self._threshold(m)
        for i in range(self.config.partitions):
            m.submodules[f"lane{i}"] = lane = self.tiles.place(Xorwow, None)
            upper = lane.word[32 - FRACTION :] & kept
            m.d.comb += [
                lane.control.eq(control),
                lane.mine.eq(Mux(left != 0, every, 0) | (self.parts > i)),
                lane.seed.eq(seed),
                lane.lane.eq(i),
                lane.new.eq(self.new[i]),
                self.o[i].eq(Mux(self.store, lane.first, Mux(self.whole, lane.word, upper))),
                self.keep[i].eq(lane.word >= limit),
            ]
        return m

    def _threshold(self, m: Module) -> Signal:
        """The least number that is not below probability * 2^32."""
        exp, frac = self.probability[23:31], self.probability[:23]
        deepest = THRESHOLD_BITS + 1
        distance, far = Signal(8), Signal(range(deepest + 1))
        shifted, limit = Signal(deepest + THRESHOLD_BITS), Signal(THRESHOLD_BITS)
        sig: Value = Cat(C(0, deepest + THRESHOLD_BITS - 24), frac, exp.any())
        m.d.comb += [
            distance.eq(BIAS - Mux(exp.any(), exp, 1)),
            far.eq(Mux(distance > deepest, deepest, distance)),
            shifted.eq(sig >> far),
        ]
        m.d.sync += limit.eq(shifted[deepest:] + shifted[:deepest].any())
        return limit
