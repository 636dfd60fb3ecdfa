"""EccBank is a memory of bytes whatever comes, with one flipped bit in any word; without its rule for reads it is not."""

from pathlib import Path
from typing import Any

import pytest
from amaranth import C, Cat, ClockDomain, Elaboratable, Module, Signal
from amaranth.hdl import Assert, Assume

from models import ecc
from rtl.memory.ecc import encoded
from rtl.memory.ecc_bank import EccBank, Tend
from rtl.memory.sram import SramConfig
from rtl.tiles import TileLibrary
from tb.lib.bounded import holds

STEPS = 5
"""A write, then a read 1, 2 or 3 cycles later (twice forwarded, once from the SRAM), then its answer."""
INPUTS = {"raddr": 1, "ren": 1, "waddr": 1, "wen": 4, "wdata": 32, "tend": 2}


class Watched(Elaboratable):
    """Two words under all inputs; `target`, any of them, is compared with bytes that are only ever written or cleared. `strict`: who
    writes a part of a word reads that word.
    """

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.domain = ClockDomain("sync", reset_less=True)
        self.inputs = {name: Signal(width, name=name) for name, width in INPUTS.items()}
        self.target, self.flipped = Signal(name="target"), Signal(6, name="flipped")
        self.ports = [*self.inputs.values(), self.target, self.flipped, self.domain.clk]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.sync = self.domain
        m.submodules.bank = bank = EccBank(SramConfig(depth=2), tiles=TileLibrary(inline=True))
        for name, signal in self.inputs.items():
            m.d.comb += getattr(bank, name).eq(signal)
        target, flipped, begun = Signal(), Signal(6), Signal()
        m.d.sync += [target.eq(self.target), flipped.eq(self.flipped), begun.eq(1)]
        with m.If(begun):
            m.d.comb += [Assume(self.target == target), Assume(self.flipped == flipped)]
        wen, tend, waddr, raddr, ren = (self.inputs[n] for n in ("wen", "tend", "waddr", "raddr", "ren"))
        takes = (wen.any() & ~wen.all()) | (tend == Tend.SCRUB) | (tend == Tend.FLIP)
        m.d.comb += [
            Assume(self.flipped < ecc.CODE_BITS),
            bank.flips.eq(C(1, ecc.CODE_BITS) << self.flipped),
            Assume((tend == Tend.NOTHING) | (wen == 0)),
            Assume(~takes | (ren & (raddr == waddr if self.strict else C(1, 1)))),
        ]
        word, want, due = Signal(32), Signal(32), Signal()
        with m.If(waddr == self.target):
            with m.If(tend == Tend.CLEAR):
                m.d.sync += word.eq(0)
            for k in range(4):
                with m.If(wen[k]):
                    m.d.sync += word.word_select(k, 8).eq(self.inputs["wdata"].word_select(k, 8))
        m.d.sync += [due.eq(ren & (raddr == self.target)), want.eq(word)]
        with m.If(due):
            m.d.comb += [Assert(bank.rdata == want), Assert(~bank.bad)]
        return m


@pytest.mark.parametrize("strict", [True, False])
def test_bytes_of_words(strict: bool, tmp_path: Path) -> None:
    top = Watched(strict=strict)
    assert holds(top, top.ports, STEPS, tmp_path) == strict


def test_a_wrong_encoder_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: check bits that do not cover the two lowest bits of a word."""
    monkeypatch.setattr(
        "rtl.memory.ecc_bank.encoded", lambda data, bad: Cat(data, encoded(data & 0xFFFF_FFFC, bad)[32:])
    )
    top = Watched(strict=True)
    assert not holds(top, top.ports, STEPS, tmp_path)
