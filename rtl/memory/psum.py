"""PSUM: partial sums, with an FP32 adder beside each partition's memory."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from models.config import ChipConfig
from rtl.fp.add import LATENCY as ADD_LATENCY
from rtl.fp.add import Fp32Add, Fp32AddConfig
from rtl.interfaces import (
    LaneReadSignature,
    LaneWriteSignature,
    PsumAccumulateSignature,
    RowReadSignature,
    RowWriteSignature,
    psum_addr_bits,
)
from rtl.lib.delay import Delay, DelayConfig
from rtl.memory.controller import READ_LATENCY, MemoryController, MemoryControllerConfig
from rtl.tiles import TileLibrary

PSUM_HAZARD = READ_LATENCY + ADD_LATENCY + 1
"""Least distance in cycles between two columns of the same address when the later one adds to what the earlier one leaves."""
SRAM_BANKS = 8
"""Two groups of four: a row access finds a free group while columns walk through the other one."""


def psum_memory(config: ChipConfig) -> MemoryControllerConfig:
    """The memory under PSUM. The array cannot wait, so its ports always win."""
    return MemoryControllerConfig(
        partitions=config.partitions,
        bytes_per_partition=config.psum.bytes_per_partition,
        banks=SRAM_BANKS,
        lane_reads=("sum_r", "vector0", "vector1", "scalar"),
        lane_writes=("sum_w", "vector_w", "scalar_w"),
        locked=("sum_r", "sum_w"),
        starvation_limit=config.core.starvation_limit,
    )


class Psum(wiring.Component):
    """Members
    -------
    accumulate: PsumAccumulateSignature, seen from here. A column is read, added to and written PSUM_HAZARD - 1 cycles after it came; `done`
        one cycle later. Without `accumulate` its bits are stored as they are, in the same time. `mask` picks bytes of the word; it is 0xF where a column adds. `pause`: another port has waited starvation_limit cycles.
    vector0, vector1, scalar (LaneRead), vector_w, scalar_w (LaneWrite), row_read, row_write: as MemoryController's.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        bits, p = psum_addr_bits(config), config.partitions
        super().__init__(
            {
                "accumulate": In(PsumAccumulateSignature(bits, p)),
                "vector0": In(LaneReadSignature(bits, p)),
                "vector1": In(LaneReadSignature(bits, p)),
                "scalar": In(LaneReadSignature(bits, p)),
                "vector_w": In(LaneWriteSignature(bits, p)),
                "scalar_w": In(LaneWriteSignature(bits, p)),
                "row_read": In(RowReadSignature(bits, p)),
                "row_write": In(RowWriteSignature(bits, p)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        p = self.config.partitions
        m.submodules.memory = memory = self.tiles.place(MemoryController, psum_memory(self.config))
        for name in ("vector0", "vector1", "scalar", "vector_w", "scalar_w", "row_read", "row_write"):
            connect(m, flipped(getattr(self, name)), getattr(memory, name))
        column, valid = self.accumulate.column, self.accumulate.valid
        m.d.comb += [memory.sum_r.req.valid.eq(valid), memory.sum_r.req.payload.eq(column.addr)]

        def delayed(name: str, value: Any, cycles: int) -> Any:
            line = self.tiles.place(Delay, DelayConfig(width=len(value), cycles=cycles))
            m.submodules[name] = line
            m.d.comb += line.i.eq(value)
            return line.o

        adds = delayed("adds", column.accumulate, READ_LATENCY)
        for lane in range(p):
            m.submodules[f"add{lane}"] = add = self.tiles.place(Fp32Add, Fp32AddConfig(moves=True))
            m.d.comb += [
                add.a.eq(memory.sum_r.rsp[lane]),
                add.move.eq(~adds),
                add.b.eq(delayed(f"result{lane}", column.data[lane], READ_LATENCY)),
                memory.sum_w.req.payload.data[lane].eq(add.o),
            ]
        total = READ_LATENCY + ADD_LATENCY
        written = Signal(total)
        m.d.sync += written.eq((written << 1) | valid)
        m.d.comb += [
            memory.sum_w.req.valid.eq(written[-1]),
            memory.sum_w.req.payload.addr.eq(delayed("addr", column.addr, total)),
            memory.sum_w.req.payload.lanes.eq(delayed("lanes", column.lanes, total)),
            memory.sum_w.req.payload.mask.eq(delayed("mask", column.mask, total)),
        ]
        done = Signal()
        m.d.sync += done.eq(written[-1])
        m.d.comb += [self.accumulate.done.eq(done), self.accumulate.pause.eq(memory.starving)]
        return m
