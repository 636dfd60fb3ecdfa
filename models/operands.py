"""On-core memories as instructions see them: operands as patterns, read and written element by element."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models import cast, encoding
from models.access import AccessPattern
from models.config import ChipConfig
from models.fault import Fault, legal
from models.formats import DType, dtype_bytes
from models.isa import ErrorCode, Space

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
F32 = NDArray[np.float32]
Action = Callable[[], None]
"""A checked instruction with its operands found: what happens when it runs, any number of times. May raise Fault for what memory holds."""

_DTYPES = frozenset(DType)
_SPACES = frozenset(Space)
_WORD: dict[int, np.dtype[np.unsignedinteger]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}


def index_of(n: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Where element `n` of a walk over `shape` is."""
    return tuple(int(i) for i in np.unravel_index(n, shape))


class Place:
    """The elements of a pattern on `parts` partitions of a memory, as one array with strides that the pattern's are: [parts, *dims].

    distinct: no element lies where another does. Raises Fault(SBUF_RANGE or PSUM_RANGE) for elements outside.
    """

    __slots__ = ("ap", "distinct", "dtype", "parts", "size", "view")

    def __init__(self, memory: U8, ap: AccessPattern, parts: int, *, scale: bool = False):
        width, limit = dtype_bytes(ap.dtype), memory.shape[1]
        self.ap, self.parts, self.dtype, self.size = ap, parts, ap.dtype, ap.size
        dims = _merged(ap.dims)
        low = high = ap.addr if self.size else 0
        shape, strides = [parts], [limit]
        for stride, count in dims:
            shape.append(count)
            strides.append(stride * width)
            if stride < 0:
                low += strides[-1] * (count - 1)
            else:
                high += strides[-1] * (count - 1)
        if self.size and (low < 0 or high + width > limit):
            raise _outside(ap, limit)
        self.distinct = self.size == 0 or _distinct(dims)
        offset = ap.addr if self.size else 0
        # an MX scale's partitions are chosen later, one for a group of eight
        if scale:
            shape[0] = memory.shape[0]
        else:
            offset += ap.part * limit
        self.view: NDArray[np.unsignedinteger] = np.ndarray(shape, _WORD[width], memory, offset, strides)

    def words(self) -> NDArray[np.unsignedinteger]:
        """Raw elements as they are in memory, [parts, size]."""
        return self.view.copy(order="C").reshape(self.parts, self.size)

    def look(self) -> NDArray[np.unsignedinteger]:
        """The same, but it may be the memory itself: for what is used before anything is written."""
        return self.view if self.view.ndim == 2 else self.view.reshape(self.parts, self.size)

    def read(self) -> U32:
        """Raw elements, uint32 [parts, size]."""
        return self.view.astype(np.uint32, order="C").reshape(self.parts, self.size)

    def numbers(self) -> F32:
        """FP32 [parts, size], NaN canonical."""
        return cast.decode(self.dtype, self.look())

    def write(self, raw: U32, *, where: NDArray[np.bool_] | None = None) -> None:
        """Elements in order, so that the last one stays where addresses repeat; only those of `where`, [parts, size]."""
        if self.distinct:
            shape = self.view.shape
            if where is None:
                self.view[...] = raw.reshape(shape)
            else:
                np.copyto(self.view, raw.reshape(shape), casting="unsafe", where=where.reshape(shape))
            return
        for n in range(self.size):
            at: tuple[Any, ...] = (slice(None), *index_of(n, self.view.shape[1:]))
            lanes = np.flatnonzero(where[:, n]) if where is not None else slice(None)
            self.view[at][lanes] = raw[lanes, n]

    def store(self, x: F32, *, saturate: bool) -> None:
        """FP32 values, cast to the pattern's type."""
        self.write(cast.encode(self.dtype, x, saturate=saturate))

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.unsignedinteger]:
        """Raw elements of chosen partitions, where the place has all of them: [rows, size]."""
        return self.view[rows].reshape(rows.size, self.size)

    def put(self, rows: NDArray[np.int64], raw: NDArray[np.unsignedinteger]) -> None:
        """The inverse: elements in order, so that the last one stays where addresses repeat."""
        if self.distinct:
            self.view[rows] = raw.reshape(rows.size, *self.view.shape[1:])
            return
        for n in range(self.size):
            at: tuple[Any, ...] = (rows, *index_of(n, self.view.shape[1:]))
            self.view[at] = raw[:, n]

    def fill(self, raw: U32) -> None:
        """One raw element a partition, or for all, [parts or 1, 1], everywhere."""
        self.view[...] = raw.reshape(-1, *[1] * (self.view.ndim - 1))


def _merged(dims: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """The same walk in as few (stride, count) pairs as possible, at least one."""
    out: list[tuple[int, int]] = []
    for stride, count in dims:
        if count == 1:
            continue
        if out and out[-1][0] == stride * count:
            out[-1] = stride, out[-1][1] * count
        else:
            out.append((stride, count))
    return out or [(0, 1)]


def _distinct(dims: list[tuple[int, int]]) -> bool:
    """True where every stride steps over all that smaller ones reach."""
    if len(dims) == 1:
        return dims[0][0] != 0 or dims[0][1] <= 1
    reach = 0
    for stride, count in sorted((abs(s), n) for s, n in dims):
        if count > 1 and stride <= reach:
            return False
        reach += stride * (count - 1)
    return True


def _outside(ap: AccessPattern, limit: int) -> Fault:
    """The fault of the first element that is not inside."""
    addresses = ap.addresses()
    bad = (addresses < 0) | (addresses + dtype_bytes(ap.dtype) > limit)
    code = ErrorCode.SBUF_RANGE if ap.space == Space.SBUF else ErrorCode.PSUM_RANGE
    return Fault(code, int(addresses[bad][0]) & 0xFFFFFFFF)


class Memories:
    """SBUF and PSUM of a core, uint8 [partitions, bytes]."""

    config: ChipConfig
    sbuf: U8
    psum: U8

    def _space(self, space: Space) -> U8:
        return self.sbuf if space == Space.SBUF else self.psum

    def _pattern(self, word: bytes, name: str, parts: int, *, scale: bool = False) -> AccessPattern:
        raw = encoding.raw_ap(word, name)
        legal(raw["dtype"] in _DTYPES and raw["space"] in _SPACES)
        ap = encoding.ap_from_raw(raw)
        legal(ap.addr % dtype_bytes(ap.dtype) == 0)
        if not scale:
            legal(ap.part % (self.config.partitions // 4) == 0 and ap.part + parts <= self.config.partitions)
        return ap

    def _place(self, ap: AccessPattern, parts: int, *, scale: bool = False) -> Place:
        """Where a pattern is. Raises Fault for elements outside."""
        return Place(self._space(ap.space), ap, parts, scale=scale)
