"""Number of elements of an access pattern: the product of its four counts."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Mux, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.isa import AP_DIMS
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = AP_DIMS
"""Cycles from `start` to `size`."""
COUNT_BITS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeConfig:
    """`bits` of the result: sizes that do not fit read as the largest number."""

    bits: int = 32

    def __post_init__(self) -> None:
        if self.bits < COUNT_BITS:
            raise ValueError(f"bits must be at least {COUNT_BITS}, not {self.bits!r}")


class PatternSize(ClockedTile):
    """One multiplication a cycle.

    Members
    -------
    start, counts: sampled together; a new start drops the one under way.
    size: saturated product, valid LATENCY cycles after `start` and until the next; exact 0 where any count is 0.
    """

    def __init__(self, config: SizeConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "start": In(1),
                "counts": In(data.ArrayLayout(unsigned(COUNT_BITS), AP_DIMS)),
                "size": Out(config.bits),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bits = self.config.bits
        rest = Signal(COUNT_BITS * AP_DIMS)
        left = Signal(range(AP_DIMS + 1))
        size = Signal(bits)
        product = Signal(bits + COUNT_BITS)
        m.d.comb += [
            self.size.eq(size),
            product.eq(size * rest[:COUNT_BITS]),
        ]
        with m.If(left != 0):
            m.d.sync += [
                left.eq(left - 1),
                rest.eq(rest >> COUNT_BITS),
                size.eq(Mux(product[bits:].any(), (1 << bits) - 1, product[:bits])),
            ]
        with m.If(self.start):
            m.d.sync += [
                rest.eq(self.counts.as_value() >> COUNT_BITS),
                left.eq(AP_DIMS - 1),
                size.eq(self.counts[0]),
            ]
        return m
