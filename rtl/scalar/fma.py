"""Fused multiply-add of wide floats: the scalar engine's arithmetic."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from models.wide import EXP_BITS, GUARD, SIG_BITS
from rtl.fp.round import normalise
from rtl.scalar.wide import WideLayout, finish, is_zero, magnitude
from rtl.tiles import ClockedTile, TileLibrary

LATENCY = 4
"""Cycles from the operands to `o`."""
SUM_BITS = SIG_BITS + GUARD + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class WideFmaConfig:
    """Nothing to choose."""


class WideFma(ClockedTile):
    """o = a * b + c as models.wide.fma, LATENCY cycles later; one a cycle, never stalls.

    Ports: a, b, c, o: WideLayout. only_c: o is c, bit for bit.
    """

    def __init__(self, config: WideFmaConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        w = WideLayout()
        super().__init__({"a": In(w), "b": In(w), "c": In(w), "only_c": In(1), "o": Out(w)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        product, addend = self._multiply(m)
        self._add(m, product, addend)
        return m

    def _multiply(self, m: Module) -> tuple[Any, Any]:
        """Two stages: the product, rounded, and c beside it."""
        a, b = self.a, self.b
        full = Signal(2 * SIG_BITS, reset_less=True)
        exp = Signal(signed(EXP_BITS + 1), reset_less=True)
        neg, none, inf, nan = (Signal(name=n, reset_less=True) for n in ("p_neg", "p_none", "p_inf", "p_nan"))
        c1, c2, product = (Signal(WideLayout(), name=n, reset_less=True) for n in ("c1", "c2", "product"))
        zero, far = is_zero(a) | is_zero(b), a.inf | b.inf
        m.d.sync += [
            full.eq(a.sig * b.sig),
            exp.eq(a.exp + b.exp),
            # x + -0 is x, zeros of both signs included
            none.eq(self.only_c | zero),
            neg.eq(self.only_c | (a.neg ^ b.neg)),
            inf.eq(~self.only_c & far & ~zero),
            nan.eq(~self.only_c & (a.nan | b.nan | (far & zero))),
            c1.eq(self.c),
            c2.eq(c1),
        ]
        high, over = full[-1], Signal()
        rounded = Signal(SIG_BITS + 1)
        exp2 = Signal(signed(EXP_BITS + 2))
        sig = Signal(SIG_BITS)
        m.d.comb += [
            rounded.eq(
                Mux(
                    high,
                    full[SIG_BITS:] + full[SIG_BITS - 1],
                    full[SIG_BITS - 1 : -1] + full[SIG_BITS - 2],
                )
            ),
            over.eq(rounded[-1]),
            exp2.eq(exp + high + over),
            sig.eq(Mux(none, 0, Mux(over, 1 << (SIG_BITS - 1), rounded[:SIG_BITS]))),
        ]
        m.d.sync += product.eq(finish(m, "rounded_product", neg=neg, exp=exp2, sig=sig, inf=inf, nan=nan))
        return product, c2

    def _add(self, m: Module, a: Any, b: Any) -> None:
        """Two stages: align and add; normalise and round."""
        a_big, same = Signal(), Signal()
        big, small = Signal(WideLayout()), Signal(WideLayout())
        distance = Signal(EXP_BITS + 1)
        by = Signal(range(SIG_BITS + GUARD + 1))
        x, y = Signal(SUM_BITS), Signal(SUM_BITS)
        m.d.comb += [
            a_big.eq(magnitude(a) >= magnitude(b)),
            same.eq(a.neg == b.neg),
            big.eq(Mux(a_big, a, b)),
            small.eq(Mux(a_big, b, a)),
            distance.eq(big.exp - small.exp),
            by.eq(Mux(distance > SIG_BITS + GUARD, SIG_BITS + GUARD, distance)),
            x.eq(big.sig << GUARD),
            y.eq((small.sig << GUARD) >> by),
        ]
        total = Signal(SUM_BITS, reset_less=True)
        exp = Signal(signed(EXP_BITS), reset_less=True)
        neg, inf, nan, minus = (
            Signal(name=n, reset_less=True) for n in ("s_neg", "s_inf", "s_nan", "s_minus")
        )
        m.d.sync += [
            total.eq(Mux(same, x + y, x - y)),
            exp.eq(big.exp),
            inf.eq(a.inf | b.inf),
            nan.eq(a.nan | b.nan | (a.inf & b.inf & ~same)),
            neg.eq(Mux(a.inf, a.neg, Mux(b.inf, b.neg, big.neg))),
            minus.eq(is_zero(a) & is_zero(b) & a.neg & b.neg),
        ]
        found, count = normalise(m, "total", total)
        rounded, over = Signal(SIG_BITS + 1), Signal()
        exp2 = Signal(signed(EXP_BITS + 2))
        sig = Signal(SIG_BITS)
        m.d.comb += [
            rounded.eq(found[GUARD + 1 :] + found[GUARD]),
            over.eq(rounded[-1]),
            exp2.eq(exp + 1 - count + over),
            sig.eq(Mux(over, 1 << (SIG_BITS - 1), rounded[:SIG_BITS])),
        ]
        none: Value = ~total.any()
        sign = Mux(none & ~inf, minus, neg)
        out = Signal(WideLayout(), reset_less=True)
        m.d.sync += out.eq(
            finish(m, "sum", neg=sign, exp=exp2, sig=Cat(sig[:-1], sig[-1] & ~none), inf=inf, nan=nan)
        )
        m.d.comb += self.o.eq(out)
