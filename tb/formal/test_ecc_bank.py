"""A bank of words with check bits is a memory of bytes whatever comes, with any one stored bit flipped; without its rule for reads it is not."""

import pytest
from amaranth import C, Module, Signal

from models import ecc
from rtl.memory import ecc_bank
from rtl.memory.ecc_bank import Tend
from rtl.memory.sram import SramConfig
from rtl.tiles import TileLibrary
from tb.formal.prove import Assert, Assume, RefutedError, Spec, mutant, prove

STEPS = 5
"""A write, then a read 1, 2 or 3 cycles later (twice forwarded, once from the SRAM), then its answer."""
INPUTS = {"raddr": 1, "ren": 1, "waddr": 1, "wen": 4, "wdata": 32, "tend": 2}


class Bytes(Spec):
    """Two words of some module's bank under all inputs; one of them, whichever, is compared with bytes that are only ever written or cleared.

    strict: who writes a part of a word reads that word.
    """

    def __init__(self, module=ecc_bank, *, strict: bool = True):
        self.module, self.strict = module, strict
        super().__init__()

    def specify(self, m: Module) -> None:
        m.submodules.bank = bank = self.module.EccBank(SramConfig(depth=2), tiles=TileLibrary(inline=True))
        raddr, ren, waddr, wen, wdata, tend = (self.free(bits, name) for name, bits in INPUTS.items())
        for name, signal in zip(INPUTS, (raddr, ren, waddr, wen, wdata, tend), strict=True):
            m.d.comb += getattr(bank, name).eq(signal)
        target, flipped = self.fixed(m, 1, "target"), self.fixed(m, 6, "flipped")
        takes = (wen.any() & ~wen.all()) | (tend == Tend.SCRUB) | (tend == Tend.FLIP)
        m.d.comb += [
            Assume(flipped < ecc.CODE_BITS),
            bank.flips.eq(C(1, ecc.CODE_BITS) << flipped),
            Assume((tend == Tend.NOTHING) | (wen == 0)),
            Assume(~takes | (ren & (raddr == waddr if self.strict else C(1, 1)))),
        ]
        word, want, due = Signal(32), Signal(32), Signal()
        with m.If(waddr == target):
            with m.If(tend == Tend.CLEAR):
                m.d.sync += word.eq(0)
            for k in range(4):
                with m.If(wen[k]):
                    m.d.sync += word.word_select(k, 8).eq(wdata.word_select(k, 8))
        m.d.sync += [due.eq(ren & (raddr == target)), want.eq(word)]
        m.d.comb += [Assert(~due | (bank.rdata == want)), Assert(~due | ~bank.bad)]


def test_holds():
    prove(Bytes(), steps=STEPS, induction=False)


def test_the_rule_for_reads_is_needed():
    with pytest.raises(RefutedError):
        prove(Bytes(strict=False), steps=STEPS, induction=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("same_as_put.eq(addr == self.raddr)", "same_as_put.eq(0)"),
        ("from_was.eq(same_as_was & was)", "from_was.eq(0)"),
        ("encoded(put_data, put_bad) ^", "Cat(put_data, encoded(put_data & 0xFFFF_FFFC, put_bad)[32:]) ^"),
        ("put_bad.eq(lost & ~whole)", "put_bad.eq(1)"),
    ],
    ids=["forwards nothing new", "forwards nothing older", "checks 30 bits", "poisons what is good"],
)
def test_mutant_falls(old, new):
    with mutant(ecc_bank, old, new) as module, pytest.raises(RefutedError):
        prove(Bytes(module), steps=STEPS, induction=False)
