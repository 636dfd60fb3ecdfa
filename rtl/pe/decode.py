"""Operand decoder: a raw word, its block scale and its type become a decoded operand."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from models.formats import E8M0_BIAS, E8M0_NAN, PACKED, DType, FloatFormat
from rtl.interfaces import mac_code_bits
from rtl.pe.operand import (
    DIGITS,
    DOUBLE_CODES,
    FP32_CODES,
    WORD,
    WORD_BITS,
    OperandLayout,
    PeConfig,
    element_format,
)
from rtl.tiles import ClockedTile, TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderConfig:
    """`stationary` chooses how a significand's two digits are laid over the bank of four (see rtl.pe.operand)."""

    pe: PeConfig
    stationary: bool


@dataclass(frozen=True, slots=True)
class _Number:
    """The parts of one code word."""

    neg: Value
    sig: Value
    shift: Value
    """Exponent above the least one: the position of the significand's last bit."""
    zero: Value
    inf: Value
    nan: Value


def _number(m: Module, name: str, code: Value, fmt: FloatFormat) -> _Number:
    """Take a code apart. An infinity's significand is 1, so that its products vanish exactly where they are invalid."""
    frac, exp = code[: fmt.man_bits], code[fmt.man_bits : fmt.width - 1]
    normal = exp.any()
    special = exp.all() if fmt.has_inf else C(0, 1)
    if fmt.nan is not None and not fmt.has_inf:
        nan: Value = code[: fmt.width - 1].all()
    else:
        nan = special & frac.any()
    inf = Signal(name=f"{name}_inf")
    m.d.comb += inf.eq(special & ~frac.any())
    sig = Signal(fmt.sig_bits, name=f"{name}_sig")
    shift = Signal(fmt.exp_bits, name=f"{name}_shift")
    m.d.comb += [sig.eq(Cat(frac, normal)), shift.eq(Mux(normal, exp - 1, 0))]
    return _Number(code[fmt.width - 1], sig, shift, ~(normal | frac.any()), inf, nan)


class OperandDecoder(ClockedTile):
    """Combinational.

    Members
    -------
    word, scale, dtype: raw operand (x4 types use `scale`, E8M0); dtype: a DType code, WORD, or one of
        FP32_CODES or DOUBLE_CODES; one that was not built gives an undefined operand.
    active, swap: passed through, but for a moving WORD: active where its bit 0 is set too.
    operand: the decoded operand.
    """

    def __init__(self, config: DecoderConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "word": In(32),
                "scale": In(8),
                "dtype": In(mac_code_bits()),
                "active": In(1),
                "swap": In(1),
                "operand": Out(OperandLayout(config.pe)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        m.d.comb += [self.operand.active.eq(self.active), self.operand.swap.eq(self.swap)]
        with m.Switch(self.dtype):
            for dtype in self.config.pe.formats:
                with m.Case(*(FP32_CODES if dtype == DType.FP32 else (dtype.value,))):
                    if dtype == DType.FP32:
                        self._quarters(m)
                    elif dtype in PACKED:
                        self._elements(m, dtype, DIGITS, self.scale)
                    else:
                        self._single(m, dtype)
            for dtype in self.config.pe.double:
                with m.Case(DOUBLE_CODES[dtype]):
                    self._elements(m, dtype, 2, C(E8M0_BIAS, 8))
            with m.Case(WORD):
                m.d.comb += [
                    self.operand.as_value()[:WORD_BITS].eq(self.word),
                    self.operand.move.eq(1),
                ]
                if not self.config.stationary:
                    m.d.comb += self.operand.active.eq(self.active & self.word[0])
        return m

    def _single(self, m: Module, dtype: DType) -> None:
        pe, fmt = self.config.pe, element_format(dtype)
        w = pe.digit_bits
        n = _number(m, dtype.name.lower(), self.word[: fmt.width], fmt)
        o = self.operand
        digits = [n.sig[:w], n.sig[w:]]
        for i in range(DIGITS):
            high = i // 2 if self.config.stationary else i % 2
            m.d.comb += [o.sig[i].eq(digits[high]), o.right[i].eq(pe.max_shift - w * high)]
        self._one(m, n, fmt)

    def _quarters(self, m: Module) -> None:
        """FP32: all digits of the significand, or one of them on every lane."""
        pe, fmt = self.config.pe, element_format(DType.FP32)
        w, o = pe.digit_bits, self.operand
        n = _number(m, "fp32", self.word, fmt)
        digits = [n.sig[w * i : w * (i + 1)] for i in range(DIGITS)]
        if self.config.stationary:
            for i in range(DIGITS):
                m.d.comb += [o.sig[i].eq(digits[i]), o.right[i].eq(pe.max_shift - w * i)]
        else:
            m.d.comb += o.more.eq(self.dtype != FP32_CODES[0])
            for turn, code in enumerate(FP32_CODES):
                with m.If(self.dtype == code):
                    for i in range(DIGITS):
                        m.d.comb += [o.sig[i].eq(digits[turn]), o.right[i].eq(pe.max_shift - w * turn)]
        self._one(m, n, fmt)

    def _one(self, m: Module, n: _Number, fmt: FloatFormat) -> None:
        """Sign, exponent and specials of an operand with one product."""
        o = self.operand
        lsb = fmt.min_exp - fmt.man_bits
        m.d.comb += [
            o.neg.eq(n.neg.replicate(DIGITS)),
            o.zero.eq(Cat(n.zero, C(0, DIGITS - 1))),
            o.inf.eq(Cat(n.inf, C(0, DIGITS - 1))),
            o.nan.eq(n.nan),
            o.exp.eq(Cat(n.shift, C(0, 1)).as_signed() + C(lsb, 9).as_signed()),
        ]

    def _elements(self, m: Module, dtype: DType, count: int, scale: Value) -> None:
        """`count` elements side by side, each with a product of its own."""
        pe, fmt = self.config.pe, element_format(dtype)
        o = self.operand
        nans: list[Value] = [scale == E8M0_NAN]
        for i in range(count):
            code = self.word[i * fmt.width : (i + 1) * fmt.width]
            n = _number(m, f"{dtype.name.lower()}_{i}_of_{count}", code, fmt)
            m.d.comb += [
                o.sig[i].eq(n.sig),
                o.right[i].eq(pe.max_shift - n.shift),
                o.zero[i].eq(n.zero),
                o.inf[i].eq(n.inf),
            ]
            # digits without an element take another's sign, since a sum of zeros is negative when all its signs are
            m.d.comb += [o.neg[j].eq(n.neg) for j in range(i, DIGITS, count)]
            nans.append(n.nan)
        lsb = fmt.min_exp - fmt.man_bits - E8M0_BIAS
        m.d.comb += [
            o.nan.eq(Cat(nans).any()),
            o.exp.eq(Cat(scale, C(0, 1)).as_signed() + C(lsb, 9).as_signed()),
        ]
