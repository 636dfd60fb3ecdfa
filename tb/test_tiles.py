"""Tile library: one module a distinct tile, stable names, and the same behaviour inlined and tiled."""

import random
import re
from dataclasses import dataclass

import pytest
from amaranth import Module, Signal
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from rtl.tiles import ClockedTile, Placed, TileLibrary, module_name, port_name
from sim.emit import emit_tile, placed_tiles
from sim.runner import run_bench


@dataclass(frozen=True, kw_only=True, slots=True)
class AddConfig:
    """A constant to add, and a width."""

    constant: int
    width: int = 8


class AddTile(ClockedTile):
    """o is i + constant, a cycle later."""

    def __init__(self, config, *, tiles):
        self.config = config
        super().__init__({"i": In(config.width), "o": Out(config.width)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.i + self.config.constant)
        return m


class ChainTile(ClockedTile):
    """Two adders of `constant`, one of 1, in a row: three cycles."""

    def __init__(self, config, *, tiles):
        self.config, self.tiles = config, tiles
        super().__init__({"i": In(config.width), "o": Out(config.width)})

    def elaborate(self, platform):
        m = Module()
        value = self.i
        for n, constant in enumerate((self.config.constant, self.config.constant, 1)):
            add = self.tiles.place(AddTile, AddConfig(constant=constant))
            m.submodules[f"add{n}"] = add
            m.d.comb += add.i.eq(value)
            value = add.o
        m.d.comb += self.o.eq(value)
        return m


class PureTile(ClockedTile):
    """Combinational, but with clock and reset ports."""

    def __init__(self, config, *, tiles):
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        self.keep_clock(m)
        m.d.comb += self.o.eq(~self.i)
        return m


CHAIN = AddConfig(constant=5)


def test_each_distinct_tile_is_emitted_once():
    modules = emit_tile(ChainTile, CHAIN)
    assert len(modules) == 3
    top = next(iter(modules))
    counts = placed_tiles(modules[top], set(modules))
    assert sorted(counts.values()) == [1, 2]
    assert sum(len(re.findall(r"^module ", text, re.MULTILINE)) for text in modules.values()) == 3
    inlined = emit_tile(ChainTile, CHAIN, inline=True)
    assert len(inlined) == 1


def test_output_is_byte_identical():
    assert emit_tile(ChainTile, CHAIN) == emit_tile(ChainTile, CHAIN)


def test_names_follow_class_and_configuration():
    a, b = module_name(AddTile, CHAIN), module_name(AddTile, AddConfig(constant=6))
    assert a != b
    assert re.fullmatch(r"add_tile_[0-9a-f]{8}", a)
    assert a == module_name(AddTile, AddConfig(constant=5))
    assert port_name(("o", "payload", 3)) == "o__payload__3"


def test_placed_has_the_signature_of_the_tile():
    tiles = TileLibrary()
    placed = tiles.place(AddTile, CHAIN)
    real = TileLibrary(inline=True).place(AddTile, CHAIN)
    for unused in (placed, real):
        unused._MustUse__silence = True
    assert isinstance(placed, Placed)
    assert isinstance(real, AddTile)
    assert placed.signature == real.signature


def test_combinational_tiles_keep_their_clock():
    text = next(iter(emit_tile(PureTile, CHAIN).values()))
    assert re.search(r"input clk;", text)


@pytest.mark.parametrize("inline", [True, False])
def test_inlined_and_tiled_netlists_agree_in_simulation(inline):
    run_bench(ChainTile, CHAIN, "tb.tb_tiles", simulator="icarus", inline=inline)


def test_inlined_in_amaranths_own_simulator():
    rng = random.Random(3)
    dut = ChainTile(CHAIN, tiles=TileLibrary(inline=True))
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sent: list[int] = []

    async def bench(ctx):
        for n in range(50):
            sent.append(rng.randrange(256))
            ctx.set(dut.i, sent[-1])
            if n >= 3:
                assert ctx.get(dut.o) == (sent[n - 3] + 11) % 256
            await ctx.tick()

    sim.add_testbench(bench)
    sim.run()
    assert len(sent) == 50
    assert isinstance(dut.i, Signal)
