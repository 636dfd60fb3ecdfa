"""A lane under its sequencer, joined as the scalar engine joins them."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring

from models.microcode import OPERANDS
from rtl.scalar.lane import ScalarLane, ScalarLaneConfig
from rtl.scalar.sequencer import MicroSequencer, MicroSequencerConfig
from rtl.tiles import TileLibrary


class Pair(wiring.Component):
    """`sequencer` and `lane` are its parts; a bench drives their free ports."""

    def __init__(self) -> None:
        tiles = TileLibrary(inline=True)
        self.sequencer = MicroSequencer(MicroSequencerConfig(), tiles=tiles)
        self.lane = ScalarLane(ScalarLaneConfig(), tiles=tiles)
        super().__init__({})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.sequencer, m.submodules.lane = self.sequencer, self.lane
        m.d.comb += self.lane.step.eq(self.sequencer.step)
        for name in OPERANDS:
            port = f"constant_{name}"
            m.d.comb += getattr(self.lane, port).eq(getattr(self.sequencer, port))
        return m
