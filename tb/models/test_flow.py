"""Registers, branches, dynamic addresses in the functional model."""

import pytest

from models import addressing, flow, isa
from models import machine as machines
from models.access import AccessPattern
from models.assembly import AssemblyError, assemble, disassemble, extent
from models.config import find
from models.formats import DType
from models.image import Image
from models.isa import AluOp, Cond, ErrorCode, Opcode, RegOp
from models.machine import Machine
from models.program import Program, ProgramError
from tb.sim.images import NANO


def _run(program):
    program.finish()
    image = Image.empty(NANO)
    image.add_program(0, program, 0x1000)
    machine = Machine(NANO)
    machine.load(image)
    machine.run()
    return machine


def _word(addr, dims=((1, 1),)):
    return AccessPattern(addr, DType.FP32, dims)


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        (RegOp.ADD, 0xFFFFFFFF, 2, 1),
        (RegOp.SUB, 1, 2, 0xFFFFFFFF),
        (RegOp.MUL, 0x10001, 0x10001, 0x20001),
        (RegOp.SHL, 1, 63, 1 << 31),
        (RegOp.SHR, 0x80000000, 31, 1),
        (RegOp.SRA, 0x80000000, 4, 0xF8000000),
        (RegOp.MIN, 0xFFFFFFFF, 1, 0xFFFFFFFF),
        (RegOp.MAX, 0xFFFFFFFF, 1, 1),
        (RegOp.MOVE, 5, 7, 7),
    ],
)
def test_alu(op, a, b, want):
    assert flow.alu(op, a, b) == want


def test_comparisons_are_signed_or_not():
    minus, one = 0xFFFFFFFF, 1
    assert flow.taken(Cond.LT, minus, one)
    assert not flow.taken(Cond.LTU, minus, one)
    assert flow.taken(Cond.GEU, minus, one)
    assert not flow.taken(Cond.GE, minus, one)


def test_a_loop_with_moving_addresses():
    program = Program(NANO)
    vector = program.vector
    vector.tensor_scalar(_word(0, ((0, 8),)), _word(0, ((0, 8),)), AluOp.MUL, 0.0, AluOp.ADD, 1.0, parts=4)
    with vector.loop(5, step=4) as i:
        vector.tensor_scalar(_word(4), _word(0), AluOp.MUL, 2.0, parts=4, dynamic={"dst": i, "src0": i})
    machine = _run(program)
    core = machine.cores[0]
    assert core.error is None
    assert core.sbuf[:4, :24].view("f4").tolist() == [[1, 2, 4, 8, 16, 32]] * 4
    assert core.counters.instructions[isa.Engine.VECTOR] == 1 + 1 + 5 * 3 + 1


def test_dma_offsets_are_signed():
    program = Program(NANO)
    sync = program.sync
    back = sync.register("back")
    sync.set(back, -64)
    sync.dma(
        addressing.memory_address(0x4040),
        addressing.memory_address(0x5040),
        row_bytes=32,
        dynamic={"src0": back, "dst": back},
    )
    program.finish()
    image = Image.empty(NANO)
    image.add_program(0, program, 0x1000)
    image.add(0x4000, bytes(range(32)))
    machine = Machine(NANO)
    machine.load(image)
    machine.run()
    assert machine.cores[0].error is None
    assert machine.memory[0x5000:0x5020].tolist() == list(range(32))


def test_out_of_range_by_a_register_is_an_error():
    program = Program(NANO)
    far = program.vector.register("far")
    program.vector.set(far, 1 << 30)
    program.vector.tensor_copy(_word(0), _word(4), parts=1, dynamic={"src0": far})
    error = _run(program).cores[0].error
    assert (error.code, error.index, error.addr) == (ErrorCode.SBUF_RANGE, 1, (1 << 30) + 4)


