"""Random LOAD_STATIONARY, MATMUL and TRANSPOSE instructions for the nano core, and the functional model that runs them."""

import random
from dataclasses import replace

from models import config
from models.access import AccessPattern, row
from models.encoding import Instruction, encode
from models.formats import DOUBLE_ROWS, MAC_CLASSES, PACKED, DType, dtype_bytes
from models.isa import Flag, Opcode, Space, UpdateMode
from models.machine import Core, Machine

CONFIG = replace(config.find("nano"), tensor=config.TensorConfig(double_row=DOUBLE_ROWS))
"""The nano core with every format, and double rows of all that may have them."""
P = CONFIG.partitions
BANK = CONFIG.psum.bank_bytes


def new_core() -> Core:
    """A core of the functional model."""
    return Machine(CONFIG).cores[0]


def random_update() -> dict[str, int]:
    """An update, or none."""
    mode = random.choice(list(UpdateMode))
    return {
        "update_mode": mode,
        "update_sem": random.randrange(64),
        "update_value": random.randrange(-5, 100),
    }


def _columns(size: int, count: int, limit: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Byte address and dims of `count` elements of `size` bytes within `limit` bytes, of any shape that has that many."""
    while True:
        shape = random.choice([0, 0, 1, 2])
        if shape == 0 or count % 2 or count == 0:
            dims: tuple[tuple[int, int], ...] = ((random.choice([1, 1, 1, 2, -1, 0, 5]), count),)
        elif shape == 1:
            dims = ((random.choice([0, 3, 40, -7]), count // 2), (random.choice([0, 1, 9]), 2))
        else:
            dims = ((1, 1), (random.choice([0, 50]), 2), (0, 1), (random.choice([1, 0, -2]), count // 2))
        addr = random.randrange(limit // size) * size
        a = AccessPattern(
            addr, DType.FP32 if size == 4 else DType.BF16 if size == 2 else DType.E4M3, dims
        ).addresses()
        if ((a >= 0) & (a + size <= limit)).all():
            return addr, dims


def _operand(dtype: DType, columns: int, k: int, double: bool) -> dict[str, AccessPattern]:
    limit = CONFIG.sbuf.bytes_per_partition
    packed = dtype in PACKED
    parts = [0] if packed else [q for q in range(0, P, P // 4) if q + k <= P]
    addr, dims = _columns(dtype_bytes(dtype), columns, limit)
    out = {"src0": AccessPattern(addr, dtype, dims, Space.SBUF, random.choice(parts))}
    if packed:
        addr, dims = _columns(1, columns, limit)
        out["src1"] = AccessPattern(addr, DType.E8M0, dims, Space.SBUF, 0)
    if double:
        addr, dims = _columns(1, columns, limit)
        out["src1"] = AccessPattern(addr, dtype, dims, Space.SBUF, random.choice(parts))
    return out


class Generator:
    """Legal instructions, knowing what weights are loaded."""

    def __init__(self) -> None:
        self.k, self.m, self.dtype, self.double = 0, 0, DType.BF16, False

    def load(self) -> bytes:
        """New weights of a random shape and type."""
        self.k, self.m = random.choice([1, 2, P - 1, P, P]), random.choice([1, 3, P, P])
        self.dtype = random.choice(CONFIG.tensor.formats)
        if random.random() < 0.25:
            self.dtype = random.choice(CONFIG.tensor.double_row)
        self.double = self.dtype in CONFIG.tensor.double_row and random.random() < 0.6
        fields = {"parts": self.k, "cols": self.m, "flags": self.flags} | random_update()
        aps = _operand(self.dtype, self.m, self.k, self.double)
        return encode(Instruction(Opcode.LOAD_STATIONARY, fields, aps))

    @property
    def flags(self) -> int:
        """Those of the loaded weights, which their matmuls have as well."""
        return int(Flag.DOUBLE_ROW) if self.double else 0

    def matmul(self, columns: int | None = None) -> bytes:
        """Columns through the weights, into PSUM; now and then to one address again and again."""
        n = random.choice([0, 1, 2, 5, 17, 40]) if columns is None else columns
        partners = [d for d in CONFIG.tensor.formats if any({d, self.dtype} <= c for c in MAC_CLASSES)]
        part = random.choice([q for q in range(0, P, P // 4) if q + self.m <= P])
        if random.random() < 0.3:
            dst = row(
                4 * random.randrange(CONFIG.psum.bytes_per_partition // 4),
                DType.FP32,
                n,
                stride=0,
                space=Space.PSUM,
                part=part,
            )
        else:
            addr, dims = _columns(4, n, CONFIG.psum.bytes_per_partition)
            dst = AccessPattern(addr, DType.FP32, dims, Space.PSUM, part)
        flags = self.flags | random.randrange(2)
        fields = {"parts": self.k, "cols": self.m, "flags": flags} | random_update()
        aps = _operand(random.choice(partners), n, self.k, self.double) | {"dst": dst}
        return encode(Instruction(Opcode.MATMUL, fields, aps))

    def transpose(self) -> bytes:
        """Elements of any type, into any type of that width; now and then all to one address. MATMULs need new weights after it."""
        k, m = random.choice([1, 2, P - 1, P, P]), random.choice([1, 3, P, P])
        size = random.choice([1, 2, 4])
        kinds = [d for d in DType if dtype_bytes(d) == size]
        addr, dims = _columns(size, m, CONFIG.sbuf.bytes_per_partition)
        part = random.choice([q for q in range(0, P, P // 4) if q + k <= P])
        src = AccessPattern(addr, random.choice(kinds), dims, Space.SBUF, part)
        addr, dims = _columns(size, k, CONFIG.psum.bytes_per_partition)
        part = random.choice([q for q in range(0, P, P // 4) if q + m <= P])
        dst = AccessPattern(addr, random.choice(kinds), dims, Space.PSUM, part)
        fields = {"parts": k, "cols": m} | random_update()
        return encode(Instruction(Opcode.TRANSPOSE, fields, {"src0": src, "dst": dst}))

    def batch(self, count: int) -> list[bytes]:
        """Instructions that start with a load; loads without a matmul and matmuls without a new load occur; transposes among them."""
        out = [self.load()]
        while len(out) < count:
            if random.random() < 0.2:
                out += [self.transpose() for _ in range(random.choice([1, 1, 2]))]
                out.append(self.load())
            out.append(self.load() if random.random() < 0.4 else self.matmul())
        return out
