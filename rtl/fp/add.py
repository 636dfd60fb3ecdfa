"""FP32 adder."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux
from amaranth.lib.wiring import In, Out

from rtl.fp.step import LATENCY as STEP_LATENCY
from rtl.fp.step import Fp32Step, StepConfig
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = STEP_LATENCY
"""Cycles from `a` and `b` to `o`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fp32AddConfig:
    """`moves`: the adder can also hand on `b` as it is."""

    moves: bool = False


class Fp32Add(ClockedTile):
    """o = RNE_fp32(a + b), LATENCY cycles later; one a cycle, never stalls. Subnormals kept, NaN canonical.

    move (where it can): o = b, bit for bit, in the same time.
    """

    def __init__(self, config: Fp32AddConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"a": In(32), "b": In(32), "o": Out(32)} | ({"move": In(1)} if config.moves else {}))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.step = step = self.tiles.place(Fp32Step, StepConfig(bits=24, moves=self.config.moves))
        exp, frac = self.b[23:31], self.b[:23]
        m.d.comb += [
            step.a.eq(self.a),
            step.addend.mag.eq(Cat(frac, exp.any())),
            step.addend.neg.eq(self.b[31]),
            step.addend.exp.eq(Cat(exp, C(0, 1)).as_signed() - Mux(exp.any(), 150, 149)),
            step.addend.inf.eq(exp.all() & ~frac.any()),
            step.addend.nan.eq(exp.all() & frac.any()),
            self.o.eq(step.o),
        ]
        if self.config.moves:
            m.d.comb += [step.word.eq(self.b), step.addend.move.eq(self.move)]
        return m
