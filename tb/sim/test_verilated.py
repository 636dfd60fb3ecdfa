"""The Verilated chip in process: registers, stepping, memory, errors on the bus."""

import numpy as np
import pytest

from models import registers
from models.config import find
from models.registers import CHIP
from sim.tools import SimulationError
from sim.verilated import VerilatedChip, threads

NANO = find("nano")


def test_registers_and_reset():
    with VerilatedChip(NANO) as chip:
        assert chip.read(CHIP["MAGIC"]) == registers.CHIP_MAGIC
        assert chip.read(CHIP["CONFIG_HASH"]) == int(NANO.digest()[:8], 16)
        address = registers.core_register(0, "WATCHDOG")
        chip.write(address, 1234)
        assert chip.read(address) == 1234
        assert not chip.running


def test_addresses_without_a_register():
    with VerilatedChip(NANO) as chip:
        for address in (0x18, registers.CORE_BASE + registers.CORE_SIZE):
            with pytest.raises(SimulationError):
                chip.read(address)
            with pytest.raises(SimulationError):
                chip.write(address, 1)
        assert chip.read(CHIP["MAGIC"]) == registers.CHIP_MAGIC, "and goes on"


def test_two_chips_in_one_process():
    with VerilatedChip(NANO) as a, VerilatedChip(NANO) as b:
        a.memory[:4] = [1, 2, 3, 4]
        assert not b.memory[:4].any()
        a.write(registers.core_register(0, "WATCHDOG"), 5)
        assert b.read(registers.core_register(0, "WATCHDOG")) == 0
        a.step(10)
        assert np.array_equal(a.memory[:4], [1, 2, 3, 4])


@pytest.mark.parametrize(("key", "value"), [("latency", 0), ("bandwidth", 0.0), ("bandwidth", 1.5)])
def test_bad_settings(key, value):
    with pytest.raises(ValueError, match=key):
        VerilatedChip(NANO, **{key: value})


def test_threads():
    assert threads(NANO) == 1
