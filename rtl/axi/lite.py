"""AXI4-Lite slave: turns the bus into one register access at a time."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from rtl.interfaces import AxiLiteSignature
from rtl.tiles import ClockedTile, TileLibrary

SLVERR = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class AxiLiteConfig:
    """Bits of an address."""

    addr_width: int = 24


class AccessLayout(data.StructLayout):
    """A register access."""

    def __init__(self, addr_width: int) -> None:
        super().__init__({"write": 1, "addr": addr_width, "data": 32, "strb": 4})


class AnswerLayout(data.StructLayout):
    """What a register access gives."""

    def __init__(self) -> None:
        super().__init__({"data": 32, "error": 1})


class AxiLiteSlave(ClockedTile):
    """Members
    -------
    bus: AxiLiteSignature, seen from the slave. Address and data of a write may come in any order.
    req, rsp: AccessLayout and AnswerLayout streams; the next access starts when the last one's answer has been taken. Where both a read
        and a write are there, they take turns. An answer with `error` is SLVERR.
    """

    def __init__(self, config: AxiLiteConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "bus": In(AxiLiteSignature(addr_width=config.addr_width)),
                "req": Out(stream.Signature(AccessLayout(config.addr_width))),
                "rsp": In(stream.Signature(AnswerLayout())),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bus, req, rsp = self.bus, self.req, self.rsp
        wrote_last = Signal()
        writes = Signal()
        can_write, can_read = bus.awvalid & bus.wvalid, bus.arvalid
        answer = Signal(AnswerLayout())
        access = Signal(AccessLayout(self.config.addr_width))
        m.d.comb += [
            req.payload.eq(access),
            bus.rdata.eq(answer.data),
            bus.rresp.eq(Mux(answer.error, SLVERR, 0)),
            bus.bresp.eq(Mux(answer.error, SLVERR, 0)),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += writes.eq(can_write & (~can_read | ~wrote_last))
                m.d.comb += [
                    bus.awready.eq(writes),
                    bus.wready.eq(writes),
                    bus.arready.eq(can_read & ~writes),
                ]
                with m.If(can_write | can_read):
                    m.d.sync += [
                        wrote_last.eq(writes),
                        access.write.eq(writes),
                        access.addr.eq(Mux(writes, bus.awaddr, bus.araddr)),
                        access.data.eq(bus.wdata),
                        access.strb.eq(bus.wstrb),
                    ]
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += req.valid.eq(1)
                with m.If(req.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += rsp.ready.eq(1)
                with m.If(rsp.valid):
                    m.d.sync += answer.eq(rsp.payload)
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [bus.bvalid.eq(access.write), bus.rvalid.eq(~access.write)]
                with m.If(Mux(access.write, bus.bready, bus.rready)):
                    m.next = "IDLE"
        return m
