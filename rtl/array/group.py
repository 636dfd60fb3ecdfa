"""Eight rows of the tensor array, which share a block scale."""

from typing import Any

from amaranth import Module
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.formats import MX_ROWS
from rtl.array.row import ROW_LATENCY, ArrayConfig, ArrayRow, RowControlLayout
from rtl.interfaces import lanes_layout
from rtl.lib.delay import delayed
from rtl.tiles import ClockedTile, TileLibrary

GROUP_LATENCY = MX_ROWS * ROW_LATENCY
"""Cycles by which each group is behind the group above it."""


class ArrayGroup(ClockedTile):
    """MX_ROWS rows one below the other.

    Members
    -------
    words, scale: the rows' moving operands. load_words, load_scale: their stationary ones. All with `control`, not skewed.
    control, control_out: as ArrayRow's, GROUP_LATENCY cycles apart.
    psum_in, psum_out: as ArrayRow's; psum_out GROUP_LATENCY cycles after psum_in.
    """

    def __init__(self, config: ArrayConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        words = data.ArrayLayout(32, MX_ROWS)
        super().__init__(
            {
                "words": In(words),
                "scale": In(8),
                "load_words": In(words),
                "load_scale": In(8),
                "control": In(RowControlLayout(config)),
                "control_out": Out(RowControlLayout(config)),
                "psum_in": In(lanes_layout(config.partitions)),
                "psum_out": Out(lanes_layout(config.partitions)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        control, psum = self.control, self.psum_in
        for k in range(MX_ROWS):
            m.submodules[f"row{k}"] = row = self.tiles.place(ArrayRow, self.config)
            for name, value in (
                ("word", self.words[k]),
                ("scale", self.scale),
                ("load_word", self.load_words[k]),
                ("load_scale", self.load_scale),
            ):
                late = delayed(m, self.tiles, f"{name}_skew{k}", value, ROW_LATENCY * k)
                m.d.comb += getattr(row, name).eq(late)
            m.d.comb += [row.control.eq(control), row.psum_in.eq(psum)]
            control, psum = row.control_out, row.psum_out
        m.d.comb += [self.control_out.eq(control), self.psum_out.eq(psum)]
        return m
