"""One row of the tensor array: operand decoders at its west edge, P PEs, control passed on to the next row."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.interfaces import lanes_layout, mac_code_bits
from rtl.pe.decode import DecoderConfig, OperandDecoder
from rtl.pe.operand import OperandLayout, PeConfig
from rtl.pe.pe import LEFT_BITS, PRODUCT_LATENCY, STEP_LATENCY, ProcessingElement
from rtl.tiles import ClockedTile, TileLibrary

PSUM_LATENCY = 1 + PRODUCT_LATENCY
"""Cycles from a word at `word` to when column 0 takes the partial sum that it is added to (column m: m cycles more)."""
ROW_LATENCY = STEP_LATENCY
"""Cycles by which each row is behind the row above it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrayConfig:
    """P x P PEs of one kind."""

    partitions: int
    pe: PeConfig

    def __post_init__(self) -> None:
        if self.partitions < 8 or self.partitions % 8:
            raise ValueError(f"partitions must be a multiple of 8, not {self.partitions!r}")


class RowControlLayout(data.StructLayout):
    """What goes from row to row: rows still to take part, swap, moving type; load pulse, its type and column."""

    def __init__(self, config: ArrayConfig):
        super().__init__(
            {
                "rows": unsigned(config.partitions.bit_length()),
                "swap": unsigned(1),
                "dtype": unsigned(mac_code_bits()),
                "load": unsigned(1),
                "load_dtype": unsigned(mac_code_bits()),
                "load_index": unsigned((config.partitions - 1).bit_length()),
            }
        )


class ArrayRow(ClockedTile):
    """P processing elements side by side.

    Members
    -------
    word, scale: this row's moving operand. load_word, load_scale: its stationary operand. Both with `control`.
    control, control_out: RowControlLayout; out is in, ROW_LATENCY cycles later, with one row less to go.
    psum_in, psum_out: partial sums, column m's taken PSUM_LATENCY + m cycles after its operand, given ROW_LATENCY cycles after that.
    """

    def __init__(self, config: ArrayConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "word": In(32),
                "scale": In(8),
                "load_word": In(32),
                "load_scale": In(8),
                "control": In(RowControlLayout(config)),
                "control_out": Out(RowControlLayout(config)),
                "psum_in": In(lanes_layout(config.partitions)),
                "psum_out": Out(lanes_layout(config.partitions)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        pe = self.config.pe
        takes_part = self.control.rows.any()
        m.submodules.moving = decode = self.tiles.place(
            OperandDecoder, DecoderConfig(pe=pe, stationary=False)
        )
        m.submodules.stationary = load = self.tiles.place(
            OperandDecoder, DecoderConfig(pe=pe, stationary=True)
        )
        m.d.comb += [
            decode.word.eq(self.word),
            decode.scale.eq(self.scale),
            decode.dtype.eq(self.control.dtype),
            decode.active.eq(takes_part),
            decode.swap.eq(self.control.swap),
            load.word.eq(self.load_word),
            load.scale.eq(self.load_scale),
            load.dtype.eq(self.control.load_dtype),
            load.active.eq(self.control.load),
            load.swap.eq(0),
        ]
        moving = Signal(OperandLayout(pe), reset_less=True)
        stationary = Signal(OperandLayout(pe), reset_less=True)
        left = Signal(LEFT_BITS, reset_less=True)
        m.d.sync += [
            moving.eq(decode.operand),
            stationary.eq(load.operand),
            left.eq(self.control.load_index),
        ]

        out = []
        for column in range(self.config.partitions):
            m.submodules[f"pe{column}"] = element = self.tiles.place(ProcessingElement, pe)
            m.d.comb += [
                element.moving.eq(moving),
                element.load.eq(stationary),
                element.left.eq(left),
                element.psum_in.eq(self.psum_in[column]),
            ]
            moving, stationary, left = element.moving_out, element.load_out, element.left_out
            out.append(element.psum_out)
        m.d.comb += self.psum_out.as_value().eq(Cat(out))

        passed = self.control
        for stage in range(ROW_LATENCY):
            held = Signal(RowControlLayout(self.config), name=f"control_{stage}")
            m.d.sync += held.eq(passed)
            if stage == 0:
                m.d.sync += held.rows.eq(self.control.rows - takes_part)
            passed = held
        m.d.comb += self.control_out.eq(passed)
        return m
