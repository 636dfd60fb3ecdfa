"""The cocotb side of sim.probe: a host and memories of cocotbext-axi around a chip, the way a user's own testbench has them."""

from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from models import image as images
from sim.probe import now, record
from sim.run import WATCHDOG, start_writes
from sim.runner import params

PAGE = 4096
"""Bytes after which the next channel's memory goes on (docs/programming.md)."""
MOST_CYCLES = 1_000_000


class ChannelView:
    """What memory channel `channel` of `channels` sees of the chip's memory `data`, as cocotbext-axi's memories index it."""

    def __init__(self, data: bytearray, channel: int, channels: int):
        self.data, self.channel, self.channels = data, channel, channels

    def __len__(self) -> int:
        return len(self.data) // self.channels

    def _at(self, span: slice) -> slice:
        page, offset = divmod(span.start, PAGE)
        start = (page * self.channels + self.channel) * PAGE + offset
        return slice(start, start + span.stop - span.start)

    def __getitem__(self, span: slice) -> bytes:
        return bytes(self.data[self._at(span)])

    def __setitem__(self, span: slice, value: bytes) -> None:
        self.data[self._at(span)] = value


@cocotb.test()
async def run_the_image(dut: Any) -> None:
    """Load, start, wait until no core runs, keep what came out."""
    p = params()
    image = images.load(Path(p["image"]))
    ends = [a + len(d) for a, d in image.segments] + [a + n for a, n in image.outputs]
    whole = PAGE * p["channels"]
    data = bytearray(-(-max(ends) // whole) * whole)
    for address, segment in image.segments:
        data[address : address + len(segment)] = segment
    dut.chip_id.value = 0
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil_"), dut.clk, dut.rst)
    for channel in range(p["channels"]):
        bus = AxiBus.from_prefix(dut, f"m_axi_mem{channel}_")
        view = ChannelView(data, channel, p["channels"])
        AxiRam(bus, dut.clk, dut.rst, size=len(view), mem=view)
    dut.rst.value = 1
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    for address, value in start_writes(image, WATCHDOG):
        await host.write_dword(address, value)
    start, cycles = now(), 0
    while dut.running.value:
        await RisingEdge(dut.clk)
        cycles += 1
        assert cycles < MOST_CYCLES, f"the chip still runs after {MOST_CYCLES} cycles"
    record(cycles, now() - start, b"".join(bytes(data[a : a + n]) for a, n in image.outputs))
