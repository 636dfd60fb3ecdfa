"""Memory crossbar, reads: each burst is asked for once, of the channel that holds it, and each beat comes back to the port that asked."""

import pytest
from amaranth import Cat, Module, Signal

from rtl.axi import crossbar
from rtl.axi.crossbar import OUTSTANDING, MemoryCrossbarConfig
from rtl.tiles import TileLibrary
from tb.formal.prove import Assert, Assume, RefutedError, Spec, mutant, prove, stays

PORTS, CHANNELS = 2, 2
CONFIG = MemoryCrossbarConfig(readers=PORTS, writers=1, channels=CHANNELS, id_width=1, memory_bytes=1 << 20)


class Reads(Spec):
    """Some module's crossbar between readers that keep to their contract and channels that answer what they were asked, in any order of ports."""

    invariants = tuple(
        i
        for p in range(PORTS)
        for i in (
            f"(= [crossbar.reader{p}_left] [left{p}])",
            f"(= [crossbar.reader{p}_channel] [channel{p}])",
        )
    ) + tuple(
        f"(=> (not (= [crossbar.ar{c}_held] #b00)) (= [crossbar.ar{c}_held] [shown{c}]))"
        for c in range(CHANNELS)
    )

    def __init__(self, module=crossbar):
        self.module = module
        super().__init__()

    def specify(self, m: Module) -> None:
        m.submodules.crossbar = x = self.module.MemoryCrossbar(CONFIG, tiles=TileLibrary(inline=True))
        readers = [getattr(x, f"reader{p}") for p in range(PORTS)]
        channels = [getattr(x, f"m_axi_mem{c}") for c in range(CHANNELS)]
        # bursts that a channel owes a port
        owed = [[Signal(6, name=f"owed{c}_{p}") for p in range(PORTS)] for c in range(CHANNELS)]
        for p, reader in enumerate(readers):
            req = reader.req
            m.d.comb += [
                req.valid.eq(self.free(1, f"req_valid{p}")),
                req.payload.addr.eq(self.free(40, f"addr{p}")),
                req.payload.beats.eq(self.free(9, f"beats{p}")),
                reader.rsp.ready.eq(self.free(1, f"rsp_ready{p}")),
                Assume((req.payload.beats != 0) & (req.payload.beats <= 256)),
            ]
            stays(m, Assume, req.valid, req.ready, req.payload.addr, req.payload.beats)
        for c, axi in enumerate(channels):
            m.d.comb += [
                axi.arready.eq(self.free(1, f"arready{c}")),
                axi.rvalid.eq(self.free(1, f"rvalid{c}")),
                axi.rid.eq(self.free(1, f"rid{c}")),
                axi.rdata.eq(self.free(128, f"rdata{c}")),
                axi.rresp.eq(self.free(2, f"rresp{c}")),
                axi.rlast.eq(self.free(1, f"rlast{c}")),
            ]
            stays(m, Assert, axi.arvalid, axi.arready, axi.araddr, axi.arlen, axi.arid)
            for p in range(PORTS):
                m.d.comb += Assume(~(axi.rvalid & (axi.rid == p)) | (owed[c][p] != 0))
                asked = axi.arvalid & axi.arready & (axi.arid == p)
                ended = axi.rvalid & axi.rready & axi.rlast & (axi.rid == p)
                m.d.sync += owed[c][p].eq(owed[c][p] + asked - ended)
            shown = self.shown(PORTS, f"shown{c}")
            m.d.sync += shown.eq(Cat(axi.arvalid & ~axi.arready & (axi.arid == p) for p in range(PORTS)))
        for p, reader in enumerate(readers):
            req, rsp = reader.req, reader.rsp
            page, taken = req.payload.addr[12:13], req.valid & req.ready
            left, channel = self.shown(4, f"left{p}"), self.shown(1, f"channel{p}")
            m.d.comb += left.eq(sum(owed[c][p] for c in range(CHANNELS)))
            with m.If(taken):
                m.d.sync += channel.eq(page)
            m.d.comb += Assert(sum(owed[c][p] for c in range(CHANNELS)) <= OUTSTANDING)
            beats = []
            for c, axi in enumerate(channels):
                asked = axi.arvalid & axi.arready & (axi.arid == p)
                beats.append(axi.rvalid & (axi.rid == p))
                m.d.comb += [
                    Assert(asked == (taken & (page == c))),
                    Assert(
                        ~asked
                        | (
                            (axi.araddr == Cat(req.payload.addr[:12], req.payload.addr[13:]))
                            & (axi.arlen == req.payload.beats - 1)
                        )
                    ),
                    # one channel at a time
                    Assert((owed[c][p] == 0) | (channel == c)),
                    Assert(
                        ~beats[-1]
                        | (
                            rsp.valid
                            & (rsp.payload.data == axi.rdata)
                            & (rsp.payload.last == axi.rlast)
                            & (rsp.payload.error == axi.rresp[1])
                            & (axi.rready == rsp.ready)
                        )
                    ),
                ]
            m.d.comb += [Assert(rsp.valid == (beats[0] | beats[1])), Assert(~(beats[0] & beats[1]))]


def test_holds():
    prove(Reads(), steps=3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "((target == last) & (left != OUTSTANDING))",
            "(((target == last) | (left == 1)) & (left != OUTSTANDING))",
        ),
        ("axi.arlen.eq(request.beats - 1)", "axi.arlen.eq(request.beats)"),
        ("mine[i].append(axi.rvalid & (axi.rid == i))", "mine[i].append(axi.rvalid)"),
    ],
    ids=["two channels at once", "a beat too many", "a beat to all"],
)
def test_mutant_falls(old, new):
    with mutant(crossbar, old, new) as module, pytest.raises(RefutedError, match="from reset"):
        prove(Reads(module), steps=6, induction=False)
