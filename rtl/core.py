"""One core: memories, engines, DMA and control, composed. No arithmetic here."""

from typing import Any

from amaranth import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from models.config import ChipConfig
from models.isa import Engine
from rtl.control.unit import ControlUnit
from rtl.dma.engine import DmaEngine
from rtl.gpsimd.engine import GpsimdEngine
from rtl.interfaces import BurstReadSignature, BurstWriteSignature, CoreControlSignature
from rtl.lib.register_slice import RegisterSlice, SliceConfig
from rtl.memory.psum import Psum
from rtl.memory.sbuf import TENSOR_PORTS, Sbuf
from rtl.scalar.engine import ScalarEngine
from rtl.tensor.engine import TensorEngine
from rtl.tiles import TileLibrary
from rtl.vector.engine import VectorEngine

READERS = len(Engine) + 1
"""Burst read ports of a core: one instruction fetch an engine, then DMA."""
WRITERS = 1
"""Burst write ports of a core: DMA."""


class Core(wiring.Component):
    """Members
    -------
    control: host side of the core's registers. read0 ..., write0 ...: to the memory channels, through register slices (a cycle each way).
    core_index, chip_id: the core's and the chip's numbers in addresses.

    Everything inside is reset a cycle after `rst`, by a register of the core's own.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {f"read{i}": Out(BurstReadSignature()) for i in range(READERS)}
        ports |= {f"write{i}": Out(BurstWriteSignature()) for i in range(WRITERS)}
        super().__init__(
            {**ports, "control": Out(CoreControlSignature()), "core_index": In(8), "chip_id": In(16)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # A reset wire that ends in a register here is short on a chip; and it spares a simulator from computing every register's next
        # value whenever an input of the core changes, because `rst` no longer is one that they all depend on.
        held = Signal(name="held_rst", init=1, reset_less=True)
        inside = ClockDomain("inside", local=True)
        m.domains += inside
        m.d.sync += held.eq(ResetSignal("sync"))
        m.d.comb += [inside.clk.eq(ClockSignal("sync")), inside.rst.eq(held)]
        blocks = {
            "control": ControlUnit,
            "tensor": TensorEngine,
            "vector": VectorEngine,
            "scalar": ScalarEngine,
            "gpsimd": GpsimdEngine,
            "dma": DmaEngine,
            "sbuf": Sbuf,
            "psum": Psum,
        }
        placed: dict[str, Any] = {}
        for name, cls in blocks.items():
            placed[name] = self.tiles.place(cls, self.config)
            m.submodules[name] = DomainRenamer("inside")(placed[name])
        control, tensor, vector, scalar, gpsimd, dma, sbuf, psum = placed.values()

        connect(m, control.control, flipped(self.control))
        for i, port in enumerate([*(getattr(control, f"fetch{e.value}") for e in Engine), dma.read]):
            outside = getattr(self, f"read{i}")
            self._slice(m, f"read{i}_req", port.req, outside.req)
            self._slice(m, f"read{i}_rsp", outside.rsp, port.rsp)
        for name in ("req", "data"):
            self._slice(m, f"write0_{name}", getattr(dma.write, name), getattr(self.write0, name))
        self._slice(m, "write0_done", self.write0.done, dma.write.done)
        for name in ("tensor", "vector", "scalar", "gpsimd", "dma"):
            connect(m, getattr(control, name), placed[name].ctl)

        for name in TENSOR_PORTS:
            connect(m, getattr(tensor, name), getattr(sbuf, name))
        connect(m, tensor.accumulate, psum.accumulate)
        connect(m, gpsimd.sbuf, sbuf.gpsimd)
        connect(m, gpsimd.sbuf_w, sbuf.gpsimd_w)
        for memory, owner in (("sbuf", sbuf), ("psum", psum)):
            for i in range(2):
                connect(m, getattr(vector, f"{memory}{i}"), getattr(owner, f"vector{i}"))
            connect(m, getattr(vector, f"{memory}_w"), owner.vector_w)
            connect(m, getattr(scalar, memory), owner.scalar)
            connect(m, getattr(scalar, f"{memory}_w"), owner.scalar_w)
            connect(m, getattr(dma, f"{memory}_read"), owner.row_read)
            connect(m, getattr(dma, f"{memory}_write"), owner.row_write)
        m.d.comb += [
            control.columns.eq(tensor.columns),
            control.chip_id.eq(self.chip_id),
            dma.chip_id.eq(self.chip_id),
            dma.core_index.eq(self.core_index),
        ]
        return m

    def _slice(self, m: Module, name: str, source: Any, target: Any) -> None:
        """Registers between a stream inside the core and one outside: wires across the chip start and end in them."""
        width = Value.cast(source.payload).shape().width
        part = self.tiles.place(RegisterSlice, SliceConfig(width=width))
        m.submodules[name] = DomainRenamer("inside")(part)
        m.d.comb += [
            part.i.valid.eq(source.valid),
            part.i.payload.eq(source.payload),
            source.ready.eq(part.i.ready),
            target.valid.eq(part.o.valid),
            Value.cast(target.payload).eq(part.o.payload),
            part.o.ready.eq(target.ready),
        ]
