"""Round robin: one grant, to one that asks, kept until it is served; nobody waits for more than one turn of each other one."""

import pytest
from amaranth import Cat, Module, Mux, Signal

from rtl.lib import stream_arbiter
from tb.formal.prove import Assert, RefutedError, Spec, mutant, prove

PORTS = 4


class Fair(Spec):
    """`round_robin` of some module.

    While port `me` waits, whoever is served comes nearer to it from behind: that bounds how many were before it.
    """

    invariants = ("(= [rr_after] [after])",)

    def __init__(self, module=stream_arbiter):
        self.module = module
        super().__init__()

    def specify(self, m: Module) -> None:
        asks, ready = self.free(PORTS, "asks"), self.free(1, "ready")
        me = self.fixed(m, range(PORTS), "me")
        served = Signal()
        grant = self.module.round_robin(m, "rr", list(asks), served)
        m.d.comb += served.eq(grant.any() & ready)
        m.d.comb += [
            Assert((grant & (grant - 1)) == 0),
            Assert((grant & ~asks) == 0),
            Assert(grant.any() == asks.any()),
        ]
        held = Signal(PORTS)
        m.d.sync += held.eq(Mux(served, 0, grant))
        m.d.comb += Assert(((held & asks) == 0) | (grant == held))
        others = Signal(range(2 * PORTS))
        waits = asks.bit_select(me, 1) & ~(served & grant.bit_select(me, 1))
        m.d.sync += others.eq(Mux(waits, others + (served & (others != 2 * PORTS - 1)), 0))
        last, after = Signal(range(PORTS), init=PORTS - 1), self.shown(PORTS, "after")
        for k in range(PORTS):
            with m.If(served & grant[k]):
                m.d.sync += last.eq(k)
        m.d.comb += after.eq(Cat(k > last for k in range(PORTS)))
        m.d.comb += [Assert(others < PORTS), Assert(others <= (last - me) % PORTS)]
        # a grant that was made while `me` waited does not pass it by
        for k in range(PORTS):
            passes = (k - last - 1) % PORTS > (me - last - 1) % PORTS
            m.d.comb += Assert(~(held[k] & passes & (others != 0)))


def test_holds():
    prove(Fair(), steps=4)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("after.eq(~(grant | (grant - 1)[:n]))", "after.eq(0)"),
        ("held.eq(grant)", "held.eq(0)"),
        ("Mux(high.any(), first_high, first)", "Mux(high.any(), high, first)"),
    ],
    ids=["starves", "lets go", "grants two"],
)
def test_mutant_falls(old, new):
    with mutant(stream_arbiter, old, new) as module, pytest.raises(RefutedError, match="from reset"):
        prove(Fair(module), steps=2 * PORTS)
