"""The cocotb side of sim.probe: clock an idle chip the way a testbench does, checking once a cycle that no channel asks for anything."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from sim.probe import now, record
from sim.runner import params


@cocotb.test()
async def clock_the_chip(dut):  # type: ignore[no-untyped-def]
    """20,000 cycles with one Python coroutine awake on every edge, as a monitor is."""
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    dut.rst.value = 1
    dut.chip_id.value = 0
    for handle in dut:
        if handle._name.endswith(
            ("ready", "rvalid", "bvalid", "awvalid", "wvalid", "arvalid")
        ) and handle._name.startswith("s_axil"):
            if handle._name.endswith(("awvalid", "wvalid", "arvalid", "bready", "rready")):
                handle.value = 0
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    start = now()
    valid = dut["m_axi_mem0__arvalid"]
    for _ in range(params()["cycles"]):
        await RisingEdge(dut.clk)
        assert not valid.value
    record(now() - start)
