"""The tensor array: groups of rows one below the other, skewed operands, de-skewed results, background load of weights."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from models.formats import MX_ROWS
from rtl.array.group import GROUP_LATENCY, ArrayGroup
from rtl.array.row import PSUM_LATENCY, ROW_LATENCY, ArrayConfig
from rtl.interfaces import LoadLayout, MovingLayout, lanes_layout
from rtl.lib.delay import delayed
from rtl.pe.operand import FP32_CODES
from rtl.tiles import ClockedTile, TileLibrary


def array_latency(partitions: int) -> int:
    """Cycles from a moving column to its result."""
    return PSUM_LATENCY + ROW_LATENCY * partitions + partitions - 1


class TensorArray(ClockedTile):
    """Weight-stationary P x P systolic array. Result m = the sum over rows k < `rows` of weight[k][m] * moving[k], from +0, in row order.

    Members
    -------
    moving_valid, moving: a column (MovingLayout), any cycle; the array never stalls.
    load_valid, load: a column of weights (LoadLayout), any cycle, into the shadow weights of array column `index`. All become active with
        the next moving column that has `swap`. A load that comes a cycle before a swap or earlier is part of it, one that comes
        with it or later is not: weights travel in step with moving operands.
        Columns of type WORD (rtl.pe.operand) move the words of a row of weights: result m is the word of weight[k][m], bit for bit, k being
        the one row whose moving word has bit 0 set. In the MOVE_SETTLE cycles after such a column none may have `swap`.
        A column of FP32 comes in FP32_PASSES cycles, one right after the other, with the codes FP32_CODES; the last pass gives the result.
    result_valid, result: P FP32 words, array_latency(P) cycles after their column. Those of columns that hold no weights mean nothing.
    """

    def __init__(self, config: ArrayConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        p = config.partitions
        super().__init__(
            {
                "moving_valid": In(1),
                "moving": In(MovingLayout(p)),
                "load_valid": In(1),
                "load": In(LoadLayout(p)),
                "result_valid": Out(1),
                "result": Out(lanes_layout(p)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        p = self.config.partitions
        above: Any = None
        moving, weights = self.moving.column, self.load.column
        for g in range(p // MX_ROWS):
            m.submodules[f"group{g}"] = group = self.tiles.place(ArrayGroup, self.config)
            rows = range(g * MX_ROWS, (g + 1) * MX_ROWS)
            operands = {
                "words": Cat(moving.data[k] for k in rows),
                "scale": moving.scale[g],
                "load_words": Cat(weights.data[k] for k in rows),
                "load_scale": weights.scale[g],
            }
            for name, value in operands.items():
                late = delayed(m, self.tiles, f"{name}_skew{g}", value, GROUP_LATENCY * g)
                target = getattr(group, name)
                m.d.comb += (target if name.endswith("scale") else target.as_value()).eq(late)
            if above is None:
                m.d.comb += [
                    group.control.rows.eq(Mux(self.moving_valid, self.moving.rows, 0)),
                    group.control.swap.eq(self.moving_valid & self.moving.swap),
                    group.control.dtype.eq(self.moving.dtype),
                    group.control.load.eq(self.load_valid),
                    group.control.load_dtype.eq(self.load.dtype),
                    group.control.load_index.eq(self.load.index),
                    group.psum_in.eq(0),
                ]
            else:
                m.d.comb += [group.control.eq(above.control_out), group.psum_in.eq(above.psum_out)]
            above = group
        out = [delayed(m, self.tiles, f"result_deskew{c}", above.psum_out[c], p - 1 - c) for c in range(p)]
        m.d.comb += self.result.as_value().eq(Cat(out))
        valid = Signal(array_latency(p))
        gives: Value = self.moving_valid
        if self.config.pe.passes:
            gives = gives & ~Cat(self.moving.dtype == code for code in FP32_CODES[:-1]).any()
        m.d.sync += valid.eq(Cat(gives, valid[:-1]))
        m.d.comb += self.result_valid.eq(valid[-1])
        return m
