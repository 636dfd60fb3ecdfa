"""Matmul operands that the host quantises."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.formats import MX_PACK, MX_ROWS, DType


@dataclass(frozen=True, slots=True)
class Operands:
    """Raw operand words and scales: `words` uint32 [k_tiles, k, columns], `scales` uint8 [k_tiles, k / 8, columns] (empty unless packed)."""

    words: NDArray[np.uint32]
    scales: NDArray[np.uint8]


def mx_operands(values: NDArray[np.float64], dtype: DType) -> Operands:
    """MX operands from [k_tiles, k, 4, columns], quantised by the OCP rule in blocks of 8 partitions x 4 elements."""
    tiles, k, _, columns = values.shape
    blocks = values.reshape(tiles, k // MX_ROWS, MX_ROWS, MX_PACK, columns).transpose(0, 1, 4, 2, 3)
    flat = blocks.reshape(tiles, k // MX_ROWS, columns, MX_ROWS * MX_PACK).astype(np.float32)
    codes, scales = cast.quantize_mx(flat, dtype, rule="ocp")
    words = cast.pack_x4(dtype, codes.reshape(*codes.shape[:-1], MX_ROWS, MX_PACK))
    words = words.transpose(0, 1, 3, 2).reshape(tiles, k, columns)
    return Operands(words.astype(np.uint32), scales.astype(np.uint8))
