"""What the tests of the functional model share: configurations, and running a program on a fresh machine."""

from collections.abc import Callable

import numpy as np

from models import config as configs
from models.formats import DOUBLE_ROWS, MAC_DTYPES
from models.image import Image
from models.isa import Space
from models.machine import Core, Machine
from models.program import Program

NANO = configs.find("nano")
FULL = configs.from_dict(
    NANO.to_dict()
    | {
        "name": "every-format",
        "partitions": 16,
        "tensor": {
            "formats": [f.name.lower() for f in MAC_DTYPES],
            "double_row": [f.name.lower() for f in DOUBLE_ROWS],
        },
    }
)
"""Sixteen partitions, every format that an array can be built for, and double rows."""
SEED = 1618
"""Of the tests' numbers."""
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


def run(program: Program, prepare=None) -> Core:
    """Core 0 after `program`; `prepare(core)` fills its memories first. It must end without an error."""
    core = start(program, prepare)
    assert core.error is None
    assert not any(e.running for e in core.engines.values())
    return core


def put(core: Core, addr: int, values: np.ndarray, *, part: int = 0, space: Space = Space.SBUF) -> None:
    """Store [parts, n] words of any integer or float type from byte `addr` on."""
    raw = np.ascontiguousarray(values)
    data = raw.view(np.uint8).reshape(raw.shape[0], -1)
    memory = core.sbuf if space == Space.SBUF else core.psum
    memory[part : part + raw.shape[0], addr : addr + data.shape[1]] = data


def get(core: Core, addr: int, kind: str, shape: tuple[int, int], *, space: Space = Space.SBUF) -> np.ndarray:
    """Words of NumPy type `kind` from byte `addr` on, [parts, n]."""
    memory = core.sbuf if space == Space.SBUF else core.psum
    size = np.dtype(kind).itemsize * shape[1]
    return np.ascontiguousarray(memory[: shape[0], addr : addr + size]).view(kind)


def random_f32(shape: tuple[int, ...], *key: int) -> np.ndarray:
    """Ordinary FP32 numbers, the same for the same key."""
    return np.random.default_rng([SEED, *key]).standard_normal(shape).astype(np.float32)
