"""SECDED: for every word, each single flip is corrected, each double flip detected, and a lost word stays lost."""

import pytest
from amaranth import Module

from models import ecc
from rtl.memory import ecc as rtl
from tb.formal.prove import Assert, Assume, RefutedError, Spec, mutant, prove


class Secded(Spec):
    """Encoder and decoder of some module around up to two flips."""

    def __init__(self, module=rtl):
        self.module = module
        super().__init__()

    def specify(self, m: Module) -> None:
        word, flips = self.free(ecc.DATA_BITS, "word"), self.free(ecc.CODE_BITS, "flips")
        poison = self.free(1, "poison")
        m.submodules.decoder = decoder = self.module.EccDecoder()
        m.d.comb += decoder.stored.eq(self.module.encoded(word, poison) ^ flips)
        fewer = flips & (flips - 1)
        none, one = flips == 0, (flips != 0) & (fewer == 0)
        two = (fewer != 0) & ((fewer & (fewer - 1)) == 0)
        m.d.comb += [
            Assume(none | one | (two & ~poison)),
            Assert(decoder.bad == (two | poison)),
            Assert(decoder.corrected == (one & ~poison)),
            Assert(decoder.bad | (decoder.data == word)),
            Assert((decoder.syndrome == 0) == (none & ~poison)),
        ]


def test_holds():
    prove(Secded(), steps=1, induction=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("word ^ Cat(hits[: ecc.DATA_BITS])", "word ^ Cat(*hits[: ecc.DATA_BITS - 1])"),
        ("syndrome.any() & ~self.corrected", "syndrome.any() & ~syndrome[0]"),
        ("C(ecc.POISON, ecc.CHECK_BITS)", "C(1, ecc.CHECK_BITS)"),
    ],
    ids=["bit 31 stays wrong", "double flips pass", "poison is corrected"],
)
def test_mutant_falls(old, new):
    with mutant(rtl, old, new) as module, pytest.raises(RefutedError):
        prove(Secded(module), steps=1, induction=False)
