"""AXI4-Lite slave: each access is asked for once and answered once with what came back; answers stay; reads and writes take turns."""

import pytest
from amaranth import Module, Mux, Signal

from rtl.axi import lite
from rtl.axi.lite import AxiLiteConfig
from rtl.tiles import TileLibrary
from tb.formal.prove import Assert, Assume, RefutedError, Spec, mutant, prove, stays

IDLE, ASK, WAIT, ANSWER = range(4)
ADDR_BITS = 4


class Once(Spec):
    """Some module's slave between a master that keeps to AXI and registers that do whatever they like."""

    invariants = ("(= [slave.wrote_last] [wrote_last])", "(= [slave.access.write] [write])")

    def __init__(self, module=lite):
        self.module = module
        super().__init__()

    def specify(self, m: Module) -> None:
        m.submodules.slave = slave = self.module.AxiLiteSlave(
            AxiLiteConfig(addr_width=ADDR_BITS), tiles=TileLibrary(inline=True)
        )
        bus, req, rsp = slave.bus, slave.req, slave.rsp
        for name in (
            "awaddr",
            "awvalid",
            "wdata",
            "wstrb",
            "wvalid",
            "bready",
            "araddr",
            "arvalid",
            "rready",
        ):
            port = getattr(bus, name)
            m.d.comb += port.eq(self.free(port.shape(), name))
        m.d.comb += [
            req.ready.eq(self.free(1, "req_ready")),
            rsp.valid.eq(self.free(1, "rsp_valid")),
            rsp.payload.as_value().eq(self.free(33, "rsp_payload")),
        ]
        stays(m, Assume, bus.awvalid, bus.awready, bus.awaddr)
        stays(m, Assume, bus.wvalid, bus.wready, bus.wdata, bus.wstrb)
        stays(m, Assume, bus.arvalid, bus.arready, bus.araddr)
        stays(m, Assert, bus.bvalid, bus.bready, bus.bresp)
        stays(m, Assert, bus.rvalid, bus.rready, bus.rresp, bus.rdata)
        stays(m, Assert, req.valid, req.ready, req.payload.as_value())

        phase, write = Signal(2), self.shown(1, "write")
        addr, data, strb, answer, error = Signal(ADDR_BITS), Signal(32), Signal(4), Signal(32), Signal()
        wrote, read = bus.awvalid & bus.awready, bus.arvalid & bus.arready
        with m.Switch(phase):
            with m.Case(IDLE):
                with m.If(wrote | read):
                    m.d.sync += [phase.eq(ASK), write.eq(wrote), addr.eq(Mux(wrote, bus.awaddr, bus.araddr))]
                    m.d.sync += [data.eq(bus.wdata), strb.eq(bus.wstrb)]
            with m.Case(ASK):
                with m.If(req.valid & req.ready):
                    m.d.sync += phase.eq(WAIT)
            with m.Case(WAIT):
                with m.If(rsp.valid & rsp.ready):
                    m.d.sync += [phase.eq(ANSWER), answer.eq(rsp.payload.data), error.eq(rsp.payload.error)]
            with m.Case(ANSWER):
                with m.If((bus.bvalid & bus.bready) | (bus.rvalid & bus.rready)):
                    m.d.sync += phase.eq(IDLE)
        can_write = bus.awvalid & bus.wvalid
        m.d.comb += [
            # one at a time, as soon as it is there, address and data of a write together
            Assert((wrote | read) == ((phase == IDLE) & (can_write | bus.arvalid))),
            Assert(~(wrote & read)),
            Assert(wrote == (bus.wvalid & bus.wready)),
            Assert(req.valid == (phase == ASK)),
            Assert(rsp.ready == (phase == WAIT)),
            Assert(bus.bvalid == ((phase == ANSWER) & write)),
            Assert(bus.rvalid == ((phase == ANSWER) & ~write)),
            Assert(~req.valid | (req.payload.write == write)),
            Assert(~req.valid | (req.payload.addr == addr)),
            Assert(~(req.valid & write) | ((req.payload.data == data) & (req.payload.strb == strb))),
            Assert(~bus.bvalid | (bus.bresp == Mux(error, lite.SLVERR, 0))),
            Assert(~bus.rvalid | ((bus.rresp == Mux(error, lite.SLVERR, 0)) & (bus.rdata == answer))),
        ]
        # whoever waits while another one is served comes next
        read_waits, write_waits, wrote_last = Signal(), Signal(), self.shown(1, "wrote_last")
        with m.If(wrote | read):
            m.d.sync += [read_waits.eq(wrote & bus.arvalid), write_waits.eq(read & can_write)]
            m.d.sync += wrote_last.eq(wrote)
        m.d.comb += [
            Assert(~(wrote & read_waits)),
            Assert(~(read & write_waits)),
            Assert(~read_waits | (bus.arvalid & wrote_last)),
            Assert(~write_waits | (can_write & ~wrote_last)),
        ]


def test_holds():
    prove(Once(), steps=5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(~can_read | ~wrote_last)", "(~can_read | ~wrote_last | access.write)"),
        ("m.d.sync += answer.eq(rsp.payload)", "m.d.comb += answer.eq(rsp.payload)"),
        ("with m.If(Mux(access.write, bus.bready, bus.rready)):", "with m.If(bus.bready):"),
        ("access.strb.eq(bus.wstrb)", "access.strb.eq(15)"),
    ],
    ids=["starves reads", "forgets answers", "takes a read's answer back", "writes all bytes"],
)
def test_mutant_falls(old, new):
    with mutant(lite, old, new) as module, pytest.raises(RefutedError, match="from reset"):
        prove(Once(module), steps=12, induction=False)
