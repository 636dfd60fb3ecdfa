"""Range reduction for sine and cosine: the scalar engine's multiplication by the bits of 2/pi that an argument's exponent asks for."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from models.turns import LEAST, MOST, WINDOW, WORDS, two_over_pi
from models.wide import EXP_BITS, SIG_BITS
from rtl.fp.round import normalise
from rtl.scalar.wide import WideLayout, finish
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 4
"""Cycles from `a` to `o`: window, products, sum, normalisation."""
REST_BITS = WINDOW - 3
"""Of the rest's magnitude: two bits of the product are whole quarter turns, and it is a half at most."""
assert WORDS == 3
assert SIG_BITS == 32


@dataclass(frozen=True, kw_only=True, slots=True)
class WideTurnsConfig:
    """Nothing to choose."""


class WideTurns(ClockedTile):
    """o = models.turns.turn(a), or with `whole` models.turns.quadrant(a), LATENCY cycles later; one a cycle, never stalls.

    Ports: a, o: WideLayout. whole: comes with `a`.
    """

    def __init__(self, config: WideTurnsConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"a": In(WideLayout()), "whole": In(1), "o": Out(WideLayout())})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        sig, words = self._window(m)
        # each product as wide as it counts modulo four quarter turns
        p0, p1, p2 = (
            Signal(width, name=f"product{n}", reset_less=True) for n, width in enumerate((32, 64, 64))
        )
        m.d.sync += [p.eq(sig * word) for p, word in zip((p0, p1, p2), words, strict=True)]
        flags = Cat(self.whole, self.a.nan | self.a.inf)
        for stage in range(LATENCY - 1):
            held = Signal(2, name=f"flags{stage}", reset_less=True)
            m.d.sync += held.eq(flags)
            flags = held
        upper = Signal(64)
        m.d.comb += upper.eq(p1 + p2[32:] + (p0 << 32))
        whole, negative = Signal(2, reset_less=True), Signal(reset_less=True)
        rest = Signal(REST_BITS, reset_less=True)
        half = upper[REST_BITS - 32]
        m.d.sync += [
            negative.eq(half),
            whole.eq(upper[-2:] + half),
            rest.eq(Cat(p2[:32], upper[: REST_BITS - 32]) ^ half.replicate(REST_BITS)),
        ]
        found, count = normalise(m, "rest", rest)
        exp = Signal(signed(EXP_BITS))
        m.d.comb += exp.eq(-2 - count)
        number = Cat(C(0, SIG_BITS - 2), Mux(whole[1], whole, whole << 1)[:2])
        out = Signal(WideLayout(), reset_less=True)
        as_whole, special = flags[0], flags[1]
        m.d.sync += out.eq(
            finish(
                m,
                "turn",
                neg=negative & ~as_whole,
                exp=Mux(as_whole, whole[1], exp),
                sig=Mux(special, 0, Mux(as_whole, number, found[-SIG_BITS:])),
                inf=C(0, 1),
                nan=special,
            )
        )
        m.d.comb += self.o.eq(out)
        return m

    def _window(self, m: Module) -> tuple[Signal, list[Signal]]:
        """(the significand, its exponent's words of 2/pi, highest first), a cycle later."""
        table = [*two_over_pi(), 0]
        at = Signal(range(MOST - LEAST + 1))
        m.d.comb += at.eq(
            Mux(self.a.exp < LEAST, 0, Mux(self.a.exp > MOST, MOST - LEAST, self.a.exp - LEAST))
        )
        near = [Signal(32, name=f"word{n}") for n in range(WORDS + 1)]
        with m.Switch(at[5:]):
            for first in range(len(table) - WORDS):
                with m.Case(first):
                    m.d.comb += [word.eq(table[first + n]) for n, word in enumerate(near)]
        sig = Signal(SIG_BITS, reset_less=True)
        m.d.sync += sig.eq(self.a.sig)
        words = []
        for n in range(WORDS):
            word = Signal(32, name=f"window{n}", reset_less=True)
            m.d.sync += word.eq((Cat(near[n + 1], near[n]) << at[:5])[32:64])
            words.append(word)
        return sig, words
