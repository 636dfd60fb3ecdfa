"""One bank of one partition with check bits: an Sram to whoever uses it, but for the read that a partial write takes."""

import enum
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from models import ecc
from rtl.memory.ecc import EccDecoder, encoded
from rtl.memory.sram import WORD_BYTES, CodeSram, SramConfig
from rtl.tiles import ClockedTile, TileLibrary


class Tend(enum.IntEnum):
    """What upkeep does to the word that a bank reads, in a cycle in which nobody else uses the bank."""

    NOTHING = 0
    SCRUB = 1
    """Write it back if a bit was wrong."""
    FLIP = 2
    """Write it back with some of its stored bits flipped: an injected error."""
    CLEAR = 3
    """Write zero."""


class EccBank(ClockedTile):
    """Members, in the cycle in which the bank is addressed
    -------
    raddr, ren, waddr, wen (bytes), wdata: Sram's. A write of some bytes, SCRUB and FLIP take the read as well: `ren` high, `raddr` equal to `waddr`.
    tend: Tend, with `wen` 0. flips: the bits that FLIP flips, stable for two more cycles.

    Members one cycle later
    -------
    rdata: the word, corrected. It stays only for that cycle. bad: it is lost. corrected: one stored bit was wrong. syndrome: of either.

    Words reach the SRAM two cycles after they were addressed, encoded, merged with the bytes that they keep; reads get those under way
    by forwarding. Thus, as with Sram, a read gets what writes addressed in earlier cycles left, and nothing of its own cycle's.
    A lost word of which some bytes are written stays lost; one that is written whole is good again.
    """

    def __init__(self, config: SramConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        bits = config.addr_bits
        super().__init__(
            {
                "raddr": In(bits),
                "ren": In(1),
                "waddr": In(bits),
                "wen": In(WORD_BYTES),
                "wdata": In(ecc.DATA_BITS),
                "tend": In(2),
                "flips": In(ecc.CODE_BITS),
                "rdata": Out(ecc.DATA_BITS),
                "bad": Out(1),
                "corrected": Out(1),
                "syndrome": Out(ecc.CHECK_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        bits = self.config.addr_bits
        m.submodules.sram = sram = self.tiles.place(CodeSram, self.config)
        m.submodules.decoder = decoder = EccDecoder()
        m.d.comb += [sram.raddr.eq(self.raddr), sram.ren.eq(self.ren), decoder.stored.eq(sram.rdata)]

        # a cycle after the bank was addressed: the word read, or one on its way to the SRAM
        asked, addr, enable = Signal(), Signal(bits), Signal(WORD_BYTES)
        data, tend = Signal(ecc.DATA_BITS), Signal(2)
        put = Signal()  # a word is being written into the SRAM: `put_*`; it was the cycle before: `was_*`
        put_addr, put_data, put_bad, put_flip = Signal(bits), Signal(ecc.DATA_BITS), Signal(), Signal()
        was, was_data, was_bad = Signal(), Signal(ecc.DATA_BITS), Signal()
        same_as_put, same_as_was = Signal(), Signal()
        m.d.sync += [
            asked.eq(self.ren),
            addr.eq(self.waddr),
            enable.eq(self.wen),
            data.eq(self.wdata),
            tend.eq(self.tend),
            same_as_put.eq(addr == self.raddr),
            same_as_was.eq(put_addr == self.raddr),
        ]
        from_put, from_was = Signal(), Signal()
        m.d.comb += [
            from_put.eq(same_as_put & put),
            from_was.eq(same_as_was & was),
            self.corrected.eq(asked & ~from_put & ~from_was & decoder.corrected),
        ]
        lost = Signal()
        with m.If(from_put):
            m.d.comb += [self.rdata.eq(put_data), lost.eq(put_bad), self.syndrome.eq(ecc.POISON)]
        with m.Elif(from_was):
            m.d.comb += [self.rdata.eq(was_data), lost.eq(was_bad), self.syndrome.eq(ecc.POISON)]
        with m.Else():
            m.d.comb += [
                self.rdata.eq(decoder.data),
                lost.eq(decoder.bad),
                self.syndrome.eq(decoder.syndrome),
            ]
        m.d.comb += self.bad.eq(asked & lost)

        whole = enable.all() | (tend == Tend.CLEAR)
        kept = Mux(tend == Tend.CLEAR, C(0, ecc.DATA_BITS), self.rdata)
        m.d.sync += [
            put.eq(enable.any() | (tend == Tend.CLEAR) | (tend == Tend.FLIP)),
            put_addr.eq(addr),
            put_data.eq(
                Cat(
                    Mux(enable[i], data.word_select(i, 8), kept[8 * i : 8 * i + 8]) for i in range(WORD_BYTES)
                )
            ),
            put_bad.eq(lost & ~whole),
            put_flip.eq(tend == Tend.FLIP),
            was.eq(put),
            was_data.eq(put_data),
            was_bad.eq(put_bad),
        ]
        with m.If(tend == Tend.SCRUB):
            m.d.sync += put.eq(self.corrected)
        m.d.comb += [
            sram.waddr.eq(put_addr),
            sram.wen.eq(put),
            sram.wdata.eq(encoded(put_data, put_bad) ^ Mux(put_flip, self.flips, 0)),
        ]
        return m
