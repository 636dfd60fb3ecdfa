"""SBUF: the core's state buffer, which every engine and the DMA work on."""

from models.config import ChipConfig
from rtl.memory.controller import MemoryController, MemoryControllerConfig
from rtl.tiles import TileLibrary

TENSOR_PORTS = ("moving", "moving_scale", "stationary", "stationary_scale")


def sbuf_memory(config: ChipConfig) -> MemoryControllerConfig:
    """The memory that SBUF is: the moving columns win over everything else, until somebody starves."""
    return MemoryControllerConfig(
        partitions=config.partitions,
        bytes_per_partition=config.sbuf.bytes_per_partition,
        banks=config.sbuf.banks,
        lane_reads=(*TENSOR_PORTS, "vector0", "vector1", "scalar", "gpsimd"),
        lane_writes=("vector_w", "scalar_w", "gpsimd_w"),
        preferred=("moving",),
        starvation_limit=config.core.starvation_limit,
    )


class Sbuf(MemoryController):
    """Lane reads `moving`, `moving_scale`, `stationary`, `stationary_scale`, `vector0`, `vector1`, `scalar`, `gpsimd`; lane writes `vector_w`,
    `scalar_w`, `gpsimd_w`; `row_read` and `row_write`; `starving`. Latencies and order are MemoryController's.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        super().__init__(sbuf_memory(config), tiles=tiles)
