"""The SRAM of one bank of one partition, plain or for words with check bits: the only place where on-core memory bits live."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, unsigned
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from models.ecc import CODE_BITS
from rtl.tiles import ClockedTile, TileLibrary

WORD_BYTES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class SramConfig:
    """`depth` words of 32 bits."""

    depth: int

    def __post_init__(self) -> None:
        if self.depth < 2:
            raise ValueError(f"depth must be at least 2, not {self.depth!r}")

    @property
    def addr_bits(self) -> int:
        """Bits of a word's address."""
        return (self.depth - 1).bit_length()


class Sram(ClockedTile):
    """One read and one write port on the same clock; a macro or block RAM of the same contract may take its place.

    Read: `raddr` and `ren` sampled at a clock edge, `rdata` right after it, held until the next read. Write: bytes chosen by
    `wen`. A read and a write of one word at the same edge: the read gets the old word. Contents are never reset, and `rdata`
    is undefined before the first read.
    """

    width, enables = 8 * WORD_BYTES, WORD_BYTES

    def __init__(self, config: SramConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        bits = config.addr_bits
        super().__init__(
            {
                "raddr": In(bits),
                "ren": In(1),
                "rdata": Out(self.width),
                "waddr": In(bits),
                "wen": In(self.enables),
                "wdata": In(self.width),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        memory: Any = Memory(shape=unsigned(self.width), depth=self.config.depth, init=[])
        m.submodules.memory = memory
        read = memory.read_port()
        write = memory.write_port(granularity=self.width // self.enables)
        m.d.comb += [read.addr.eq(self.raddr), read.en.eq(self.ren), self.rdata.eq(read.data)]
        m.d.comb += [write.addr.eq(self.waddr), write.en.eq(self.wen), write.data.eq(self.wdata)]
        return m


class CodeSram(Sram):
    """Sram's contract for the stored words of models.ecc: `depth` words of 39 bits, written whole."""

    width, enables = CODE_BITS, 1
