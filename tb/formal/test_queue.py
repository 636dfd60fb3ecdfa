"""Queue: an item leaves once, in its turn, as it came, and at the latest two cycles after it could."""

import pytest
from amaranth import Module, Mux, Signal

from rtl.lib import queue
from rtl.lib.queue import QueueConfig
from rtl.tiles import TileLibrary
from tb.formal.prove import Assert, RefutedError, Spec, mutant, prove


class InOrder(Spec):
    """Follows any one item through some module's queue: one bit of it, since a queue does not look at its items."""

    def __init__(self, depth: int, module=queue):
        self.depth, self.module = depth, module
        super().__init__()

    def specify(self, m: Module) -> None:
        m.submodules.queue = q = self.module.Queue(
            QueueConfig(width=1, depth=self.depth), tiles=TileLibrary(inline=True)
        )
        m.d.comb += [
            q.i.valid.eq(self.free(1, "valid")),
            q.i.payload.eq(self.free(1, "payload")),
            q.o.ready.eq(self.free(1, "ready")),
            q.clear.eq(self.free(1, "clear")),
        ]
        pick = self.free(1, "pick")
        held, ahead = Signal(range(self.depth + 2)), Signal(range(self.depth + 2))
        marked, bit, late = Signal(), Signal(), Signal(2)
        put, get = q.i.valid & q.i.ready, q.o.valid & q.o.ready
        with m.If(q.clear):
            m.d.sync += [held.eq(0), marked.eq(0)]
        with m.Else():
            m.d.sync += held.eq(held + put - get)
            with m.If(marked & get):
                m.d.sync += [ahead.eq(ahead - 1), marked.eq(ahead != 0)]
            with m.If(~marked & put & pick):
                m.d.sync += [marked.eq(1), bit.eq(q.i.payload), ahead.eq(held - get)]
        m.d.sync += late.eq(Mux((held != 0) & ~q.o.valid & ~q.clear, late + 1, 0))
        m.d.comb += [
            Assert(q.level == held),
            Assert(held <= self.depth),
            Assert(~q.o.valid | (held != 0)),
            Assert(~q.i.ready | (held != self.depth)),
            Assert(q.i.ready | (held + 1 >= self.depth)),
            Assert(~(marked & (ahead == 0) & q.o.valid) | (q.o.payload == bit)),
            Assert(late < 2),
        ]


@pytest.mark.parametrize(("depth", "steps"), [(2, 12), (3, 13)])
def test_holds(depth, steps):
    """From reset, for more cycles than it takes to fill the queue at each of its places."""
    prove(InOrder(depth), steps=steps, induction=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ResetInserter(self.clear)(fifo)", "fifo"),
        ("fifo.w_data.eq(self.i.payload)", "fifo.w_data.eq(self.i.payload | (fifo.level == 2))"),
        ("self.i.ready.eq(fifo.w_rdy)", "self.i.ready.eq(1)"),
    ],
    ids=["keeps what is cleared", "spoils an item", "loses items"],
)
def test_mutant_falls(old, new):
    with mutant(queue, old, new) as module, pytest.raises(RefutedError):
        prove(InOrder(3, module), steps=8, induction=False)
