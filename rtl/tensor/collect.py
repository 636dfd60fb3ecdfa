"""Results out of the array, turned to their partitions, into PSUM."""

from typing import Any

from amaranth import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.config import ChipConfig
from rtl.access.reader import rotated
from rtl.array.array import array_latency
from rtl.interfaces import PsumAccumulateSignature, lanes_layout, psum_addr_bits
from rtl.lib.queue import Queue, QueueConfig
from rtl.tiles import TileLibrary


class ResultLayout(data.StructLayout):
    """Where a column's result goes when it comes out of the array. `quarter`: its first partition, in quarters of P; lanes: how many it has."""

    def __init__(self, config: ChipConfig) -> None:
        super().__init__(
            {
                "addr": unsigned(psum_addr_bits(config)),
                "accumulate": unsigned(1),
                "mask": unsigned(4),
                "lanes": unsigned(config.partitions.bit_length()),
                "quarter": unsigned(2),
            }
        )


class ResultCollector(wiring.Component):
    """Ports: places (ResultLayout, one for each column, when it enters the array), result_valid and result (the array's), valid and column
    (PSUM's), a cycle after the result. There is room for all columns that the array can hold.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        psum = PsumAccumulateSignature(psum_addr_bits(config), config.partitions)
        super().__init__(
            {
                "places": In(stream.Signature(ResultLayout(config))),
                "result_valid": In(1),
                "result": In(lanes_layout(config.partitions)),
                "valid": Out(1),
                "column": Out(psum.members["column"].shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        p = self.config.partitions
        layout = ResultLayout(self.config)
        queue = self.tiles.place(Queue, QueueConfig(width=layout.size, depth=array_latency(p) + 4))
        m.submodules.queue = queue
        place = data.View(layout, queue.o.payload)
        valid, held = Signal(), Signal(self.column.shape(), reset_less=True)
        lanes = Signal(lanes_layout(p))
        m.d.comb += [
            queue.i.valid.eq(self.places.valid),
            queue.i.payload.eq(self.places.payload),
            self.places.ready.eq(queue.i.ready),
            queue.o.ready.eq(self.result_valid),
            lanes.as_value().eq(Cat(rotated(self.result, p, -place.quarter))),
            self.valid.eq(valid),
            self.column.eq(held),
        ]
        used = [i < place.lanes for i in range(p)]
        m.d.sync += valid.eq(self.result_valid)
        with m.If(self.result_valid):
            m.d.sync += [
                held.addr.eq(place.addr),
                held.accumulate.eq(place.accumulate),
                held.mask.eq(place.mask),
                held.data.eq(lanes),
                held.lanes.eq(Cat(rotated(used, p, -place.quarter))),
            ]
        return m
