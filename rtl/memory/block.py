"""Several partitions of an on-core memory as one tile, so that a memory of many partitions is little Verilog."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.memory.partition import ROW_WORDS, PartitionConfig, PartitionMemory
from rtl.memory.sram import WORD_BYTES
from rtl.tiles import TileLibrary

BLOCK = 8
"""Partitions of a block, where there are as many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockConfig:
    """`count` partitions, all alike."""

    partition: PartitionConfig
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be at least 1, not {self.count!r}")


class PartitionBlock(wiring.Component):
    """`count` PartitionMemory side by side. Members are theirs: what is the same for all partitions is there once; `lanes` and `wdata` (of each
    write port), `row_here`, `row_there` and `rdata` (of each read port) have a part for each partition, the first one lowest; `row_rdata` is
    the disjunction of all partitions', which is the asked one's words.
    """

    def __init__(self, config: BlockConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        part, n = config.partition, config.count
        word, bits, banks = 8 * WORD_BYTES, part.sram.addr_bits, part.banks
        super().__init__(
            {
                "raddr": In(bits).array(banks),
                "ren": In(banks),
                "waddr": In(bits).array(banks),
                "wmask": In(WORD_BYTES).array(banks),
                "source": In(part.lane_writes + 1).array(banks),
                "lanes": In(n).array(part.lane_writes),
                "wdata": In(n * word).array(part.lane_writes),
                "row_here": In(n),
                "row_wdata": In(word).array(ROW_WORDS),
                "select": In(part.bank_bits).array(part.lane_reads),
                "rdata": Out(n * word).array(part.lane_reads),
                "row_there": In(n),
                "row_group": In(part.group_bits),
                "row_rdata": Out(word).array(ROW_WORDS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg, word = self.config.partition, 8 * WORD_BYTES
        parts = []
        for i in range(self.config.count):
            m.submodules[f"part_{i}"] = part = self.tiles.place(PartitionMemory, cfg)
            parts.append(part)
            own = slice(word * i, word * (i + 1))
            for b in range(cfg.banks):
                for name in ("raddr", "waddr", "wmask", "source"):
                    m.d.comb += getattr(part, name)[b].eq(getattr(self, name)[b])
            for k in range(cfg.lane_writes):
                m.d.comb += [part.lanes[k].eq(self.lanes[k][i]), part.wdata[k].eq(self.wdata[k][own])]
            for k in range(cfg.lane_reads):
                m.d.comb += [part.select[k].eq(self.select[k]), self.rdata[k][own].eq(part.rdata[k])]
            m.d.comb += [
                part.ren.eq(self.ren),
                part.row_here.eq(self.row_here[i]),
                part.row_there.eq(self.row_there[i]),
                part.row_group.eq(self.row_group),
                *(part.row_wdata[w].eq(self.row_wdata[w]) for w in range(ROW_WORDS)),
            ]
        m.d.comb += [
            self.row_rdata[w].eq(reduce(or_, (part.row_rdata[w] for part in parts))) for w in range(ROW_WORDS)
        ]
        return m
