"""Decoded operands: what the edge of the array makes of a word, once, so that no PE has to know formats.

All formats come to one form: four digits (significand parts or packed elements) of a few bits, each with a sign and a position, and one
exponent. The bank's product i is stationary digit i times moving digit i, in every mode:

- one product a pair (BF16, FP16, FP8): the significand is cut in two digits, stationary as lo lo hi hi, moving as lo hi lo hi, and the four
  digit products, put at 0, w, w and 2 w bits, add up to the product;
- two products a pair (double rows of FP8): digits 0 and 1 are the two elements' significands, each at its element's exponent; 2 and 3 are zeros with the
  same signs;
- four products a pair (MX): digit i is element i's significand, at its element's exponent;
- one product a pair in four passes (FP32): the significand is cut in four digits; stationary they lie side by side, and a moving operand shows one digit
  a pass on all four lanes, so that the four sums of digit products add up to the product.

A position is kept as a right shift from `max_shift`, which keeps the shifters in the PE narrow. Value of an operand: the sum over
its digits of sig * 2**(max_shift - right), times 2**exp.
"""

from dataclasses import dataclass
from typing import Any

from amaranth import signed, unsigned
from amaranth.lib import data

from models.formats import DOUBLE_ROWS, FLOATS, FP32_PASSES, MAC_DTYPES, MX_PACK, PACKED, DType, FloatFormat
from rtl.fp.step import StepConfig

DIGITS = MX_PACK
WORD = 15
"""Code of a word that the array moves as it is, beside those of DType: stationary, it is the word; moving, bit 0 tells whether the row gives it."""
WORD_BITS = 32
FP32_CODES = (DType.FP32.value, 7, 8, 9)
"""Codes of a moving FP32 operand in its FP32_PASSES passes, which follow each other in consecutive cycles; stationary it has the first one."""
DOUBLE_CODES = {DType.E4M3: 5, DType.E5M2: 6}
"""Codes of a double row's words, by the type of their two elements."""
EXP_BITS = 9
"""LSB exponent of an operand, signed: -143 (E5M2X4 with scale 2^-127) to 126 (E2M1X4 with scale 2^127)."""


def element_format(dtype: DType) -> FloatFormat:
    """The float format of a MAC type's elements."""
    return PACKED[dtype] if dtype in PACKED else FLOATS[dtype]


def exponent_range(fmt: FloatFormat) -> int:
    """Largest distance between the exponents of two finite numbers; subnormals have the least normal's exponent."""
    top = (fmt.max_code >> fmt.man_bits) & ((1 << fmt.exp_bits) - 1)
    return top - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PeConfig:
    """The formats that a PE is built for, and those of which it also takes two products a pair (`double`); everything else follows from them.

    Attributes
    ----------
    digit_bits: w, width of a multiplier: 4 (FP8, FP4 and half of a BF16 significand) or 6 (half of FP16's, a quarter of FP32's).
    max_shift: largest position of a digit.
    sum_bits: magnitude bits of the exact sum of products.
    """

    formats: tuple[DType, ...] = MAC_DTYPES
    double: tuple[DType, ...] = ()

    def __post_init__(self) -> None:
        if not self.formats or any(f not in MAC_DTYPES for f in self.formats):
            raise ValueError(f"formats must be types that the array can multiply, not {self.formats!r}")
        if any(f not in self.formats or f not in DOUBLE_ROWS for f in self.double):
            raise ValueError(f"double must be FP8 types that are in formats, not {self.double!r}")

    @property
    def singles(self) -> tuple[DType, ...]:
        """Formats with one product a pair, in one pass."""
        return tuple(f for f in self.formats if f not in PACKED and f != DType.FP32)

    @property
    def passes(self) -> bool:
        """Whether there is FP32, which takes several passes."""
        return DType.FP32 in self.formats

    @property
    def packed(self) -> tuple[DType, ...]:
        """Formats with four products a pair."""
        return tuple(f for f in self.formats if f in PACKED)

    @property
    def digit_bits(self) -> int:
        """Width of one multiplier of the bank of four."""
        single = max((element_format(f).sig_bits for f in self.singles), default=0)
        packed = max((element_format(f).sig_bits for f in (*self.packed, *self.double)), default=0)
        quarter = element_format(DType.FP32).sig_bits // FP32_PASSES if self.passes else 0
        return max((single + 1) // 2, packed, quarter, 2)

    @property
    def max_shift(self) -> int:
        """Largest position of a digit."""
        return max(
            self.digit_bits if self.singles else 0,
            (FP32_PASSES - 1) * self.digit_bits if self.passes else 0,
            *(exponent_range(element_format(f)) for f in (*self.packed, *self.double)),
            1,
        )

    @property
    def shift_bits(self) -> int:
        """Bits of a digit's right shift."""
        return self.max_shift.bit_length()

    @property
    def sum_bits(self) -> int:
        """Bits of the magnitude of a sum of products, exact for every pair of types that may meet."""
        need = [2 * element_format(f).sig_bits for f in self.formats if f not in PACKED]
        for types, carries in ((self.double, 1), (self.packed, 2)):
            for fmt in map(element_format, types):
                need.append(2 * (fmt.sig_bits + exponent_range(fmt)) + carries)
        return max(need)

    @property
    def step(self) -> StepConfig:
        """The FP32 step that takes the sum."""
        return StepConfig(bits=self.sum_bits, moves=True)


class OperandLayout(data.StructLayout):
    """A decoded operand.

    sig: digits; neg: their signs; right: their right shifts; exp: LSB exponent; zero, inf: of each product's operand (bit 0 alone where
    there is one product); nan: any of them, or the block scale; active: this row takes part; swap: the shadow weights become active.
    move: no number but a WORD; a stationary one is in the lowest WORD_BITS bits (there are always as many below `active`), and `active` tells
    whether a moving one's row gives its word. more (with FP32): the products add to those of the cycle before.
    """

    def __init__(self, config: PeConfig):
        members: dict[str, Any] = {
            "sig": data.ArrayLayout(unsigned(config.digit_bits), DIGITS),
            "right": data.ArrayLayout(unsigned(config.shift_bits), DIGITS),
            "neg": unsigned(DIGITS),
            "zero": unsigned(DIGITS),
            "inf": unsigned(DIGITS),
            "nan": unsigned(1),
            "exp": signed(EXP_BITS),
            "active": unsigned(1),
            "swap": unsigned(1),
            "move": unsigned(1),
        }
        super().__init__(members | ({"more": unsigned(1)} if config.passes else {}))
