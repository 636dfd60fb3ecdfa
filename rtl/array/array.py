"""The tensor array: P rows one below the other, skewed operands, de-skewed results, background load of weights."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from models.formats import MX_ROWS
from rtl.array.row import PSUM_LATENCY, ROW_LATENCY, ArrayConfig, ArrayRow
from rtl.interfaces import LoadLayout, MovingLayout, lanes_layout
from rtl.lib.delay import Delay, DelayConfig
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

    def _delayed(self, m: Module, name: str, value: Any, cycles: int) -> Any:
        """A delay made of power-of-two ones, of which there are few distinct tiles."""
        for bit in range(cycles.bit_length()):
            if cycles >> bit & 1:
                line = self.tiles.place(Delay, DelayConfig(width=len(value), cycles=1 << bit))
                m.submodules[f"{name}_{1 << bit}"] = line
                m.d.comb += line.i.eq(value)
                value = line.o
        return value

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        p = self.config.partitions
        above: Any = None
        for k in range(p):
            m.submodules[f"row{k}"] = row = self.tiles.place(ArrayRow, self.config)
            moving, weights = self.moving.column, self.load.column
            operands = {
                "word": moving.data[k],
                "scale": moving.scale[k // MX_ROWS],
                "load_word": weights.data[k],
                "load_scale": weights.scale[k // MX_ROWS],
            }
            for name, value in operands.items():
                delayed = self._delayed(m, f"{name}_skew{k}", value, ROW_LATENCY * k)
                m.d.comb += getattr(row, name).eq(delayed)
            if above is None:
                m.d.comb += [
                    row.control.rows.eq(Mux(self.moving_valid, self.moving.rows, 0)),
                    row.control.swap.eq(self.moving_valid & self.moving.swap),
                    row.control.dtype.eq(self.moving.dtype),
                    row.control.load.eq(self.load_valid),
                    row.control.load_dtype.eq(self.load.dtype),
                    row.control.load_index.eq(self.load.index),
                    row.psum_in.eq(0),
                ]
            else:
                m.d.comb += [row.control.eq(above.control_out), row.psum_in.eq(above.psum_out)]
            above = row
        out = [self._delayed(m, f"result_deskew{c}", above.psum_out[c], p - 1 - c) for c in range(p)]
        m.d.comb += self.result.as_value().eq(Cat(out))
        valid = Signal(array_latency(p))
        m.d.sync += valid.eq(Cat(self.moving_valid, valid[:-1]))
        m.d.comb += self.result_valid.eq(valid[-1])
        return m