def test_a_loop_that_issues_nothing_ends_in_the_watchdog():
    program = Program(NANO)
    program.sync.label("for ever")
    program.sync.branch("for ever")
    done = program.semaphore("done")
    program.vector.tensor_copy(_word(0), _word(4), parts=1, update=done.add(1))
    machine = _run(program)
    assert machine.cores[0].error.code == ErrorCode.WATCHDOG
    assert machine.cores[0].error.engine == isa.Engine.SYNC
    assert machine.cores[0].semaphores[done.index] == 1  # the other engines ran


def test_a_core_that_spins_does_not_stop_another(monkeypatch):
    monkeypatch.setattr(machines, "TURN", 1)
    monkeypatch.setattr(machines, "SPIN_LIMIT", 5)
    config = find("mini")
    image = Image.empty(config)
    for core in range(2):
        program = Program(config)
        if core == 0:
            with program.vector.loop(20):
                program.vector.tensor_copy(_word(0), _word(4), parts=1)
        else:
            program.sync.label("for ever")
            program.sync.branch("for ever")
        program.finish()
        image.add_program(core, program, 0x1000 + core * 0x4000)
    machine = Machine(config)
    machine.load(image)
    machine.run()
    assert machine.cores[0].error is None
    assert not any(e.running for e in machine.cores[0].engines.values())
    assert machine.cores[1].error.code == ErrorCode.WATCHDOG


def test_branches_forward_and_labels_in_text():
    text = """
    .engine sync
      REGISTER rd=1 use_imm=1 imm=3
    again:
      BRANCH cond=eq ra=1 use_imm=1 target=done
      REGISTER reg_op=sub rd=1 ra=1 use_imm=1 imm=1
      BRANCH target=again
    done:
      HALT
    """
    words, labels = assemble(text)
    assert labels[isa.Engine.SYNC] == {"again": 1, "done": 4}
    assert extent(words[isa.Engine.SYNC] + bytes(256)) == 5
    assert extent(assemble(".engine sync\nBRANCH target=2\nHALT\nHALT\nNOP")[0][isa.Engine.SYNC]) == 3
    again = ".engine sync\n" + disassemble(words[isa.Engine.SYNC])
    assert assemble(again)[0] == words
    with pytest.raises(AssemblyError, match="line 2: target must be a number or one of the labels"):
        assemble(".engine sync\nBRANCH target=nowhere")
    with pytest.raises(AssemblyError, match=r"cond must be a number or one of always, eq, .*, not 'often'"):
        assemble(".engine sync\nBRANCH cond=often")


def test_refusals_of_the_builder():
    program = Program(NANO)
    sync = program.sync
    with pytest.raises(ProgramError, match="times >= 1 and a step that is not 0, not 0 and 1"), sync.loop(0):
        pass
    with pytest.raises(ProgramError, match="a register may be added to no operand, not to 'dst'"):
        sync.nop(dynamic={"dst": sync.register("x")})
    for n in range(isa.REGISTERS - 2):
        sync.register(f"r{n}")
    with pytest.raises(ProgramError, match="all 15 of this stream are in use"):
        sync.register("one more")
    sync.branch("nowhere")
    with pytest.raises(ProgramError, match="branch at index 0: no label 'nowhere'"):
        sync.encode()


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        (Opcode.NOP, {"dyn_dst": 1}),
        (Opcode.DMA, {"dyn_src1": 1}),
        (Opcode.TENSOR_COPY, {"dyn_src1": 1}),
        (Opcode.TENSOR_TENSOR, {"dyn_src1": 16}),
        (Opcode.REGISTER, {"rd": 0}),
        (Opcode.REGISTER, {"rd": 16}),
        (Opcode.REGISTER, {"rd": 1, "reg_op": 12}),
        (Opcode.REGISTER, {"rd": 1, "ra": 16}),
        (Opcode.BRANCH, {"cond": 7}),
        (Opcode.BRANCH, {"use_imm": 2}),
        (Opcode.BRANCH, {"rb": 16}),
    ],
)
def test_illegal_fields(opcode, fields):
    raw = dict.fromkeys((f.name for f in isa.FIELDS), 0) | fields
    with pytest.raises(flow.FieldError):
        flow.check(opcode, raw)
