"""Affine walker: a pattern's numbers, start plus the sum of step times place, one a cycle, without a multiplier."""

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from models.isa import AP_DIMS
from rtl.interfaces import ApLayout
from rtl.tiles import ClockedTile, TileLibrary


class AffineWalker(ClockedTile):
    """Members
    -------
    start, ap: begin a pattern: `addr` is the first number, strides the steps (models.gpsimd.affine).
    value: INT32 bits, modulo 2^32; the first one the cycle after `start`. next: go on to the next one; behind the last one nothing is defined.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"start": In(1), "ap": In(ApLayout()), "next": In(1), "value": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        inner = AP_DIMS - 1
        at = Signal(32, reset_less=True)
        base = [Signal(32, name=f"base{d}", reset_less=True) for d in range(inner)]
        step = [Signal(32, name=f"step{d}", reset_less=True) for d in range(AP_DIMS)]
        count = [Signal(16, name=f"count{d}", reset_less=True) for d in range(AP_DIMS)]
        left = [Signal(16, name=f"left{d}", reset_less=True) for d in range(AP_DIMS)]
        self.keep_clock(m)
        m.d.comb += self.value.eq(at)
        with m.If(self.start):
            strides = [getattr(self.ap, f"stride{d}") for d in range(AP_DIMS)]
            counts = [getattr(self.ap, f"count{d}") for d in range(AP_DIMS)]
            m.d.sync += [at.eq(self.ap.addr), *(b.eq(self.ap.addr) for b in base)]
            m.d.sync += [Cat(step).eq(Cat(strides)), Cat(count).eq(Cat(counts)), Cat(left).eq(Cat(counts))]
        with m.Elif(self.next):
            # the innermost dimension that has not ended steps, those inside it start again from there
            with m.If(left[inner] != 1):
                m.d.sync += [at.eq(at + step[inner]), left[inner].eq(left[inner] - 1)]
            for d in reversed(range(inner)):
                with m.Elif(left[d] != 1):
                    there = Signal(32, name=f"there{d}")
                    m.d.comb += there.eq(base[d] + step[d])
                    m.d.sync += [at.eq(there), left[d].eq(left[d] - 1), *(b.eq(there) for b in base[d:])]
                    m.d.sync += [left[i].eq(count[i]) for i in range(d + 1, AP_DIMS)]
        return m
