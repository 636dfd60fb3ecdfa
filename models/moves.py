"""Vector engine: elements that go to another partition of their quadrant."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.access import AccessPattern
from models.fault import legal
from models.formats import DType
from models.isa import MASK_FIELDS, Flag, Opcode
from models.operands import Action, Memories

U32 = NDArray[np.uint32]

MOVES = (Opcode.STREAM_SHUFFLE, Opcode.LANE_TRANSPOSE)
"""Opcodes whose results come from other partitions."""
STAYS = 255
"""Entry of a mask whose destination partition is not written."""
(MASK,) = MASK_FIELDS


def mask_field(mask: Sequence[int]) -> int:
    """The instruction's field for a mask of one entry a partition."""
    return int.from_bytes(bytes(mask), "little")


def mask_entries(field: int, quadrant: int) -> list[int]:
    """The entries of an instruction's mask; `mask_field` is the inverse."""
    return list(field.to_bytes(MASK.size, "little")[:quadrant])


def shuffled(x: U32, mask: Sequence[int]) -> tuple[U32, NDArray[np.bool_]]:
    """([partitions, N] with row p of each quadrant from row mask[p] of it, which of the rows are written).

    The mask has an entry for each of a quadrant's partitions; x has whole quadrants.
    """
    at, stays = np.array(mask, dtype=np.int64), np.array(mask) == STAYS
    whole = x.reshape(x.shape[0] // len(mask), len(mask), x.shape[1])[:, np.where(stays, 0, at)]
    return whole.reshape(x.shape), np.tile(~stays, x.shape[0] // len(mask))


def transposed(x: U32, quadrant: int) -> U32:
    """[partitions, N] with each block of quadrant x quadrant elements transposed; both sizes are multiples of quadrant."""
    blocks = x.reshape(x.shape[0] // quadrant, quadrant, x.shape[1] // quadrant, quadrant)
    return blocks.transpose(0, 3, 2, 1).reshape(x.shape)


class Moves(Memories):
    """STREAM_SHUFFLE and LANE_TRANSPOSE."""

    def _move(self, opcode: Opcode, dst: AccessPattern, src: AccessPattern, raw: dict[str, int]) -> Action:
        """One of MOVES. Raises Fault(ILLEGAL_FIELD) for sizes and masks, and range faults."""
        parts, quadrant = raw["parts"], self.config.quadrant
        mask, saturate = mask_entries(raw["mask"], quadrant), bool(raw["flags"] & Flag.SATURATE)
        legal(parts % quadrant == 0 and dst.size == src.size)
        if opcode == Opcode.STREAM_SHUFFLE:
            legal(all(entry == STAYS or entry < quadrant for entry in mask))
        else:
            legal(src.size % quadrant == 0)
        out, a = self._place(dst, parts), self._place(src, parts)

        def run() -> None:
            bits, written = a.read(), None
            if opcode == Opcode.STREAM_SHUFFLE:
                bits, rows = shuffled(bits, mask)
                written = np.broadcast_to(rows[:, None], bits.shape)
            else:
                bits = transposed(bits, quadrant)
            if src.dtype != dst.dtype:
                bits = _cast(dst.dtype, src.dtype, bits, saturate=saturate)
            out.write(bits, where=written)

        return run


def _cast(to: DType, source: DType, bits: U32, *, saturate: bool) -> U32:
    return cast.encode(to, cast.decode(source, bits), saturate=saturate)
