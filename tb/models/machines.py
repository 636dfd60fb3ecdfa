"""What the tests of the functional model share: configurations, and running a program on a fresh machine."""

from collections.abc import Callable

from models import config as configs
from models.formats import MAC_DTYPES
from models.image import Image
from models.machine import Core, Machine
from models.program import Program

NANO = configs.find("nano")
FULL = configs.from_dict(
    NANO.to_dict()
    | {"name": "every-format", "partitions": 16, "tensor": {"formats": [f.name.lower() for f in MAC_DTYPES]}}
)
"""Sixteen partitions, every format that an array can be built for."""
PROGRAM = 1 << 16
"""Byte address of the first stream."""


def start(program: Program, prepare: Callable[[Core], None] | None = None) -> Core:
    """Core 0 of a fresh machine after `program`; `prepare(core)` fills its memories first."""
    program.finish()
    image = Image.empty(program.config)
    image.add_program(0, program, PROGRAM)
    machine = Machine(program.config)
    machine.load(image)
    if prepare is not None:
        prepare(machine.cores[0])
    machine.run()
    return machine.cores[0]
