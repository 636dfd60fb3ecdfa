"""Exact oracle for casts and for the tensor array: rational numbers (fractions.Fraction) and plain Python, no NumPy, nothing of models.cast.

A code's value is written down from the format's definition. Rounding is a search: the format's magnitudes rise with their codes, so the
two neighbours of a number are found by bisection and the nearer one is taken (the even code at a tie).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache


@dataclass(frozen=True)
class Spec:
    """A format by its definition: field widths, bias, largest finite code, codes (without sign) of Inf and of NaN, if any."""

    exp: int
    man: int
    bias: int
    largest: int
    inf: int | None
    nan: int | None

    @property
    def sign(self) -> int:
        """The sign bit's weight."""
        return 1 << (self.exp + self.man)


SPECS = {
    "fp32": Spec(8, 23, 127, 0x7F7FFFFF, 0x7F800000, 0x7FC00000),
    "bf16": Spec(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "fp16": Spec(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "e4m3": Spec(4, 3, 7, 0x7E, None, 0x7F),
    "e5m2": Spec(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "e2m1": Spec(2, 1, 1, 0x7, None, None),
}
FP32 = SPECS["fp32"]


@dataclass(frozen=True)
class Number:
    """A NaN, an infinity or a finite number; `neg` also tells -0 from +0."""

    kind: str
    neg: bool = False
    mag: Fraction = Fraction(0)

    @property
    def value(self) -> Fraction:
        """The signed value of a finite number."""
        return -self.mag if self.neg else self.mag


NAN = Number("nan")


@cache
def power(exponent: int) -> Fraction:
    """2**exponent."""
    return Fraction(2) ** exponent


def magnitude(spec: Spec, code: int) -> Fraction:
    """Value of a code without sign, as if no code were special."""
    exp, man = code >> spec.man, code & ((1 << spec.man) - 1)
    if exp == 0:
        return man * power(1 - spec.bias - spec.man)
    return ((1 << spec.man) + man) * power(exp - spec.bias - spec.man)


def decode(spec: Spec, code: int) -> Number:
    """What a code stands for."""
    neg, rest = bool(code & spec.sign), code & (spec.sign - 1)
    if rest == spec.inf:
        return Number("inf", neg)
    if rest > spec.largest:
        return NAN
    return Number("finite", neg, magnitude(spec, rest))


def nearest(spec: Spec, mag: Fraction) -> int:
    """Code without sign nearest to `mag`, even at ties; above `spec.largest` where it overflows."""
    low, high = 0, spec.largest + 1
    if mag >= magnitude(spec, high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if magnitude(spec, middle) <= mag:
            low = middle
        else:
            high = middle
    below, above = mag - magnitude(spec, low), magnitude(spec, high) - mag
    return low if below < above or (below == above and low % 2 == 0) else high


def encode(spec: Spec, x: Number, *, saturate: bool = False) -> int:
    """Code of a number, by the rules of docs/numerics.md."""
    if x.kind == "nan":
        return spec.nan or 0
    sign = spec.sign if x.neg else 0
    code = nearest(spec, x.mag) if x.kind == "finite" else spec.largest + 1
    if code <= spec.largest:
        return sign | code
    if saturate or spec.nan is None:
        return sign | spec.largest
    return spec.nan if spec.inf is None else sign | spec.inf


def product(a: Number, b: Number) -> Number:
    """a * b, exact."""
    neg = a.neg != b.neg
    if "nan" in (a.kind, b.kind):
        return NAN
    if "inf" in (a.kind, b.kind):
        other = b if a.kind == "inf" else a
        return NAN if other.kind == "finite" and other.mag == 0 else Number("inf", neg)
    return Number("finite", neg, a.mag * b.mag)


def total(terms: Sequence[Number]) -> Number:
    """Exact sum; IEEE's sign of zero for round to nearest: -0 only where every term is -0."""
    if any(t.kind == "nan" for t in terms):
        return NAN
    infinite = {t.neg for t in terms if t.kind == "inf"}
    if infinite:
        return NAN if len(infinite) == 2 else Number("inf", infinite.pop())
    value = sum((t.value for t in terms), Fraction(0))
    if value == 0:
        return Number("finite", all(t.neg and t.mag == 0 for t in terms))
    return Number("finite", value < 0, abs(value))


def scale(code: int) -> Number:
    """What an E8M0 code stands for."""
    return NAN if code == 0xFF else Number("finite", False, power(code - 127))


def step(psum: int, products: Sequence[tuple[Number, Number]], scales: Sequence[int] = ()) -> int:
    """One processing element: FP32 bits of psum + S, S the exact sum of the products times the scales, one rounding."""
    s = total([product(a, b) for a, b in products])
    for code in scales:
        s = product(s, scale(code))
    return encode(FP32, total([decode(FP32, psum), s]))


def matmul(
    rows: int,
    columns: tuple[int, int],
    operands: Callable[[int, int, int], Sequence[tuple[Number, Number]]],
    scales: Callable[[int, int, int], Sequence[int]] = lambda k, m, n: (),
) -> list[list[int]]:
    """FP32 bits [M][N] of K steps from +0, row 0 first; `operands(k, m, n)` gives a step's pairs, `scales(k, m, n)` its E8M0 codes."""
    out = [[0] * columns[1] for _ in range(columns[0])]
    for m in range(columns[0]):
        for n in range(columns[1]):
            for k in range(rows):
                out[m][n] = step(out[m][n], operands(k, m, n), scales(k, m, n))
    return out
