"""Normalise, round to nearest even and pack: the end of every FP32 operation."""

from amaranth import C, Cat, Module, Mux, Signal, Value, signed

EXP_BITS = 12
"""Signed exponents inside an operation: from far below FP32's last place (-149) to products of the largest operands and scales."""
CANONICAL_NAN = 0x7FC00000
INFINITY = 0x7F800000
BIAS = 127


def normalise(m: Module, name: str, value: Value) -> tuple[Signal, Signal]:
    """(value shifted left until its top bit is set, positions shifted); a zero stays zero with a count that means nothing."""
    width = len(value)
    steps = [1 << i for i in reversed(range((width - 1).bit_length()))]
    count = Signal((width - 1).bit_length(), name=f"{name}_count")
    bits = []
    for step in steps:
        empty = Signal(name=f"{name}_empty{step}")
        shifted = Signal(width, name=f"{name}_by{step}")
        m.d.comb += empty.eq(~value[width - step :].any())
        m.d.comb += shifted.eq(Mux(empty, Cat(C(0, step), value[: width - step]), value))
        value = shifted
        bits.append(empty)
    m.d.comb += count.eq(Cat(*reversed(bits)))
    assert isinstance(value, Signal)
    return value, count


def round_pack(m: Module, name: str, *, mag: Value, neg: Value, lsb: Value, inf: Value, nan: Value) -> Signal:
    """FP32 bits of (-1)**neg * mag * 2**lsb, rounded once; `mag` has 26 bits or more, its last one may be sticky.

    `lsb` is signed, EXP_BITS wide. `inf` gives an infinity of sign `neg`, `nan` the canonical NaN. Combinational.
    """
    width = len(mag)
    found, count = normalise(m, name, mag)
    exp = Signal(signed(EXP_BITS), name=f"{name}_exp")
    tiny = Signal(name=f"{name}_tiny")
    down = Signal(EXP_BITS, name=f"{name}_down")
    m.d.comb += [
        exp.eq(lsb - count + (width - 1 + BIAS)),
        tiny.eq(exp <= 0),
        down.eq(1 - exp),
    ]
    # Below the smallest normal the last place stays at 2**-149: the significand moves down.
    moved = Signal(50, name=f"{name}_moved")
    kept = Signal(25, name=f"{name}_kept")
    rest = Signal(name=f"{name}_rest")
    by = Mux(tiny, Mux(down[5:].any(), 31, down[:5]), 0)
    m.d.comb += [
        moved.eq(Cat(C(0, 25), found[width - 25 :]) >> by),
        kept.eq(moved[25:]),
        rest.eq(moved[:25].any() | found[: width - 25].any()),
    ]
    up = Signal(name=f"{name}_up")
    packed = Signal(EXP_BITS + 23, name=f"{name}_packed")
    out = Signal(32, name=f"{name}_out")
    base = Mux(tiny | ~found[-1], 0, exp[: EXP_BITS - 1] - 1)
    m.d.comb += [
        up.eq(kept[0] & (rest | kept[1])),
        packed.eq(Cat(C(0, 23), base) + kept[1:] + up),
        out.eq(
            Mux(
                nan,
                CANONICAL_NAN,
                Cat(Mux(inf | (packed[23:] >= 255), C(INFINITY, 31), packed[:31]), neg),
            )
        ),
    ]
    return out
