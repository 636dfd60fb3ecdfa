"""Lanes of the scalar engine as one tile, so that an engine of many lanes is little Verilog."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Mux
from amaranth.lib.wiring import In, Out

from models.microcode import OPERANDS
from rtl.interfaces import mac_code_bits
from rtl.scalar.lane import ScalarLane, ScalarLaneConfig, StepLayout
from rtl.scalar.sums import SumLayout
from rtl.scalar.wide import WideLayout
from rtl.tiles import ClockedTile, TileLibrary

GROUP = 8
"""Lanes of a tile; the number of partitions is a multiple of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalarLanesConfig:
    """Nothing to choose."""


class ScalarLanes(ClockedTile):
    """GROUP ScalarLane side by side. Members are theirs; `raw`, `biases` and `o` have 32 bits a lane, `mine` one, the first lane's lowest.

    own_bias: each lane takes its own word of `biases`, instead of `bias` for all.
    """

    def __init__(self, config: ScalarLanesConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        code = mac_code_bits()
        super().__init__(
            {
                "step": In(StepLayout()),
                **{f"constant_{name}": In(WideLayout()) for name in OPERANDS},
                "raw": In(32 * GROUP),
                "dtype": In(code),
                "scale": In(WideLayout()),
                "own_bias": In(1),
                "bias": In(32),
                "biases": In(32 * GROUP),
                "o_dtype": In(code),
                "saturate": In(1),
                "sums": In(SumLayout()),
                "mine": In(GROUP),
                "o": Out(32 * GROUP),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for i in range(GROUP):
            m.submodules[f"lane{i}"] = lane = self.tiles.place(ScalarLane, ScalarLaneConfig())
            own = slice(32 * i, 32 * (i + 1))
            for name in (
                "step",
                "dtype",
                "scale",
                "o_dtype",
                "saturate",
                "sums",
                *(f"constant_{n}" for n in OPERANDS),
            ):
                m.d.comb += getattr(lane, name).eq(getattr(self, name))
            m.d.comb += [
                lane.raw.eq(self.raw[own]),
                lane.bias.eq(Mux(self.own_bias, self.biases[own], self.bias)),
                lane.mine.eq(self.mine[i]),
                self.o[own].eq(lane.o),
            ]
        return m
