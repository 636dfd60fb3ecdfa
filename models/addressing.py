"""64-bit addresses: {chip, unit, offset}, and where a core's memories lie in its offsets."""

from models.isa import Space

CHIP_SHIFT, UNIT_SHIFT = 48, 40
CHIP_LOCAL = 0xFFFF
UNIT_HOST = 0
UNIT_MEMORY = 1
UNIT_CORE0 = 16
OFFSET_MASK = (1 << UNIT_SHIFT) - 1
CORE_PSUM_BASE = 1 << 32
"""Within a core's offset space: SBUF from 0, PSUM from here; both partition-major."""
SBUF_PARTITION_STRIDE = 1 << 20
PSUM_PARTITION_STRIDE = 1 << 16


def memory_address(offset: int) -> int:
    """64-bit address of byte `offset` of this chip's memory channels."""
    return (CHIP_LOCAL << CHIP_SHIFT) | (UNIT_MEMORY << UNIT_SHIFT) | offset


def core_address(core: int, space: Space, partition: int, offset: int) -> int:
    """64-bit address of byte `offset` of `partition` in a core's SBUF or PSUM, on this chip."""
    base = (
        partition * SBUF_PARTITION_STRIDE
        if space == Space.SBUF
        else CORE_PSUM_BASE + partition * PSUM_PARTITION_STRIDE
    )
    return (CHIP_LOCAL << CHIP_SHIFT) | ((UNIT_CORE0 + core) << UNIT_SHIFT) | (base + offset)
