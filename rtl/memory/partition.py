"""One partition of an on-core memory: its SRAM banks, and the choice of words between them and the ports."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.memory.sram import WORD_BYTES, Sram, SramConfig
from rtl.tiles import TileLibrary

ROW_WORDS = 4
"""Words that a row access touches: 16 bytes, one word in each of four neighbouring banks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionConfig:
    """`bytes` of one partition over `banks` SRAMs; ports that read or write a word of every partition in lock-step."""

    bytes: int
    banks: int
    lane_reads: int
    lane_writes: int

    def __post_init__(self) -> None:
        if self.banks < ROW_WORDS or self.banks & (self.banks - 1):
            raise ValueError(f"banks must be a power of two from {ROW_WORDS}, not {self.banks!r}")
        if self.bytes & (self.bytes - 1) or self.bytes < 2 * WORD_BYTES * self.banks:
            raise ValueError(
                f"bytes must be a power of two from {2 * WORD_BYTES * self.banks}, not {self.bytes!r}"
            )
        if self.lane_reads < 1:
            raise ValueError(f"lane_reads must be at least 1, not {self.lane_reads!r}")
        if self.lane_writes < 1:
            raise ValueError(f"lane_writes must be at least 1, not {self.lane_writes!r}")

    @property
    def sram(self) -> SramConfig:
        """One bank."""
        return SramConfig(depth=self.bytes // (WORD_BYTES * self.banks))

    @property
    def bank_bits(self) -> int:
        """Bits of a bank's number."""
        return (self.banks - 1).bit_length()

    @property
    def group_bits(self) -> int:
        """Bits of the number of a group of four banks; one bit, always 0, where there is one group."""
        return max(1, self.bank_bits - 2)


class PartitionMemory(wiring.Component):
    """Banks of one partition. Everything but `lanes`, `wdata`, `row_here`, `row_there` and the read data is the same for all partitions.

    Members, in the cycle in which the SRAMs are addressed
    -------
    raddr, ren: each bank's read. waddr, wmask: each bank's write and its bytes.
    source: for each bank, which write port uses it: a bit for each lane write port, the last one for the row write port.
    lanes, wdata: for each lane write port, whether it writes this partition, and its word.
    row_here, row_wdata: whether the row write is to this partition, and its four words.

    Members one cycle later, when the SRAMs' words are there
    -------
    select, rdata: for each lane read port, the bank that serves it, and its word.
    row_there, row_group, row_rdata: whether the row read is of this partition, its group of banks, and its words, zero if it is not.
    """

    def __init__(self, config: PartitionConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        word = 8 * WORD_BYTES
        bits, banks = config.sram.addr_bits, config.banks
        super().__init__(
            {
                "raddr": In(bits).array(banks),
                "ren": In(banks),
                "waddr": In(bits).array(banks),
                "wmask": In(WORD_BYTES).array(banks),
                "source": In(config.lane_writes + 1).array(banks),
                "lanes": In(config.lane_writes),
                "wdata": In(word).array(config.lane_writes),
                "row_here": In(1),
                "row_wdata": In(word).array(ROW_WORDS),
                "select": In(config.bank_bits).array(config.lane_reads),
                "rdata": Out(word).array(config.lane_reads),
                "row_there": In(1),
                "row_group": In(config.group_bits),
                "row_rdata": Out(word).array(ROW_WORDS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        words = []
        for b in range(cfg.banks):
            m.submodules[f"bank_{b}"] = sram = self.tiles.place(Sram, cfg.sram)
            enable = Signal(name=f"enable_{b}")
            data: Value = self.row_wdata[b % ROW_WORDS]
            allowed: Value = self.source[b][-1] & self.row_here
            for k in range(cfg.lane_writes):
                data = Mux(self.source[b][k], self.wdata[k], data)
                allowed |= self.source[b][k] & self.lanes[k]
            m.d.comb += [
                enable.eq(allowed),
                sram.raddr.eq(self.raddr[b]),
                sram.ren.eq(self.ren[b]),
                sram.waddr.eq(self.waddr[b]),
                sram.wen.eq(Mux(enable, self.wmask[b], 0)),
                sram.wdata.eq(data),
            ]
            words.append(sram.rdata)
        for k in range(cfg.lane_reads):
            with m.Switch(self.select[k]):
                for b in range(cfg.banks):
                    with m.Case(b):
                        m.d.comb += self.rdata[k].eq(words[b])
        with m.If(self.row_there), m.Switch(self.row_group):
            for group in range(cfg.banks // ROW_WORDS):
                with m.Case(group):
                    m.d.comb += [self.row_rdata[w].eq(words[ROW_WORDS * group + w]) for w in range(ROW_WORDS)]
        return m
