"""The cocotb side of sim.probe: clock an idle chip the way a testbench does, looking once a cycle at whether it asks for anything."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from sim.probe import now, record
from sim.runner import params

INPUTS = (
    "s_axil__awvalid",
    "s_axil__wvalid",
    "s_axil__arvalid",
    "s_axil__bready",
    "s_axil__rready",
    "chip_id",
)


@cocotb.test()
async def clock_the_chip(dut):  # type: ignore[no-untyped-def]
    """20,000 cycles with one Python coroutine awake on every edge, as a monitor is."""
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    for name in INPUTS:
        getattr(dut, name).value = 0
    dut.rst.value = 1
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    start = now()
    valid = dut.m_axi_mem0__arvalid
    for _ in range(params()["cycles"]):
        await RisingEdge(dut.clk)
        assert not valid.value
    record(now() - start)
