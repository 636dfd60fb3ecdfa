"""FP32 operands that find mistakes, and the loop that sends one a cycle through a pipeline."""

from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from numpy.typing import NDArray

U32 = NDArray[np.uint32]

ZERO_AND_SUBNORMALS = (0, 1, 2, 0x00400000, 0x7FFFFF)
NORMALS = (0x800000, 0x800001, 0x1A0A3664, 0x33800000, 0x34000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001)
LARGE = (0x4B7FFFFF, 0x4B800000, 0x7F000000, 0x7F7FFFFF)
SPECIAL = (0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF)
CORNERS = np.array([*ZERO_AND_SUBNORMALS, *NORMALS, *LARGE, *SPECIAL], dtype=np.uint32)


def seeded(seed: int) -> np.random.Generator:
    """Generator of a bench; cocotb has printed the seed."""
    return np.random.default_rng(seed)


def corners() -> U32:
    """Corner values of both signs."""
    return np.concatenate([CORNERS, CORNERS | np.uint32(1 << 31)])


def random_bits(rng: np.random.Generator, n: int) -> U32:
    """Every pattern alike."""
    return rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32)


def near(rng: np.random.Generator, x: U32, spread: int = 30) -> U32:
    """Values whose exponents are within `spread` of those of `x`, often exactly or nearly opposite."""
    exp = (x >> np.uint32(23)).astype(np.int64) & 255
    exp = np.clip(exp + rng.integers(-spread, spread + 1, x.size), 0, 254)
    out = (exp << 23).astype(np.uint32) | (random_bits(rng, x.size) & np.uint32(0x807FFFFF))
    close = rng.random(x.size) < 0.3
    return np.where(close, (x ^ np.uint32(1 << 31)) + rng.integers(0, 3, x.size).astype(np.uint32), out)


def pairs(rng: np.random.Generator, n: int) -> tuple[U32, U32]:
    """All pairs of corners, then `n` random ones."""
    c = corners()
    a, b = np.repeat(c, c.size), np.tile(c, c.size)
    x, y = random_bits(rng, n), random_bits(rng, n)
    y[: n // 2] = near(rng, x[: n // 2])
    tiny = slice(n - n // 6, n)
    x[tiny] &= np.uint32(0x81FFFFFF)
    y[tiny] &= np.uint32(0x81FFFFFF)
    return np.concatenate([a, x]), np.concatenate([b, y])


async def pipeline(dut: Any, inputs: dict[str, U32], output: str, expected: U32, latency: int) -> None:
    """One vector a cycle; every output word must be the expected one."""
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    dut.rst.value = 0
    handles = [(getattr(dut, name), values.tolist()) for name, values in inputs.items()]
    out, want = getattr(dut, output), expected.tolist()
    await FallingEdge(dut.clk)
    for n in range(len(want) + latency):
        if n >= latency:
            got = int(out.value)
            if got != want[n - latency]:
                given = {name: f"{values[n - latency]:#010x}" for name, values in inputs.items()}
                raise AssertionError(
                    f"vector {n - latency}, {given}: {got:#010x}, not {want[n - latency]:#010x}"
                )
        if n < len(want):
            for handle, values in handles:
                handle.value = values[n]
        await FallingEdge(dut.clk)
    cocotb.log.info("%d vectors", len(want))
