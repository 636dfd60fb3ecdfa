"""One core at its burst and control ports: an image runs to the model's outputs."""

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models.addressing import memory_address
from models.formats import DType
from models.image import Image
from models.registers import CORE
from rtl.core import READERS
from tb.lib.burst_memory import BurstMemory, BurstReadPort, BurstWritePort
from tb.sim.images import NANO, gemm_job, model, vector_image, wild_gemm


class Bench:
    """A core, its memory, and the host."""

    def __init__(self, dut: Any):
        self.dut = dut
        self.memory = BurstMemory(1 << 18)
        self.ports: list[Any] = [BurstReadPort(dut, f"read{i}", self.memory) for i in range(READERS)]
        self.ports.append(BurstWritePort(dut, "write0", self.memory))

    async def start(self) -> None:
        dut = self.dut
        dut.core_index.value = dut.chip_id.value = 0
        dut.control__req__valid.value = dut.control__req__payload.value = 0
        dut.control__rsp__ready.value = 1
        Clock(dut.clk, 10, unit="ns", impl="gpi").start()
        cocotb.log.info("seed %d", cocotb.RANDOM_SEED)
        dut.rst.value = 1
        for _ in range(4):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        cocotb.start_soon(self.serve())

    async def serve(self) -> None:
        """Memory, for ever."""
        while True:
            await FallingEdge(self.dut.clk)
            for port in self.ports:
                port.drive()
            await ReadOnly()
            for port in self.ports:
                port.settle()

    async def write(self, name: str, value: int) -> None:
        """A register write."""
        dut = self.dut
        await FallingEdge(dut.clk)
        dut.control__req__payload.value = 1 | CORE[name] << 1 | value << 17 | 0xF << 49
        dut.control__req__valid.value = 1
        accepted = False
        for _ in range(60):
            await ReadOnly()
            accepted = accepted or bool(int(dut.control__req__ready.value))
            answered = int(dut.control__rsp__valid.value)
            if answered:
                assert int(dut.control__rsp__payload.value) >> 32 == 0, name
            await FallingEdge(dut.clk)
            if accepted:
                dut.control__req__valid.value = 0
            if answered:
                return
        raise AssertionError(f"{name}: no answer")

    async def run(self, image: Image) -> bytes:
        for address, data in image.segments:
            self.memory.data[address : address + len(data)] = np.frombuffer(data, dtype=np.uint8)
        mask = 0
        for _, engine, address in image.entries:
            full = memory_address(address)
            await self.write(f"PROGRAM_LO_{engine.name}", full & 0xFFFFFFFF)
            await self.write(f"PROGRAM_HI_{engine.name}", full >> 32)
            mask |= 1 << engine
        await self.write("DOORBELL", mask)
        for _ in range(30000):
            if not int(self.dut.control__running.value):
                break
            await FallingEdge(self.dut.clk)
        assert not int(self.dut.control__running.value), "runs on"
        assert not int(self.dut.control__error.value)
        await self.write("CLEAR", 0b111)
        return b"".join(self.memory.data[a : a + n].tobytes() for a, n in image.outputs)


@cocotb.test()
async def images(dut: Any) -> None:
    """Several programs one after the other on one core, under changing weather."""
    bench = Bench(dut)
    await bench.start()
    jobs = [vector_image(NANO, 1), gemm_job(DType.E4M3, (17, 9, 11), 2)[0].image]
    jobs += [wild_gemm(dtype, 3)[0].image for dtype in NANO.tensor.formats]
    for image in jobs:
        for port in bench.ports:
            port.rate, port.latency = random.choice([1.0, 0.7, 0.4]), random.choice([1, 5, 25])
        machine = model(image)
        want = b"".join(data for _, data in machine.outputs(image).segments)
        assert await bench.run(image) == want
