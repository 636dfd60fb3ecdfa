"""Field checks of loads and matmuls, alone: what is legal, and with which code it goes on, is what the model says, for what a configuration has."""

from dataclasses import replace

import pytest
from amaranth.lib import data

from models.access import AccessPattern, row
from models.config import TensorConfig, find
from models.encoding import Instruction, encode, raw_fields
from models.fault import Fault
from models.formats import DOUBLE_ROWS, MAC_DTYPES, PACKED, DType
from models.isa import Engine, Flag, Opcode, Space
from models.machine import Machine
from rtl.pe.operand import DOUBLE_CODES
from rtl.tensor.front import TensorFront
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

NANO = find("nano")
P = NANO.partitions
TENSORS = {
    "mx": NANO.tensor,
    "no double rows": TensorConfig(),
    "no mx": TensorConfig(formats=(DType.BF16, DType.E4M3, DType.E5M2), double_row=(DType.E4M3,)),
    "all": TensorConfig(double_row=DOUBLE_ROWS),
}


def _instruction(random, opcode: Opcode) -> Instruction:
    """A load or a matmul of double rows, one in two with something that may be wrong."""
    dtype = random.choice([*DOUBLE_ROWS, *DOUBLE_ROWS, *MAC_DTYPES])
    k, m = random.choice([(4, 4), (4, 4), (2, 4)])
    n = m if opcode == Opcode.LOAD_STATIONARY else 3
    second = row(64, dtype, n, part=random.choice([0, 2, 4]))
    scale = AccessPattern(64, DType.E8M0, ((0, n),))
    src1 = scale if dtype in PACKED else second
    flags = int(Flag.DOUBLE_ROW) if random.random() < 0.8 and dtype not in PACKED else 0
    if random.random() < 0.5:
        flags ^= random.choice([0, 0, 1, 2, 128])
        wrong = [
            replace(second, part=1),
            replace(second, part=6),
            replace(second, space=Space.PSUM),
            replace(second, dtype=random.choice([DType.E4M3, DType.E5M2, DType.UINT8])),
            row(64, dtype, n + 1),
        ]
        src1 = random.choice([src1, scale, *wrong])
    aps = {"src0": row(0, dtype, n), "src1": src1}
    if opcode == Opcode.MATMUL:
        aps["dst"] = row(0, DType.FP32, n, space=Space.PSUM)
    return Instruction(opcode, {"parts": k, "cols": m, "flags": flags}, aps)


@pytest.mark.parametrize("name", TENSORS)
def test_double_rows(name):
    config = replace(NANO, tensor=TENSORS[name])
    dut = TensorFront(config, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        core = Machine(config).cores[0]
        legal_doubles = 0
        ctx.set(dut.checked.ready, 1)
        for n in range(400):
            opcode = Opcode.LOAD_STATIONARY if n % 3 == 0 else Opcode.MATMUL
            word = encode(_instruction(random, opcode))
            raw = raw_fields(word)
            try:
                core.execute(Engine.TENSOR, word)
                want = True
            except Fault:
                want = False
            bits = int.from_bytes(word, "little")
            ctx.set(dut.issue.payload, data.Const(dut.issue.payload.shape(), bits))
            ctx.set(dut.issue.valid, 1)
            await ctx.tick().until(dut.issue.ready)
            ctx.set(dut.issue.valid, 0)
            *_, item = await ctx.tick().sample(dut.checked.payload).until(dut.checked.valid)
            assert item.legal == want, (opcode.name, raw, word[64:72].hex(), word[96:104].hex())
            if not want:
                continue
            double, dtype = bool(raw["flags"] & Flag.DOUBLE_ROW), DType(word[64 + 5])
            assert item.double == double
            assert item.packed == (dtype in PACKED)
            assert item.code == (DOUBLE_CODES[dtype] if double else dtype)
            legal_doubles += double
        assert bool(legal_doubles) == bool(config.tensor.double_row)

    simulate(dut, bench)
