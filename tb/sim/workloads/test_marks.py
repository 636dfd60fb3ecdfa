"""Counting semaphores of the programs."""

from models.config import find
from models.isa import Opcode
from models.program import Program
from sim.workloads.marks import Marks, need


def test_marks_count_and_waits_that_are_always_met_cost_nothing():
    p = Program(find("nano"))
    marks = Marks(p.semaphore("progress"))
    need(p.tensor, marks.here())
    assert not p.tensor.instructions
    update = marks.mark()
    assert (update.value, marks.here().value) == (1, 1)
    marks.mark()
    need(p.tensor, marks.here(), marks.semaphore.ge(1))
    assert [i.opcode for i in p.tensor.instructions] == [Opcode.NOP, Opcode.NOP]
    assert [i.fields["wait_value"] for i in p.tensor.instructions] == [2, 1]
