"""Encoder and decoder against models.ecc: no flip, every single flip, every double flip."""

from itertools import combinations
from typing import Any

import numpy as np
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models import ecc
from rtl.memory.ecc import EccDecoder, encoded
from tb.lib.simulate import rng, simulate


class Loop(wiring.Component):
    """A word, encoded, with some of its bits flipped, decoded."""

    word: In(32)
    poison: In(1)
    flips: In(ecc.CODE_BITS)
    stored: Out(ecc.CODE_BITS)

    def __init__(self) -> None:
        self.decoder = EccDecoder()
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.decoder = self.decoder
        m.d.comb += [
            self.stored.eq(encoded(self.word, self.poison)),
            self.decoder.stored.eq(self.stored ^ self.flips),
        ]
        return m


def test_against_the_model() -> None:
    r = rng()
    bits = range(ecc.CODE_BITS)
    flips = np.array(
        [0, *(1 << b for b in bits), *(1 << a | 1 << b for a, b in combinations(bits, 2))], dtype=np.uint64
    )
    dut = Loop()

    async def bench(ctx):
        for word in (0, 0xFFFF_FFFF, *(r.getrandbits(32) for _ in range(6))):
            for poison in (0, 1):
                stored = ecc.encode(word) ^ np.uint64(poison * ecc.POISON << 32)
                want = ecc.decode(stored ^ flips)
                ctx.set(dut.word, word)
                ctx.set(dut.poison, poison)
                assert ctx.get(dut.stored) == int(stored)
                rows = zip(flips.tolist(), *(a.tolist() for a in want), strict=True)
                for flip, data, syndrome, status in rows:
                    ctx.set(dut.flips, flip)
                    d = dut.decoder
                    assert ctx.get(d.data) == data
                    assert ctx.get(d.syndrome) == syndrome
                    assert ctx.get(d.corrected) == (status == ecc.Status.CORRECTED)
                    assert ctx.get(d.bad) == (status == ecc.Status.UNCORRECTABLE)

    simulate(dut, bench)
