"""Encoder and decoder of models.ecc's code: expressions for whoever stores words, and a decoder as a component."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models import ecc


def check_bits(data: Value) -> Value:
    """Check bits of a 32-bit word."""
    return Cat((data & C(mask, ecc.DATA_BITS)).xor() for mask in ecc.ROWS)


def encoded(data: Value, poison: Value | int = 0) -> Value:
    """The 39-bit word to store; with `poison` (1 bit) it is marked as lost."""
    mark = Mux(poison, C(ecc.POISON, ecc.CHECK_BITS), C(0, ecc.CHECK_BITS))
    return Cat(data, check_bits(data) ^ mark)


class EccDecoder(wiring.Component):
    """Combinational. `stored` is a word as it comes out of the memory.

    data: corrected where one bit is wrong, else as stored. syndrome: see models.ecc. corrected, bad: one bit was wrong, the word is lost.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "stored": In(ecc.CODE_BITS),
                "data": Out(ecc.DATA_BITS),
                "syndrome": Out(ecc.CHECK_BITS),
                "corrected": Out(1),
                "bad": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        word = self.stored[: ecc.DATA_BITS]
        syndrome = Signal(ecc.CHECK_BITS)
        hits = [syndrome == column for column in ecc.COLUMNS]
        m.d.comb += [
            syndrome.eq(check_bits(word) ^ self.stored[ecc.DATA_BITS :]),
            self.syndrome.eq(syndrome),
            self.data.eq(word ^ Cat(hits[: ecc.DATA_BITS])),
            self.corrected.eq(reduce(or_, hits)),
            self.bad.eq(syndrome.any() & ~self.corrected),
        ]
        return m
