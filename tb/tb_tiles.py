"""Cocotb side of test_tiles: three adders in a row."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge


@cocotb.test()
async def chain_adds_eleven_after_three_cycles(dut):
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    dut.rst.value = 0
    sent = []
    for n in range(200):
        await FallingEdge(dut.clk)
        if n >= 4:
            assert dut.o.value.to_unsigned() == (sent[n - 3] + 11) % 256
        sent.append(random.randrange(256))
        dut.i.value = sent[-1]
