"""Reduction across lanes: a binary tree whose levels each take a few ALUs four times."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from rtl.interfaces import lanes_layout
from rtl.tiles import ClockedTile, TileLibrary
from rtl.vector.groups import ALU_LATENCY, OP_BITS
from rtl.vector.lane import AluConfig, VectorAlu

PACE = 4
"""Cycles from one element to the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeConfig:
    """`lanes` that come in, a power of two from 2."""

    lanes: int

    def __post_init__(self) -> None:
        if self.lanes < 2 or self.lanes & (self.lanes - 1):
            raise ValueError(f"lanes must be a power of two from 2, not {self.lanes!r}")

    @property
    def passes(self) -> int:
        """Cycles in which a level's ALUs take its pairs."""
        return min(PACE, self.lanes // 2)

    @property
    def alus(self) -> int:
        """ALUs of the first level."""
        return self.lanes // 2 // self.passes

    @property
    def level_latency(self) -> int:
        """Cycles of the first level."""
        return self.passes + ALU_LATENCY + 1

    @property
    def latency(self) -> int:
        """Cycles of the whole tree."""
        rest = TreeConfig(lanes=self.lanes // 2).latency if self.lanes > 2 else 0
        return self.level_latency + rest


class TreeLevel(ClockedTile):
    """Lane k of `o` is lane 2k op lane 2k + 1 of `data` in FP32, `level_latency` cycles later, for one cycle.

    Ports: valid, data, op (AluOp, held); o_valid, o; clear: what is under way never becomes valid. One element every PACE cycles.
    """

    def __init__(self, config: TreeConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "valid": In(1),
                "data": In(lanes_layout(config.lanes)),
                "op": In(OP_BITS),
                "clear": In(1),
                "o_valid": Out(1),
                "o": Out(lanes_layout(config.lanes // 2)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        width = 64 * cfg.alus
        held = Signal(32 * cfg.lanes, reset_less=True)
        out = Signal(16 * cfg.lanes, reset_less=True)
        results = []
        for k in range(cfg.alus):
            m.submodules[f"alu{k}"] = alu = self.tiles.place(VectorAlu, AluConfig())
            pair = held[64 * k : 64 * (k + 1)]
            m.d.comb += [alu.a.eq(pair[:32]), alu.b.eq(pair[32:]), alu.op.eq(self.op)]
            results.append(alu.o)
        # the pass that enters the ALUs, and those in them: bit n: n cycles after `valid`
        under_way = Signal(cfg.level_latency)
        m.d.sync += under_way.eq((under_way << 1) | self.valid)
        m.d.sync += held.eq(held >> width)
        with m.If(self.valid):
            m.d.sync += held.eq(self.data)
        with m.If(under_way[ALU_LATENCY : ALU_LATENCY + cfg.passes].any()):
            m.d.sync += out.eq(Cat(out, *results)[width // 2 :])
        with m.If(self.clear):
            m.d.sync += under_way.eq(0)
        m.d.comb += [self.o_valid.eq(under_way[-1]), self.o.as_value().eq(out)]
        return m


class ReduceTree(ClockedTile):
    """`o` is all lanes of `data` reduced with `op`, `latency` cycles later, for one cycle (models.gpsimd.tree). One element every PACE cycles.

    Ports: valid, data, op (AluOp, held); o_valid, o (FP32); clear: what is under way never becomes valid.
    """

    def __init__(self, config: TreeConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "valid": In(1),
                "data": In(lanes_layout(config.lanes)),
                "op": In(OP_BITS),
                "clear": In(1),
                "o_valid": Out(1),
                "o": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        valid: Any = self.valid
        lanes: Any = self.data.as_value()
        count = self.config.lanes
        while count > 1:
            level = self.tiles.place(TreeLevel, TreeConfig(lanes=count))
            m.submodules[f"level{count}"] = level
            m.d.comb += [
                level.valid.eq(valid),
                level.data.as_value().eq(lanes),
                level.op.eq(self.op),
                level.clear.eq(self.clear),
            ]
            valid, lanes, count = level.o_valid, level.o.as_value(), count // 2
        m.d.comb += [self.o_valid.eq(valid), self.o.eq(lanes)]
        return m
