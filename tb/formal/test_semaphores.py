"""Semaphore unit: a semaphore's value is what its updates made of it, none lost, none twice, none of another's."""

import pytest
from amaranth import Module, Signal, signed

from models.isa import UpdateMode
from rtl.control import semaphores
from rtl.control.semaphores import SemaphoreConfig
from rtl.interfaces import UpdateLayout
from rtl.tiles import TileLibrary
from tb.formal.prove import Assert, RefutedError, Spec, mutant, prove

CONFIG = SemaphoreConfig(count=4, sources=2, waiters=1)


class Counts(Spec):
    """One semaphore, whichever, of some module's unit."""

    invariants = ("(not (= [unit.arbiter.rr_held] #b11))",)

    def __init__(self, module=semaphores):
        self.module = module
        super().__init__()

    def specify(self, m: Module) -> None:
        m.submodules.unit = unit = self.module.SemaphoreUnit(CONFIG, tiles=TileLibrary(inline=True))
        sem = self.fixed(m, range(CONFIG.count), "sem")
        m.d.comb += [unit.clear.eq(self.free(1, "clear")), unit.wait0_sem.eq(sem), unit.read_sem.eq(sem)]
        value = Signal(signed(32))
        taken = []
        for k in range(CONFIG.sources):
            source = getattr(unit, f"update{k}")
            update = source.payload
            m.d.comb += [
                source.valid.eq(self.free(1, f"valid{k}")),
                update.as_value().eq(self.free(UpdateLayout().size, f"update{k}")),
            ]
            taken.append(source.valid & source.ready)
            with m.If(taken[-1] & (update.sem[:2] == sem)):
                with m.Switch(update.mode):
                    with m.Case(UpdateMode.ADD):
                        m.d.sync += value.eq(value + update.value)
                    with m.Case(UpdateMode.SUB):
                        m.d.sync += value.eq(value - update.value)
                    with m.Case(UpdateMode.SET):
                        m.d.sync += value.eq(update.value)
        with m.If(unit.clear):
            m.d.sync += value.eq(0)
        m.d.comb += [
            Assert(unit.wait0_value == value),
            Assert(unit.read_value == value),
            Assert(~(taken[0] & taken[1])),
            Assert(unit.updated == (taken[0] | taken[1])),
            Assert(unit.updated == ((unit.update0.valid | unit.update1.valid) & ~unit.clear)),
        ]


def test_holds():
    prove(Counts(), steps=3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("new.eq(old - update.value)", "new.eq(old + update.value)"),
        ("arbiter.o.ready.eq(~self.clear)", "arbiter.o.ready.eq(1)"),
        ("written.bit_select(index, 1).eq(1)", "written.bit_select(update.sem[:1], 1).eq(1)"),
    ],
    ids=["adds", "updates in a clear", "forgets"],
)
def test_mutant_falls(old, new):
    with mutant(semaphores, old, new) as module, pytest.raises(RefutedError, match="from reset"):
        prove(Counts(module), steps=4)
