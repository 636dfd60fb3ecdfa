"""The whole chip: cores, crossbar to the memory channels, host registers, composed. No arithmetic here."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from models.config import ChipConfig
from rtl.axi.crossbar import MemoryCrossbar, MemoryCrossbarConfig
from rtl.axi.registers import ChipRegisters
from rtl.core import READERS, WRITERS, Core
from rtl.interfaces import Axi4Signature, AxiLiteSignature
from rtl.tiles import TileLibrary


class Chip(wiring.Component):
    """The top of the netlist; owns clock and reset (`clk`, `rst`, synchronous).

    Members
    -------
    s_axil: host port, AXI4-Lite, register map of models.registers.
    m_axi_mem0 ...: memory channels, AXI4, interleaved every 4 KiB.
    chip_id: this chip's number in addresses (strap).
    running, error: bit c for core c.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {
            "s_axil": In(AxiLiteSignature()),
            "chip_id": In(16),
            "running": Out(config.cores),
            "error": Out(config.cores),
        }
        for c in range(config.memory.channels):
            ports[f"m_axi_mem{c}"] = Out(Axi4Signature(id_width=config.memory.id_width))
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        m.submodules.crossbar = crossbar = self.tiles.place(
            MemoryCrossbar,
            MemoryCrossbarConfig(
                readers=READERS * cfg.cores,
                writers=WRITERS * cfg.cores,
                channels=cfg.memory.channels,
                id_width=cfg.memory.id_width,
                memory_bytes=cfg.memory.bytes,
            ),
        )
        m.submodules.registers = registers = self.tiles.place(ChipRegisters, cfg)
        connect(m, flipped(self.s_axil), registers.s_axil)
        for c in range(cfg.memory.channels):
            connect(m, getattr(crossbar, f"m_axi_mem{c}"), flipped(getattr(self, f"m_axi_mem{c}")))
        for c in range(cfg.cores):
            core = self.tiles.place(Core, cfg)
            m.submodules[f"core{c}"] = core
            m.d.comb += [core.core_index.eq(c), core.chip_id.eq(self.chip_id)]
            m.d.comb += [self.running[c].eq(core.control.running), self.error[c].eq(core.control.error)]
            connect(m, getattr(registers, f"core{c}"), core.control)
            for i in range(READERS):
                connect(m, getattr(core, f"read{i}"), getattr(crossbar, f"reader{c * READERS + i}"))
            for i in range(WRITERS):
                connect(m, getattr(core, f"write{i}"), getattr(crossbar, f"writer{c * WRITERS + i}"))
        return m
