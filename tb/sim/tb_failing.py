"""A bench with a test that fails on purpose."""

import cocotb


@cocotb.test()
async def passes(dut):
    assert dut is not None


@cocotb.test()
async def fails(dut):
    assert dut is None
