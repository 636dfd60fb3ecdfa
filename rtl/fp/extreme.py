"""FP32 maximum and minimum of IEEE 754-2019."""

from amaranth import Cat, Module, Mux, Signal, Value

from rtl.fp.round import CANONICAL_NAN


def is_nan(x: Value) -> Value:
    """Whether FP32 bits are a NaN."""
    return x[23:31].all() & x[:23].any()


def canonical(x: Value) -> Value:
    """FP32 bits with NaN made canonical."""
    return Mux(is_nan(x), CANONICAL_NAN, x)


def ordered(x: Value) -> Value:
    """An unsigned number that grows with FP32 bits, downwards for negative ones; -0 < +0, and the canonical NaN above all."""
    return Cat(x[:31] ^ x[31].replicate(31), ~x[31])


def extreme(m: Module, name: str, a: Value, b: Value, largest: Value) -> Signal:
    """maximum(a, b) where `largest`, else minimum(a, b): NaN wins, -0 < +0. Combinational."""
    out = Signal(32, name=f"{name}_extreme")
    greater = ordered(a) > ordered(b)
    m.d.comb += out.eq(Mux(is_nan(a) | is_nan(b), CANONICAL_NAN, Mux(greater == largest, a, b)))
    return out
