"""Delay line: what comes in goes out a fixed number of cycles later."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from rtl.tiles import ClockedTile, TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class DelayConfig:
    """`width` bits, `cycles` cycles."""

    width: int
    cycles: int

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, not {self.width!r}")
        if self.cycles < 1:
            raise ValueError(f"cycles must be at least 1, not {self.cycles!r}")


class Delay(ClockedTile):
    """o is i, `cycles` cycles later. Not reset: what was under way comes out."""

    def __init__(self, config: DelayConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"i": In(config.width), "o": Out(config.width)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        width, cycles = self.config.width, self.config.cycles
        # One wide register, which is a line of Verilog and a copy of words in a simulator, however long the delay.
        held = Signal(width * cycles, reset_less=True)
        m.d.sync += held.eq(Cat(self.i, held[: width * (cycles - 1)]))
        m.d.comb += self.o.eq(held[width * (cycles - 1) :])
        return m


def delayed(m: Module, tiles: TileLibrary, name: str, value: Any, cycles: int) -> Any:
    """`value`, any number of cycles later: a chain of power-of-two delays, of which there are few distinct tiles."""
    for bit in range(cycles.bit_length()):
        if cycles >> bit & 1:
            line = tiles.place(Delay, DelayConfig(width=len(value), cycles=1 << bit))
            m.submodules[f"{name}_{1 << bit}"] = line
            m.d.comb += line.i.eq(value)
            value = line.o
    return value
