"""Processing element: stationary registers with a shadow, a bank of four multipliers, exact sum, FP32 step."""

from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from rtl.fp.round import EXP_BITS, normalise
from rtl.fp.step import LATENCY, AddendLayout, Fp32Step
from rtl.pe.operand import DIGITS, WORD_BITS, OperandLayout, PeConfig
from rtl.tiles import ClockedTile, TileLibrary

PRODUCT_LATENCY = 3
"""Cycles from a moving operand at `moving` to when the PE takes the `psum_in` that it is added to."""
STEP_LATENCY = LATENCY
"""Cycles from `psum_in` to `psum_out`."""
MOVE_SETTLE = PRODUCT_LATENCY - 1
"""Cycles after a moving WORD in which no `swap` may come: the active weight is read only when the partial sum is there, which saves registers for it."""
LEFT_BITS = 7
"""Bits of a column number: up to 128 columns."""


class ProcessingElement(ClockedTile):
    """One PE; never stalls.

    Members
    -------
    moving, moving_out: decoded moving operand, passed on a cycle later. `swap` in it makes the shadow weight active first.
    load, load_out: decoded weight (`active`: there is one), passed on a cycle later, in step with the moving operands.
    left, left_out: columns that the weight has still to go; at 0 the shadow takes it. Passed on less one.
        A moving WORD (`move`) takes no product: psum_out is the weight's word where the operand is active, psum_in elsewhere, bit for bit.
    psum_in, psum_out: FP32; psum_out = RNE(psum_in + S) STEP_LATENCY cycles later, S from the operand PRODUCT_LATENCY cycles before psum_in.
    """

    def __init__(self, config: PeConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        operand = OperandLayout(config)
        super().__init__(
            {
                "moving": In(operand),
                "moving_out": Out(operand),
                "load": In(operand),
                "left": In(LEFT_BITS),
                "load_out": Out(operand),
                "left_out": Out(LEFT_BITS),
                "psum_in": In(32),
                "psum_out": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        active = Signal(OperandLayout(cfg), reset_less=True)
        shadow = Signal(OperandLayout(cfg), reset_less=True)
        moving = Signal(OperandLayout(cfg), reset_less=True)
        load = Signal(OperandLayout(cfg), reset_less=True)
        left = Signal(LEFT_BITS, reset_less=True)
        m.d.sync += [moving.eq(self.moving), load.eq(self.load), left.eq(self.left - 1)]
        m.d.comb += [self.moving_out.eq(moving), self.load_out.eq(load), self.left_out.eq(left)]
        with m.If(self.load.active & (self.left == 0)):
            m.d.sync += shadow.eq(self.load)
        with m.If(self.moving.swap):
            m.d.sync += active.eq(shadow)

        total, exp, all_neg, inf, inf_neg, nan = self._multiply(m, active, moving)
        addend = Signal(AddendLayout(cfg.step), reset_less=True)
        self._normalise(m, addend, total, exp, all_neg, inf, inf_neg, nan)
        move, takes = Signal(reset_less=True), Signal(MOVE_SETTLE, reset_less=True)
        m.d.sync += [
            move.eq(moving.move),
            addend.move.eq(move),
            takes.eq(Cat(moving.active, takes[:-1])),
        ]
        m.submodules.step = step = self.tiles.place(Fp32Step, cfg.step)
        m.d.comb += [
            step.a.eq(self.psum_in),
            step.addend.eq(addend),
            step.word.eq(Mux(takes[-1], active.as_value()[:WORD_BITS], self.psum_in)),
            self.psum_out.eq(step.o),
        ]
        return m

    def _multiply(self, m: Module, a: Any, b: Any) -> tuple[Signal, ...]:
        """Products, aligned and added, into registers."""
        cfg = self.config
        bits, far = cfg.sum_bits, 2 * cfg.max_shift
        width = max(bits, 2 * cfg.digit_bits + far)
        # All four lanes' flags at a time: the same gates, and a quarter of the operations in a simulator.
        signs, infs, bad = Signal(DIGITS), Signal(DIGITS), Signal(DIGITS)
        pos, neg = Signal(), Signal()
        m.d.comb += [
            signs.eq(a.neg ^ b.neg),
            infs.eq(a.inf | b.inf),
            bad.eq((a.inf & b.zero) | (a.zero & b.inf)),
            pos.eq((infs & ~signs).any()),
            neg.eq((infs & signs).any()),
        ]
        terms = []
        for i in range(DIGITS):
            product = Signal(2 * cfg.digit_bits, name=f"product{i}")
            right = Signal(range(far + 1), name=f"right{i}")
            placed = Signal(width, name=f"placed{i}")
            term = Signal(bits + 1, name=f"term{i}")
            m.d.comb += [
                product.eq(a.sig[i] * b.sig[i]),
                right.eq(a.right[i] + b.right[i]),
                placed.eq(Cat(C(0, far), product) >> right),
                term.eq(Mux(signs[i], -placed, placed)),
            ]
            terms.append(term)
        total = Signal(signed(bits + 1), reset_less=True)
        exp = Signal(signed(EXP_BITS), reset_less=True)
        all_neg, inf, inf_neg, nan = (
            Signal(name=name, reset_less=True) for name in ("all_neg", "inf", "inf_neg", "nan")
        )
        summed = Signal(bits + 1)
        m.d.comb += summed.eq(terms[0] + terms[1] + terms[2] + terms[3])
        before: Value = Mux(b.more, total, 0) if cfg.passes else C(0, 1)
        # A row that takes no part adds -0, which leaves every number as it is.
        m.d.sync += [
            total.eq(Mux(b.active, summed + before, 0)),
            exp.eq(a.exp + b.exp),
            all_neg.eq(~b.active | signs.all()),
            inf.eq(b.active & (pos | neg)),
            inf_neg.eq(neg),
            nan.eq(b.active & (a.nan | b.nan | bad.any() | (pos & neg))),
        ]
        return total, exp, all_neg, inf, inf_neg, nan

    def _normalise(
        self,
        m: Module,
        addend: Any,
        total: Signal,
        exp: Signal,
        all_neg: Signal,
        inf: Signal,
        inf_neg: Signal,
        nan: Signal,
    ) -> None:
        """Sign and magnitude, top bit up, into registers."""
        bits = self.config.sum_bits
        mag = Signal(bits)
        m.d.comb += mag.eq(Mux(total[-1], -total, total))
        found, count = normalise(m, "mag", mag)
        m.d.sync += [
            addend.mag.eq(found),
            addend.neg.eq(Mux(inf, inf_neg, Mux(mag.any(), total[-1], all_neg))),
            addend.exp.eq(exp - count),
            addend.inf.eq(inf),
            addend.nan.eq(nan),
        ]
