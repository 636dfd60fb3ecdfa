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


def test_one_chip_at_a_time():
    with VerilatedChip(NANO) as chip:
        with pytest.raises(SimulationError, match="already open in this process"):
            VerilatedChip(NANO)
        chip.memory[:4] = [1, 2, 3, 4]
        chip.step(10)
        assert np.array_equal(chip.memory[:4], [1, 2, 3, 4])
    with VerilatedChip(NANO) as chip:
        assert not chip.memory[:4].any()


@pytest.mark.parametrize(("key", "value"), [("latency", 0), ("bandwidth", 0.0), ("bandwidth", 1.5)])
def test_bad_settings(key, value):
    with pytest.raises(ValueError, match=key):
        VerilatedChip(NANO, **{key: value})


def test_threads():
    assert threads(NANO) == 1
