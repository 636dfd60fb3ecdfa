"""VectorLane: random operations over random elements, one a cycle, against the models."""

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from numpy.typing import NDArray

from models import cast, fp
from models.elements import ALU_OPS
from models.formats import DType, dtype_bytes
from rtl.vector.lane import LATENCY
from sim.runner import params
from tb.vector.operands import READABLE, WRITABLE, fp32_bits, random_contents

LENGTH = 30
OFF = ("exponential", "divide", "divide_start", "select", "flip", "within", "recall", "mine")
"""What the engine bench covers."""


def elements(dtype: DType, count: int) -> NDArray[np.uint32]:
    """Raw elements, zero-extended."""
    width = dtype_bytes(dtype)
    raw = random_contents((1, 4 * count)).reshape(-1).view(f"<u{width}")
    return np.asarray(np.random.default_rng(random.getrandbits(32)).permutation(raw)[:count], dtype=np.uint32)


def value(bits: int) -> NDArray[np.float32]:
    """One FP32 operand."""
    return np.array([bits], dtype=np.uint32).view(np.float32)


@cocotb.test()
async def random_operations(dut: Any) -> None:
    """Types, operations, saturation and copies at random; inputs of the next run come in right behind the last result."""
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    dut.rst.value = 0
    for name in ("reduce", "sums", "span", "rank", "moments", *OFF):
        getattr(dut, name).value = 0
    await FallingEdge(dut.clk)
    for run in range(params()["runs"]):
        a_type, b_type, o_type = random.choice(READABLE), random.choice(READABLE), random.choice(WRITABLE)
        if run % 3 == 0:  # nothing is lost in the casts
            a_type = b_type = o_type = DType.FP32
        op0, op1 = random.choice(ALU_OPS), random.choice(ALU_OPS)
        saturate, copy, c = random.getrandbits(1), int(random.random() < 0.1), fp32_bits()
        a, b = elements(a_type, LENGTH), elements(b_type, LENGTH)
        reverse0, reverse1, second = (random.getrandbits(1) for _ in range(3))
        if run % 5 == 0:  # equal operands, and ones of one magnitude
            b_type, b = a_type, np.where(np.arange(LENGTH) % 2, a, a ^ (1 << (8 * dtype_bytes(a_type) - 1)))
        operands = [cast.decode(b_type, b), np.broadcast_to(value(c), a.shape)]
        result = cast.decode(a_type, a)
        for op, operand, reverse in zip(
            (op0, op1), operands[::-1] if second else operands, (reverse0, reverse1), strict=True
        ):
            result = fp.alu(op, operand, result) if reverse else fp.alu(op, result, operand)
        want = a if copy else cast.encode(o_type, result, saturate=bool(saturate))
        controls = {
            "a_dtype": a_type,
            "b_dtype": b_type,
            "o_dtype": o_type,
            "op0": op0,
            "op1": op1,
            "reverse0": reverse0,
            "reverse1": reverse1,
            "second": second,
            "saturate": saturate,
            "copy": copy,
            "c": c,
        }
        for name, control in controls.items():
            getattr(dut, name).value = int(control)
        for n in range(LENGTH + LATENCY):
            if n >= LATENCY:
                i, got = n - LATENCY, int(dut.o.value)
                assert got == want[i], f"{controls}: {a[i]:#x}, {b[i]:#x} gave {got:#x}, not {want[i]:#x}"
                assert int(dut.zero.value) == int(operands[0][i] == 0), f"{b_type.name} {b[i]:#x}"
            dut.a.value = int(a[n]) if n < LENGTH else random.getrandbits(32)
            dut.b.value = int(b[n]) if n < LENGTH else random.getrandbits(32)
            await FallingEdge(dut.clk)
