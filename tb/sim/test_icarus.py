"""The Icarus harness: memory in and out, registers in the order asked for, limits, unknown bits."""

import pytest

from models import registers
from models.config import find
from models.image import Image
from models.registers import CHIP, CHIP_MAGIC
from sim import icarus
from sim.tools import SimulationError

NANO = find("nano")


def _image():
    image = Image.empty(NANO)
    image.add(0x1008, bytes(range(40)))
    image.outputs = [(0x1008, 40), (0x1004, 3), (0x1100, 5)]
    return image


def test_memory_goes_in_and_comes_out_at_any_alignment():
    watchdog = registers.core_register(0, "WATCHDOG")
    done = icarus.run(
        NANO, _image(), [(watchdog, 77)], [watchdog, CHIP["MAGIC"], watchdog], latency=3, limit=500
    )
    assert done.values == [77, CHIP_MAGIC, 77]
    assert done.outputs.segments == [(0x1008, bytes(range(40))), (0x1004, bytes(3)), (0x1100, bytes(5))]
    assert not done.timed_out


def test_a_register_that_is_not_there():
    with pytest.raises(SimulationError, match=r"Icarus run failed|answered with an error"):
        icarus.run(NANO, _image(), [], [0x18], latency=3, limit=500)


def test_unknown_bits_are_no_result(tmp_path):
    dump = tmp_path / "dump.hex"
    dump.write_text("// 0x00000100\n" + "0" * 31 + "x\n" + "0" * 32 + "\n" * 2)
    with pytest.raises(SimulationError, match="unknown bits"):
        icarus._outputs(_image(), dump, 0x100)
