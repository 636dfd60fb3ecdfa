"""A row and a group of rows: control travels with the operands, and every result is the model's."""

import random as random_module
from typing import Any

import numpy as np
import pytest

from models import array
from models.formats import MX_ROWS, DType
from rtl.array.group import GROUP_LATENCY, ArrayGroup
from rtl.array.row import PSUM_LATENCY, ROW_LATENCY, ArrayConfig, ArrayRow
from rtl.pe.operand import PeConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

P = 8
CONFIG = ArrayConfig(partitions=P, pe=PeConfig(formats=(DType.BF16,)))


def _idle(ctx: Any, dut: Any) -> None:
    for field in ("rows", "swap", "load"):
        ctx.set(getattr(dut.control, field), 0)


def _bf16(random: random_module.Random, shape: tuple[int, ...]) -> np.ndarray:
    values = np.array(
        [random.getrandbits(16) & 0x8FFF | 0x3000 for _ in range(int(np.prod(shape)))], dtype=np.uint32
    )
    return values.reshape(shape)


@pytest.mark.parametrize("rows", [1, MX_ROWS])
def test_results_and_control(rows: int) -> None:
    """`rows` = 1: one ArrayRow; else a whole group with K of its rows active."""
    dut = (ArrayRow if rows == 1 else ArrayGroup)(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()
    latency = ROW_LATENCY if rows == 1 else GROUP_LATENCY
    k = 1 if rows == 1 else 5
    weights, moving = _bf16(random, (rows, P)), _bf16(random, (rows, 6))
    want = array.matmul(weights[:k], moving[:k], DType.BF16, DType.BF16).view(np.uint32)

    async def bench(ctx: Any) -> None:
        def put(kind: str, words: np.ndarray) -> None:
            prefix = "load_" if kind == "load" else ""
            if rows == 1:
                ctx.set(getattr(dut, f"{prefix}word"), int(words[0]))
            else:
                for r in range(rows):
                    ctx.set(getattr(dut, f"{prefix}words")[r], int(words[r]))

        ctx.set(dut.control.dtype, DType.BF16.value)
        ctx.set(dut.control.load_dtype, DType.BF16.value)
        order = random.sample(range(P), P)
        for column in order:
            ctx.set(dut.control.load, 1)
            ctx.set(dut.control.load_index, column)
            put("load", weights[:, column])
            await ctx.tick()
        got = np.zeros_like(want)
        for t in range(6 + PSUM_LATENCY + latency + P):
            _idle(ctx, dut)
            if t < 6:
                ctx.set(dut.control.rows, k + 3)
                ctx.set(dut.control.swap, t == 0)
                put("moving", moving[:, t])
                if rows > 1:
                    ctx.set(dut.control.rows, k)
            if latency <= t < 6 + latency:
                # one row takes one from the count; a group with fewer active rows than its own leaves nothing
                assert ctx.get(dut.control_out.rows) == (k + 3 - 1 if rows == 1 else 0)
                assert ctx.get(dut.control_out.swap) == (t == latency)
            for column in range(P):
                n = t - PSUM_LATENCY - latency - column
                if 0 <= n < 6:
                    got[column, n] = ctx.get(dut.psum_out[column])
            await ctx.tick()
        assert np.array_equal(got, want)

    simulate(dut, bench)


def test_latencies_add_up() -> None:
    assert GROUP_LATENCY == MX_ROWS * ROW_LATENCY
