"""The FP32 tiles against the models: corner pairs and random vectors, one a cycle."""

from typing import Any

import cocotb
import numpy as np

from models import cast, fp
from models.formats import FLOATS, INTS, DType
from rtl.fp import add, decode, encode, mul
from sim.runner import params
from tb.fp.vectors import corners, pairs, pipeline, random_bits, seeded


@cocotb.test()
async def exact(dut: Any) -> None:
    """All that the tile of this run is for."""
    rng = seeded(cocotb.RANDOM_SEED)
    await {"add": _add, "mul": _mul, "decode": _decode, "encode": _encode}[params()["tile"]](dut, rng)


async def _add(dut: Any, rng: np.random.Generator) -> None:
    a, b = pairs(rng, params()["vectors"])
    want = fp.add(a.view(np.float32), b.view(np.float32))
    await pipeline(dut, {"a": a, "b": b}, "o", want.view(np.uint32), add.LATENCY)


async def _mul(dut: Any, rng: np.random.Generator) -> None:
    a, b = pairs(rng, params()["vectors"])
    # products that land among the subnormals
    n = a.size // 4
    exp = (np.uint32(127 + 127) - (a[-n:] >> np.uint32(23) & np.uint32(255))) - np.uint32(127 + 10)
    b[-n:] = ((exp & np.uint32(255)) << np.uint32(23)) | (b[-n:] & np.uint32(0x807FFFFF))
    want = fp.mul(a.view(np.float32), b.view(np.float32))
    await pipeline(dut, {"a": a, "b": b}, "o", want.view(np.uint32), mul.LATENCY)


async def _decode(dut: Any, rng: np.random.Generator) -> None:
    raws, types, want = [], [], []
    for dtype in (*FLOATS, *INTS, DType.E8M0):
        bits = 32 if dtype == DType.FP32 else FLOATS[dtype].width if dtype in FLOATS else INTS.get(dtype, (8, False))[0]
        if bits == 8:
            raw = np.arange(256, dtype=np.uint32)
        elif bits == 16 and params()["exhaustive"]:
            raw = np.arange(1 << 16, dtype=np.uint32)
        else:
            raw = np.concatenate([corners(), random_bits(rng, params()["vectors"])]) >> np.uint32(32 - bits)
        raws.append(raw)
        types.append(np.full(raw.size, dtype, dtype=np.uint32))
        want.append(cast.decode(dtype, raw).view(np.uint32))
    inputs = {"raw": np.concatenate(raws), "dtype": np.concatenate(types)}
    await pipeline(dut, inputs, "o", np.concatenate(want), decode.LATENCY)


def boundaries(dtype: DType) -> np.ndarray:
    """Values at, and one FP32 step beside, the codes of a narrow type and their midpoints."""
    if dtype in INTS:
        bits, _ = INTS[dtype]
        edge = 2.0 ** np.arange(bits + 1)
        v = np.concatenate([edge, edge - 0.5, edge + 0.5, edge - 1, np.arange(20) / 2]).astype(np.float32)
    else:
        fmt = FLOATS[dtype]
        codes = np.arange(fmt.max_code + 1, dtype=np.uint32) if fmt.width == 8 else np.array([0, 1, fmt.max_code - 1, fmt.max_code])
        x = cast.decode_float(fmt, codes).astype(np.float64)
        with np.errstate(over="ignore"):
            v = np.concatenate([x, (x[1:] + x[:-1]) / 2, [x[-1] * (1 + 2.0 ** -(fmt.man_bits + 1)), x[-1] * 1.5]]).astype(np.float32)
    bits_ = v.view(np.uint32)
    both = np.concatenate([bits_, bits_ + 1, np.maximum(bits_, 1) - 1]).astype(np.uint32)
    return np.concatenate([both, both | np.uint32(1 << 31)])


async def _encode(dut: Any, rng: np.random.Generator) -> None:
    xs, types, flags, want = [], [], [], []
    for dtype in (*FLOATS, *INTS):
        n = params()["vectors"]
        x = np.concatenate([corners(), boundaries(dtype), random_bits(rng, n)])
        # most random numbers within reach of the type
        exp = rng.integers(100, 160, n).astype(np.uint32) << np.uint32(23)
        x = np.concatenate([x, (random_bits(rng, n) & np.uint32(0x807FFFFF)) | exp])
        for saturate in (False, True):
            xs.append(x)
            types.append(np.full(x.size, dtype, dtype=np.uint32))
            flags.append(np.full(x.size, saturate, dtype=np.uint32))
            want.append(cast.encode(dtype, x.view(np.float32), saturate=saturate))
    inputs = {"x": np.concatenate(xs), "dtype": np.concatenate(types), "saturate": np.concatenate(flags)}
    await pipeline(dut, inputs, "raw", np.concatenate(want), encode.LATENCY)
