"""On-core memories as instructions see them: operands as patterns, read and written element by element."""

import numpy as np
from numpy.typing import NDArray

from models import encoding
from models.access import AccessPattern
from models.config import ChipConfig
from models.fault import Fault, legal
from models.formats import DType, dtype_bytes
from models.isa import ErrorCode, Space

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]


class Memories:
    """SBUF and PSUM of a core, uint8 [partitions, bytes]."""

    config: ChipConfig
    sbuf: U8
    psum: U8

    def _space(self, space: Space) -> U8:
        return self.sbuf if space == Space.SBUF else self.psum

    def _pattern(self, word: bytes, name: str, parts: int, *, scale: bool = False) -> AccessPattern:
        raw = encoding.raw_ap(word, name)
        legal(raw["dtype"] in list(DType) and raw["space"] in list(Space))
        ap = encoding.ap_from_raw(raw)
        legal(ap.addr % dtype_bytes(ap.dtype) == 0)
        if not scale:
            legal(ap.part % (self.config.partitions // 4) == 0 and ap.part + parts <= self.config.partitions)
        return ap

    def _addresses(self, ap: AccessPattern) -> NDArray[np.int64]:
        addresses = ap.addresses()
        limit = self._space(ap.space).shape[1]
        bad = (addresses < 0) | (addresses + dtype_bytes(ap.dtype) > limit)
        if bad.any():
            code = ErrorCode.SBUF_RANGE if ap.space == Space.SBUF else ErrorCode.PSUM_RANGE
            raise Fault(code, int(addresses[bad][0]) & 0xFFFFFFFF)
        return addresses

    def _read(self, ap: AccessPattern, parts: int) -> U32:
        """Raw elements, uint32 [parts, size]."""
        addresses = self._addresses(ap)
        rows = self._space(ap.space)[ap.part : ap.part + parts]
        out = np.zeros((parts, addresses.size), dtype=np.uint32)
        for byte in range(dtype_bytes(ap.dtype)):
            out |= rows[:, addresses + byte].astype(np.uint32) << np.uint32(8 * byte)
        return out

    def _write(
        self, ap: AccessPattern, parts: int, raw: U32, *, where: NDArray[np.bool_] | None = None
    ) -> None:
        """Elements in order, so that the last one stays where addresses repeat; only those of `where`, [parts, size]."""
        addresses = self._addresses(ap)
        rows = self._space(ap.space)[ap.part : ap.part + parts]
        every = np.arange(addresses.size)
        groups = [(slice(None), every)]
        if where is not None:
            groups = [(slice(n, n + 1), every[where[n, : every.size]]) for n in range(parts)]
        for lanes, chosen in groups:
            last = chosen[_last_writes(addresses[chosen])]
            for byte in range(dtype_bytes(ap.dtype)):
                bits = raw[lanes, last] >> np.uint32(8 * byte)
                rows[lanes, addresses[last] + byte] = bits.astype(np.uint8)


def _last_writes(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the last write to each distinct address, so that repeats resolve in program order."""
    _, reverse_first = np.unique(addresses[::-1], return_index=True)
    return np.sort(addresses.size - 1 - reverse_first)
