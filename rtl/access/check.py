"""Field rules of access patterns that engines share."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

from amaranth import C, Module, Signal, Value

from models.formats import DType
from models.isa import Space
from rtl.lib.element import log2_bytes


def one_of(code: Value, members: Iterable[int]) -> Value:
    """Whether `code` is one of the enumeration's members."""
    return reduce(or_, [code == int(d) for d in sorted(members)], C(0, 1))


def pattern_ok(
    m: Module,
    name: str,
    ap: Any,
    parts: Value,
    *,
    partitions: int,
    dtypes: Iterable[DType],
    spaces: Iterable[Space] = tuple(Space),
) -> Signal:
    """Type and space allowed, address aligned, partitions `ap.part` to `ap.part + parts - 1` there. Combinational."""
    step = (partitions // 4).bit_length() - 1
    ok = Signal(name=f"{name}_ok")
    size = log2_bytes(ap.dtype)
    misaligned = (ap.addr[0] & (size != 0)) | (ap.addr[1] & size[1])
    m.d.comb += ok.eq(
        one_of(ap.dtype, dtypes)
        & one_of(ap.space, spaces)
        & ~misaligned
        & (ap.part[:step] == 0)
        & (ap.part + parts <= partitions)
    )
    return ok
