"""Reductions and scans: which elements go where in the lanes and when, and when a group's partial results are put together."""

from typing import Any

from amaranth import C, Module, Mux, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.fp import IDENTITY, PARTIALS
from rtl.fp import add, decode, mul
from rtl.tiles import ClockedTile, TileLibrary

ALU_LATENCY = max(add.LATENCY, mul.LATENCY)
GROUP_BITS = 32
OP_BITS = 4
TAG_BITS = (PARTIALS - 1).bit_length()
FINAL = ALU_LATENCY + 1
"""Cycles from when the second half of a group enters the second ALU to when both halves do: they wait in registers."""
LATENCY = decode.LATENCY + 2 * ALU_LATENCY + FINAL
"""Cycles from a group's last element to its result behind the second ALU."""
PACE = 2 * ALU_LATENCY + 1
"""Cycles from one element of a scan to the next: through both ALUs, into a register."""
assert PARTIALS == 4
assert ALU_LATENCY < PARTIALS, "a partial result must be back before its next element comes"


class ReduceLayout(data.StructLayout):
    """What the lanes are told each cycle, each field at the place in their pipeline where it is used.

    on: a reduction runs (held). identity: where it starts from (held). negate: results change their sign (held).
    scan: a scan runs (held), starting from `identity`. begin: its first element enters the first ALU. state: the second ALU gives its state.
    pad, fresh, tag: of the element that enters the first ALU: nothing came, it begins its partial, which partial it goes to.
    put, put_tag: the first ALU gives this partial. keep: the second ALU gives half `half`. final: both halves enter the second ALU.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "on": unsigned(1),
                "identity": unsigned(32),
                "negate": unsigned(1),
                "pad": unsigned(1),
                "fresh": unsigned(1),
                "tag": unsigned(TAG_BITS),
                "put": unsigned(1),
                "put_tag": unsigned(TAG_BITS),
                "keep": unsigned(1),
                "half": unsigned(1),
                "final": unsigned(1),
                "scan": unsigned(1),
                "begin": unsigned(1),
                "state": unsigned(1),
            }
        )


class _Step(data.StructLayout):
    """An element on its way through the lanes; `last`: of its group's last round."""

    def __init__(self) -> None:
        super().__init__(
            {
                "there": unsigned(1),
                "pad": unsigned(1),
                "fresh": unsigned(1),
                "last": unsigned(1),
                "tag": unsigned(TAG_BITS),
            }
        )


class GroupControl(ClockedTile):
    """Elements of a reduction in rounds of PARTIALS, the last round of a group filled up, one a cycle; those of a scan one every PACE cycles.

    Members
    -------
    start: one cycle; `group` (elements of a group, from 1) counts from then on. on (a reduction runs), scan (a scan runs), negate, op,
        initial (a scan's start, FP32): held while results are under way.
    valid, take: an element is there, and goes into the lanes now. room: there is room for another result.
    result: with this element (or filler) a group ends; its result comes LATENCY cycles later. Each element of a scan gives one.
    control: to the lanes.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "start": In(1),
                "group": In(GROUP_BITS),
                "on": In(1),
                "scan": In(1),
                "initial": In(32),
                "negate": In(1),
                "op": In(OP_BITS),
                "valid": In(1),
                "room": In(1),
                "take": Out(1),
                "result": Out(1),
                "control": Out(ReduceLayout()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tag, left, group = Signal(TAG_BITS), Signal(GROUP_BITS), Signal(GROUP_BITS)
        fresh, last = Signal(), Signal()
        grouped, scanned, pace = Signal(), Signal(), Signal(range(PACE))
        # apart from `step`, whose other fields they decide: a struct that reads itself is a loop to a simulator
        pad, ending = Signal(), Signal()
        step = Signal(_Step())
        ends = Signal(FINAL)
        # Both halves of an earlier group have the second ALU to themselves when this element's half would come to it.
        blocked = ending & tag[0] & ends[-1]
        m.d.comb += [
            pad.eq(left == 0),
            ending.eq(Mux(tag == 0, left <= PARTIALS, last)),
            step.pad.eq(pad),
            step.fresh.eq(fresh),
            step.last.eq(ending),
            step.tag.eq(tag),
            grouped.eq(self.on & self.room & ~blocked & (pad | self.valid) & ~self.start),
            scanned.eq(self.scan & self.room & self.valid & (pace == 0) & ~self.start),
            step.there.eq(grouped | scanned),
            self.take.eq((grouped & ~pad) | scanned),
            self.result.eq((grouped & ending & (tag == PARTIALS - 1)) | scanned),
        ]
        with m.If(self.start | (pace == 0)):
            m.d.sync += pace.eq(Mux(scanned, PACE - 1, 0))
        with m.Else():
            m.d.sync += pace.eq(pace - 1)
        m.d.sync += ends.eq((ends << 1) | self.result)
        with m.If(self.start):
            m.d.sync += [tag.eq(0), left.eq(self.group), group.eq(self.group), fresh.eq(1)]
        with m.Elif(scanned):
            m.d.sync += fresh.eq(0)
        with m.Elif(grouped):
            m.d.sync += [tag.eq(tag + 1), last.eq(ending)]
            with m.If(~pad):
                m.d.sync += left.eq(left - 1)
            with m.If(tag == PARTIALS - 1):
                m.d.sync += fresh.eq(0)
            with m.If(self.result):
                m.d.sync += [left.eq(group), fresh.eq(1)]

        stages = []
        held: Any = step
        for n in range(LATENCY):
            stage = Signal(_Step(), name=f"step{n + 1}")
            m.d.sync += stage.eq(held)
            stages.append(stage)
            held = stage
        into = stages[decode.LATENCY - 1]
        out = stages[decode.LATENCY + ALU_LATENCY - 1]
        half = stages[decode.LATENCY + 2 * ALU_LATENCY - 1]
        both = stages[decode.LATENCY + ALU_LATENCY + FINAL - 1]
        ctl = self.control
        m.d.comb += [
            ctl.on.eq(self.on),
            ctl.negate.eq(self.negate & self.on),
            ctl.pad.eq(into.pad),
            ctl.fresh.eq(into.fresh),
            ctl.tag.eq(into.tag),
            ctl.put.eq(out.there),
            ctl.put_tag.eq(out.tag),
            ctl.keep.eq(half.there & half.last & half.tag[0]),
            ctl.half.eq(half.tag[-1]),
            ctl.scan.eq(self.scan),
            ctl.begin.eq(into.fresh),
            ctl.state.eq(half.there & self.scan),
            ctl.final.eq(both.there & both.last & (both.tag == PARTIALS - 1)),
        ]
        with m.If(self.scan):
            m.d.comb += ctl.identity.eq(self.initial)
        with m.Else(), m.Switch(self.op):
            for op, code in IDENTITY.items():
                with m.Case(op.value):
                    m.d.comb += ctl.identity.eq(C(code, 32))
        return m
