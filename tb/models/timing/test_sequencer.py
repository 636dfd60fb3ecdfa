"""Five cycles an instruction; waits are counted; HALT waits for what its stream has issued."""

from models.access import row
from models.config import find
from models.formats import DType
from models.isa import Cond, Engine, Opcode, RegOp
from models.timing.chip import estimate
from tb.models.timing.chips import image_of

NANO = find("nano")
FP32 = DType.FP32


def cycles(fill):
    return estimate(NANO, image_of(NANO, fill)).cores[0]


def turns(count):
    def fill(p):
        p.vector.emit(Opcode.REGISTER, {"reg_op": RegOp.MOVE, "rd": 1, "use_imm": 1, "imm": count})
        p.vector.emit(Opcode.REGISTER, {"reg_op": RegOp.ADD, "rd": 1, "ra": 1, "use_imm": 1, "imm": -1})
        p.vector.emit(Opcode.BRANCH, {"cond": Cond.NE, "ra": 1, "use_imm": 1, "imm": 0, "target": 1})

    return fill


def test_a_kept_loop_takes_five_cycles_an_instruction():
    assert cycles(turns(1100)).cycles - cycles(turns(100)).cycles == 1000 * 2 * 5
    assert cycles(turns(100)).engines[Engine.VECTOR].instructions == 1 + 200 + 1


def test_waiting_is_what_a_semaphore_holds():
    def fill(n):
        def program(p):
            done = p.semaphore("done")
            p.vector.tensor_copy(row(0, FP32, n), row(64, FP32, n), parts=4, update=done.add())
            p.scalar.nop(wait=done.ge(1))

        return program

    short, long = (cycles(fill(n)).engines[Engine.SCALAR].waiting for n in (500, 800))
    assert long - short == 300


def test_halt_waits_for_its_engine():
    def fill(p):
        p.vector.tensor_copy(row(0, FP32, 1000), row(64, FP32, 1000), parts=4)

    assert cycles(fill).cycles > 1000
    assert cycles(lambda p: p.vector.nop(update=p.semaphore("a").add())).cycles < 300
