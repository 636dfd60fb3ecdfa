"""Access patterns: the host-side twin of an instruction's AP fields, and the addresses they walk."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.formats import DType, dtype_bytes
from models.isa import AP_DIMS, Space


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """Elements of `dtype` from byte `addr` of each partition on; `dims` are up to four (stride, count), outermost first.

    Strides count elements and may be 0 (repeat) or negative; a count of 0 makes the pattern empty. `part` is the first
    partition. Raises ValueError for more than four dims or fields that do not fit their encoding.
    """

    addr: int
    dtype: DType
    dims: tuple[tuple[int, int], ...]
    space: Space = Space.SBUF
    part: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.dims) <= AP_DIMS:
            raise ValueError(f"dims must be 1 to {AP_DIMS} (stride, count) pairs, not {self.dims!r}")
        for stride, count in self.dims:
            if not -(1 << 31) <= stride < 1 << 31:
                raise ValueError(f"stride must fit 32 bits signed, not {stride!r}")
            if not 0 <= count < 1 << 16:
                raise ValueError(f"count must be from 0 to 65535, not {count!r}")
        if not 0 <= self.addr < 1 << 32:
            raise ValueError(f"addr must be from 0 to 4294967295, not {self.addr!r}")
        if not 0 <= self.part < 256:
            raise ValueError(f"part must be from 0 to 255, not {self.part!r}")

    @property
    def size(self) -> int:
        """Elements per partition."""
        n = 1
        for _, count in self.dims:
            n *= count
        return n

    def inner(self, axes: int) -> int:
        """Elements of the `axes` innermost of four dimensions."""
        n = 1
        for _, count in self.padded()[AP_DIMS - axes :]:
            n *= count
        return n

    def outer(self, axes: int) -> int:
        """Places of the dimensions outside the `axes` innermost of four."""
        n = 1
        for _, count in self.padded()[: AP_DIMS - axes]:
            n *= count
        return n

    def padded(self) -> list[tuple[int, int]]:
        """The dims as exactly four, outer ones added as (0, 1)."""
        return [(0, 1)] * (AP_DIMS - len(self.dims)) + list(self.dims)

    def addresses(self) -> NDArray[np.int64]:
        """Byte address of every element, in walking order, shape [size]; may be negative where the pattern is wrong."""
        out = np.array([self.addr], dtype=np.int64)
        for stride, count in self.dims:
            steps = np.arange(count, dtype=np.int64) * (stride * dtype_bytes(self.dtype))
            out = (out[:, None] + steps[None, :]).reshape(-1)
        return out


def row(
    addr: int, dtype: DType, count: int, *, stride: int = 1, space: Space = Space.SBUF, part: int = 0
) -> AccessPattern:
    """A one-dimensional pattern."""
    return AccessPattern(addr, dtype, ((stride, count),), space, part)
