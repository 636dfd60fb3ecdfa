"""The watchdog's error has its code and its zero address, which are constants in the RTL."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from models.isa import ErrorCode


@cocotb.test()
async def constant_fields(dut):
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    for name in ("rst", "progress", "clear", "waiting", "error0_valid", "error0", "limit", "index0"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    await FallingEdge(dut.clk)
    dut.rst.value, dut.waiting.value, dut.limit.value, dut.index0.value = 0, 1, 3, 9
    for _ in range(8):
        await FallingEdge(dut.clk)
    assert int(dut.failed.value) == 1
    assert int(dut.first.value) == int(ErrorCode.WATCHDOG) | 9 << 16
