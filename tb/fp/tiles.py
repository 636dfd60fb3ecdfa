"""Tiles around functions of rtl/fp, so that benches can drive them."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Signal, signed
from amaranth.lib.wiring import In, Out

from rtl.fp.extreme import extreme
from rtl.fp.round import EXP_BITS, round_pack
from rtl.tiles import ClockedTile, TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtremeConfig:
    """Nothing to choose."""


class ExtremeTile(ClockedTile):
    """o is maximum(a, b) where `largest`, else minimum(a, b); a cycle later."""

    def __init__(self, config: ExtremeConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"a": In(32), "b": In(32), "largest": In(1), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.sync += self.o.eq(extreme(m, "best", self.a, self.b, self.largest))
        return m


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundConfig:
    """`bits` of the magnitude."""

    bits: int


class RoundTile(ClockedTile):
    """o is the rounded and packed number; a cycle later. `lsb` is two's complement."""

    def __init__(self, config: RoundConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "mag": In(config.bits),
                "neg": In(1),
                "lsb": In(EXP_BITS),
                "inf": In(1),
                "nan": In(1),
                "o": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        lsb = Signal(signed(EXP_BITS))
        m.d.comb += lsb.eq(self.lsb)
        m.d.sync += self.o.eq(
            round_pack(m, "number", mag=self.mag, neg=self.neg, lsb=lsb, inf=self.inf, nan=self.nan)
        )
        return m
