"""Number formats: the one table that models, RTL, assembler and docs share.

Sources: IEEE 754-2019 (FP32, FP16), OCP 8-bit Floating Point 1.0 (E4M3, E5M2), OCP Microscaling Formats 1.0
(E2M1, E8M0, block size 32). Casts and arithmetic live in `models.cast` and `models.fp`.
"""

import enum
from dataclasses import dataclass


class DType(enum.IntEnum):
    """Element type code, as stored in an instruction's access pattern (one byte)."""

    FP32 = 0
    BF16 = 1
    FP16 = 2
    E4M3 = 3
    E5M2 = 4
    INT8 = 5
    UINT8 = 6
    INT16 = 7
    UINT16 = 8
    INT32 = 9
    UINT32 = 10
    E8M0 = 11
    E4M3X4 = 12
    E5M2X4 = 13
    E2M1X4 = 14


@dataclass(frozen=True, kw_only=True, slots=True)
class FloatFormat:
    """A binary floating-point format: sign, `exp_bits` of biased exponent, `man_bits` of fraction.

    `has_inf`: the top exponent with fraction 0 is infinity (IEEE style). `nan` is the canonical NaN's code, or None
    where the format has none; `max_code` is the code of the largest finite value.
    """

    name: str
    exp_bits: int
    man_bits: int
    bias: int
    has_inf: bool
    nan: int | None
    max_code: int

    @property
    def width(self) -> int:
        """Bits of a code word."""
        return 1 + self.exp_bits + self.man_bits

    @property
    def sig_bits(self) -> int:
        """Bits of a significand with its hidden bit."""
        return self.man_bits + 1

    @property
    def min_exp(self) -> int:
        """Exponent of the smallest normal number, and of the hidden-bit position of subnormals."""
        return 1 - self.bias


FP32 = FloatFormat(
    name="fp32", exp_bits=8, man_bits=23, bias=127, has_inf=True, nan=0x7FC00000, max_code=0x7F7FFFFF
)
BF16 = FloatFormat(name="bf16", exp_bits=8, man_bits=7, bias=127, has_inf=True, nan=0x7FC0, max_code=0x7F7F)
FP16 = FloatFormat(name="fp16", exp_bits=5, man_bits=10, bias=15, has_inf=True, nan=0x7E00, max_code=0x7BFF)
E4M3 = FloatFormat(name="e4m3", exp_bits=4, man_bits=3, bias=7, has_inf=False, nan=0x7F, max_code=0x7E)
E5M2 = FloatFormat(name="e5m2", exp_bits=5, man_bits=2, bias=15, has_inf=True, nan=0x7E, max_code=0x7B)
E2M1 = FloatFormat(name="e2m1", exp_bits=2, man_bits=1, bias=1, has_inf=False, nan=None, max_code=0x7)

E8M0_BIAS = 127
"""A scale code e means 2**(e - 127); there is no zero."""
E8M0_NAN = 0xFF
MX_BLOCK = 32
"""Elements that share a scale: 8 partitions x 4 packed elements."""
MX_PACK = 4
MX_ROWS = MX_BLOCK // MX_PACK


class MxRule(enum.IntEnum):
    """How a block's scale is chosen from its largest magnitude: OCP Microscaling 1.0, 6.3; or one power of two more, so that nothing saturates."""

    OCP = 0
    NKI = 1


FLOATS: dict[DType, FloatFormat] = {
    DType.FP32: FP32,
    DType.BF16: BF16,
    DType.FP16: FP16,
    DType.E4M3: E4M3,
    DType.E5M2: E5M2,
}
"""The float formats that an engine can read or write one element at a time."""

PACKED: dict[DType, FloatFormat] = {DType.E4M3X4: E4M3, DType.E5M2X4: E5M2, DType.E2M1X4: E2M1}
"""MX operand types: four elements a word, element 0 in the lowest bits."""

INTS: dict[DType, tuple[int, bool]] = {
    DType.INT8: (8, True),
    DType.UINT8: (8, False),
    DType.INT16: (16, True),
    DType.UINT16: (16, False),
    DType.INT32: (32, True),
    DType.UINT32: (32, False),
}
"""Integer types: (bits, signed)."""


def dtype_bytes(dtype: DType) -> int:
    """Bytes that one element (or one packed x4 word) takes in memory."""
    if dtype in FLOATS:
        return FLOATS[dtype].width // 8
    if dtype in PACKED:
        return MX_PACK * PACKED[dtype].width // 8
    if dtype == DType.E8M0:
        return 1
    return INTS[dtype][0] // 8


def dtype_by_name(name: str) -> DType:
    """The type called `name` (lower case, as in TOML: "bf16", "e4m3x4"). Raises ValueError with the allowed names."""
    try:
        return DType[name.upper()]
    except KeyError:
        allowed = ", ".join(d.name.lower() for d in DType)
        raise ValueError(f"number format must be one of {allowed}, not {name!r}") from None


MAC_DTYPES = (
    DType.BF16,
    DType.FP16,
    DType.E4M3,
    DType.E5M2,
    DType.E4M3X4,
    DType.E5M2X4,
    DType.E2M1X4,
    DType.FP32,
)
"""Types that the tensor array can multiply; a configuration builds a subset."""
FP32_PASSES = 4
"""Cycles that a moving column of FP32 takes: one for each quarter of its significands."""

DOUBLE_ROWS = (DType.E4M3, DType.E5M2)
"""Types of which a PE can take two products a cycle, of two rows of the contraction in one partition."""

MAC_CLASSES: tuple[frozenset[DType], ...] = (
    frozenset({DType.BF16}),
    frozenset({DType.FP16}),
    frozenset({DType.E4M3, DType.E5M2}),
    frozenset({DType.E4M3X4, DType.E5M2X4}),
    frozenset({DType.E2M1X4}),
    frozenset({DType.FP32}),
)
"""Stationary and moving operands must come from the same class (FP8 kinds may be mixed)."""
