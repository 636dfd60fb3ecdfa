"""The whole chip under cocotb: host port and memory channels with random pauses; runs, an error, a clear, and runs again."""

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models import registers
from models.addressing import CHIP_LOCAL, memory_address
from models.formats import DType
from models.image import Image
from models.isa import Engine, ErrorCode
from models.registers import CHIP
from rtl.core import READERS
from tb.axi.tb_lite import HostPort
from tb.lib.axi_memory import AxiMemory
from tb.sim.images import NANO, broken, gemm_job, model, vector_image

MEMORY = 1 << 18
"""Bytes of the bench's memory: the images use no more."""


class Bench:
    """A nano chip with one memory channel."""

    def __init__(self, dut: Any):
        self.dut = dut
        self.memory = AxiMemory(dut, "m_axi_mem0", MEMORY, ids=READERS * NANO.cores)

    async def start(self) -> None:
        dut = self.dut
        for pin in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
            getattr(dut, f"s_axil__{pin}").value = 0
        dut.chip_id.value = 3
        Clock(dut.clk, 10, unit="ns", impl="gpi").start()
        cocotb.log.info("seed %d", cocotb.RANDOM_SEED)
        dut.rst.value = 1
        for _ in range(4):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        await FallingEdge(dut.clk)
        self.host = HostPort(dut, "s_axil")
        cocotb.start_soon(self.serve())

    async def serve(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            self.memory.drive()
            await ReadOnly()
            self.memory.settle()

    async def load(self, image: Image) -> None:
        """Memory contents and PROGRAM registers."""
        for address, data in image.segments:
            self.memory.data[address : address + len(data)] = np.frombuffer(data, dtype=np.uint8)
        for core, engine, address in image.entries:
            full = memory_address(address)
            if random.random() < 0.5:  # the chip's own number will do as well
                full = full & ~(CHIP_LOCAL << 48) | 3 << 48
            assert await self.host.write(
                registers.core_register(core, f"PROGRAM_LO_{engine.name}"), full & 0xFFFFFFFF
            )
            assert await self.host.write(
                registers.core_register(core, f"PROGRAM_HI_{engine.name}"), full >> 32
            )

    async def wait(self, most: int = 20000) -> None:
        """Until no core runs."""
        for _ in range(most):
            await FallingEdge(self.dut.clk)
            if not int(self.dut.running.value):
                return
        raise AssertionError("the chip runs on")

    async def register(self, name: str) -> int:
        value, ok = await self.host.read(registers.core_register(0, name))
        assert ok, name
        return value

    def outputs(self, image: Image) -> bytes:
        return b"".join(self.memory.data[a : a + n].tobytes() for a, n in image.outputs)


def _want(image: Image) -> bytes:
    machine = model(image)
    assert machine.cores[0].error is None
    return b"".join(data for _, data in machine.outputs(image).segments)


@cocotb.test()
async def runs_images(dut: Any) -> None:
    """GEMMs in two formats and a vector layer, started by START, with pauses on the bus: outputs are the model's."""
    bench = Bench(dut)
    await bench.start()
    assert await bench.host.read(CHIP["MAGIC"]) == (registers.CHIP_MAGIC, True)
    assert await bench.host.read(CHIP["CONFIG_HASH"]) == (int(NANO.digest()[:8], 16), True)
    jobs = [
        gemm_job(DType.BF16, (13, 5, 3), 1)[0].image,
        gemm_job(DType.E4M3X4, (40, 9, 4), 2)[0].image,
        vector_image(NANO, 3),
    ]
    for rate, image in zip((1.0, 0.6, 0.3), jobs, strict=True):
        bench.memory.rate, bench.memory.latency = rate, random.choice([1, 20])
        await bench.load(image)
        assert await bench.host.write(CHIP["START"], 1)
        await bench.wait()
        assert await bench.register("ERR_CODE") == 0
        assert await bench.register("STATUS") == 1 << 17
        assert bench.outputs(image) == _want(image)
        assert await bench.register("CYCLES_LO") > 100
        assert await bench.register("CYCLES_HI") == 0
        # semaphores keep their values from run to run; the next program starts from zero
        assert await bench.host.write(registers.core_register(0, "CLEAR"), 0b110)
    assert await bench.register("COLUMNS_LO") == 0


@cocotb.test()
async def errors_then_on_again(dut: Any) -> None:
    """Each kind of error stops the core and is in its registers; after CLEAR the next program is right."""
    bench = Bench(dut)
    await bench.start()
    bench.memory.rate = 0.7
    good = vector_image(NANO, 9)
    for kind in ("opcode", "field", "dma", "watchdog"):
        image = broken(kind)
        want = model(image).cores[0].error
        assert want is not None
        await bench.load(image)
        assert await bench.host.write(registers.core_register(0, "WATCHDOG"), 300)
        assert await bench.host.write(CHIP["START"], 1)
        await bench.wait()
        assert int(dut.error.value) == 1
        got = [
            await bench.register(n)
            for n in ("ERR_CODE", "ERR_ENGINE", "ERR_INDEX", "ERR_ADDR_LO", "ERR_ADDR_HI")
        ]
        assert got == [int(want.code), int(want.engine), want.index, want.addr & 0xFFFFFFFF, want.addr >> 32]
        assert ErrorCode(got[0]).name
        assert await bench.host.write(registers.core_register(0, "CLEAR"), 0b111)
        assert int(dut.error.value) == 0
        await bench.load(good)
        mask = (1 << len(Engine)) - 1
        assert await bench.host.write(registers.core_register(0, "DOORBELL"), mask)
        await bench.wait()
        assert await bench.register("ERR_CODE") == 0
        assert bench.outputs(good) == _want(good)
        assert await bench.host.write(registers.core_register(0, "CLEAR"), 0b111)
