"""One program on the chip and in the timing model."""

from collections.abc import Callable
from dataclasses import dataclass

from models.config import ChipConfig
from models.image import Image
from models.isa import Engine
from models.program import Program
from models.timing.chip import CoreEstimate, estimate
from sim.run import CoreResult, run_image


@dataclass(frozen=True)
class Both:
    """Cycles that the chip took and that were told for it, and core 0's counters."""

    took: int
    told: int
    chip: CoreResult
    model: CoreEstimate

    @property
    def error(self) -> float:
        """Of the total, as a share of it."""
        return self.told / self.took - 1

    def busy(self, engine: Engine) -> tuple[int, int]:
        """(took, told) of an engine."""
        return self.chip.counters[f"BUSY_{engine.name}"], self.model.engines[engine].busy

    @property
    def dma(self) -> tuple[int, int]:
        """(took, told) of the DMA."""
        return self.chip.counters["DMA_BUSY"], self.model.dma_busy


def both(config: ChipConfig, image: Image, latency: int = 20) -> Both:
    """`image` on the chip and in the model."""
    done = run_image(config, image, latency=latency)
    assert [core.error for core in done.cores] == [None] * config.cores
    told = estimate(config, image, latency=latency)
    for number, core in told.cores.items():
        assert core.columns == done.cores[number].counters["COLUMNS"]
    return Both(done.cycles, told.cycles, done.cores[0], told.cores[0])


def image_of(config: ChipConfig, fill: Callable[[Program], object]) -> Image:
    """The image of a program for core 0."""
    program = Program(config)
    fill(program)
    program.finish()
    image = Image.empty(config)
    image.add_program(0, program, 0x1000)
    return image
