"""TensorArray under random tiles, gaps and background loads: every result word against the golden model."""

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models.formats import FP32_PASSES, DType
from rtl.array.array import array_latency
from rtl.pe.operand import FP32_CODES, WORD
from rtl.pe.pe import MOVE_SETTLE
from sim.runner import params
from tb.array.tiles import Tile, column, random_tile, word_tile


class Bench:
    """Streams tiles in: loads the next one's weights behind the present one's columns."""

    def __init__(self, dut: Any, gap: float):
        self.dut, self.gap = dut, gap
        self.p = params()["partitions"]
        self.loaded: deque[Tile] = deque()
        self.cycle = 0
        self.expected: deque[tuple[int, Tile, int]] = deque()
        self.seen = 0
        self.swaps: list[int] = []
        self.columns: list[int] = []
        self.moved = -MOVE_SETTLE - 1
        """Cycle of the last column of words."""

    async def start(self) -> None:
        Clock(self.dut.clk, 10, unit="ns", impl="gpi").start()
        self.dut.moving_valid.value = 0
        self.dut.load_valid.value = self.dut.load.value = self.dut.moving.value = 0
        self.dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    def load_columns(self, tile: Tile) -> list[int]:
        out = []
        for c in random.sample(range(tile.m), tile.m):
            payload, bits = column(tile.stationary[:, c], tile.s_scale[:, c])
            out.append(payload | int(tile.s_dtype) << bits | c << bits + 4)
        return out

    def moving_columns(self, tile: Tile) -> list[int]:
        out = []
        rows_bits = self.p.bit_length()
        codes = FP32_CODES if tile.m_dtype == DType.FP32 else (int(tile.m_dtype),)
        for n in range(tile.n):
            payload, bits = column(tile.moving[:, n], tile.m_scale[:, n])
            for turn, code in enumerate(codes):
                swap = n == 0 and turn == 0
                control = tile.k | swap << rows_bits | code << rows_bits + 1
                out.append(payload | control << bits)
        return out

    async def run(self, tiles: list[Tile]) -> None:
        loads: deque[tuple[Tile, deque[int]]] = deque((t, deque(self.load_columns(t))) for t in tiles)
        ready: deque[Tile] = deque()
        streaming: tuple[Tile, deque[int]] | None = None
        shadow_full = False
        left = sum(t.n for t in tiles)
        while left or self.expected:
            await FallingEdge(self.dut.clk)
            # moving side: a tile starts once its weights are complete
            if streaming is None and ready:
                tile = ready.popleft()
                streaming = (tile, deque(self.moving_columns(tile)))
            passes = FP32_PASSES if streaming and streaming[0].m_dtype == DType.FP32 else 1
            first = streaming is not None and len(streaming[1]) == passes * streaming[0].n
            begun = streaming is not None and len(streaming[1]) % passes != 0
            go = streaming is not None and (begun or random.random() >= self.gap)
            # no new weights while those of a column of words are still to be read
            go = go and not (first and self.cycle - self.moved <= MOVE_SETTLE)
            self.dut.moving_valid.value = int(go)
            if go:
                assert streaming is not None
                tile, columns = streaming
                self.dut.moving.value = columns.popleft()
                if len(columns) % passes == 0:
                    n = tile.n - len(columns) // passes - 1
                    self.expected.append((self.cycle + array_latency(self.p), tile, n))
                    left -= 1
                self.columns.append(self.cycle)
                if tile.m_dtype == WORD:
                    self.moved = self.cycle
                if first:
                    shadow_full = False
                    self.swaps.append(self.cycle)
                if not columns:
                    streaming = None
            # load side: one tile ahead, from the swap's own cycle on
            load = bool(loads) and not shadow_full and random.random() >= self.gap
            self.dut.load_valid.value = int(load)
            if load:
                tile, columns = loads[0]
                self.dut.load.value = columns.popleft()
                if not columns:
                    loads.popleft()
                    ready.append(tile)
                    shadow_full = True
            await ReadOnly()
            self.check()
            self.cycle += 1
        await FallingEdge(self.dut.clk)
        self.dut.load_valid.value = 0
        self.dut.moving_valid.value = 0

    def check(self) -> None:
        due = bool(self.expected) and self.expected[0][0] == self.cycle
        assert int(self.dut.result_valid.value) == int(due), f"cycle {self.cycle}: result_valid"
        if not due:
            return
        _, tile, n = self.expected.popleft()
        # columns without weights mean nothing; a four-state simulator may not even know them
        bits = str(self.dut.result.value)[32 * (self.p - tile.m) :]
        got = np.frombuffer(int(bits, 2).to_bytes(4 * tile.m, "little"), dtype="<u4")
        want = tile.expected[:, n].view(np.uint32)
        assert np.array_equal(got, want), (
            f"codes {tile.s_dtype} x {tile.m_dtype}, K {tile.k}, M {tile.m}, N {tile.n}, column {n}: "
            f"{[f'{i}: {g:08x} not {w:08x}' for i, (g, w) in enumerate(zip(got, want, strict=True)) if g != w][:4]}"
        )
        self.seen += 1


def _setup() -> tuple[np.random.Generator, tuple[DType, ...], tuple[DType, ...], int]:
    rng = np.random.default_rng(random.getrandbits(64))
    formats, double = (tuple(DType(f) for f in params()[key]) for key in ("formats", "double"))
    return rng, formats, double, params()["partitions"]


def _any_tile(
    rng: np.random.Generator, p: int, formats: tuple[DType, ...], double: tuple[DType, ...]
) -> Tile:
    """Words, a double row where there are any, or a tile of any format."""
    if random.random() < 0.25:
        return word_tile(rng, p)
    if double and random.random() < 0.3:
        return random_tile(rng, p, double, double=True)
    return random_tile(rng, p, formats)


@cocotb.test()
async def random_tiles(dut: Any) -> None:
    """All formats of the configuration, double rows and words, random shapes, with and without gaps."""
    rng, formats, double, p = _setup()
    bench = Bench(dut, 0.0)
    await bench.start()
    for gap in (0.0, 0.3):
        bench.gap = gap
        await bench.run([_any_tile(rng, p, formats, double) for _ in range(params()["tiles"])])
    assert bench.seen > params()["tiles"]


@cocotb.test()
async def edge_shapes(dut: Any) -> None:
    """1 x 1 x 1, single rows and columns, full tiles, in every format; rows beyond K are poison."""
    rng, formats, double, p = _setup()
    bench = Bench(dut, 0.1)
    await bench.start()
    shapes = [(1, 1, 1), (p, p, 1), (1, p, 2), (p, 1, 2), (p - 1, p - 1, 3), (p // 2 + 1, 3, 1), (p, p, p)]
    await bench.run([random_tile(rng, p, (f,), shape) for f in formats for shape in shapes])
    await bench.run([random_tile(rng, p, (f,), shape, double=True) for f in double for shape in shapes])


@cocotb.test()
async def one_column_a_cycle(dut: Any) -> None:
    """Full tiles of 2 P columns stream back to back without one idle cycle: loads hide behind the columns."""
    rng, formats, double, p = _setup()
    formats = tuple(f for f in formats if f != DType.FP32)
    if not formats:
        return
    bench = Bench(dut, 0.0)
    await bench.start()
    tiles = [random_tile(rng, p, formats, (p, p, 2 * p)) for _ in range(4)]
    tiles += [random_tile(rng, p, double, (p, p, 2 * p), double=True) for _ in range(4 if double else 0)]
    await bench.run(tiles)
    first = bench.columns[0]
    assert bench.columns == list(range(first, first + 2 * p * len(tiles)))
