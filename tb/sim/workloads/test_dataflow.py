"""Engines wait exactly where they touch the same words."""

import numpy as np
import pytest

from models.config import find
from models.formats import DType
from models.functions import ActFunc
from models.image import Image
from models.isa import AluOp, Engine, Opcode
from models.machine import Machine
from models.program import Wait
from sim.run import run_image
from sim.workloads.dataflow import Dataflow
from sim.workloads.tiles import Matrix

NANO = find("nano")
A, B, C, D = (Matrix(64 * n, DType.FP32, 8, 16, 8) for n in range(4))


def _waits(flow, engine):
    """(engine, count) that each instruction waits for."""
    names = {mark.semaphore.index: e for e, mark in flow.marks.items()}
    return [
        (names[i.fields["wait_sem"]], i.fields["wait_value"]) if i.fields.get("wait_mode") else None
        for i in flow.program.streams[engine].instructions
    ]


def test_a_reader_waits_for_the_writer_and_only_once():
    flow = Dataflow(NANO)
    flow.memset(A.all(), 1.0)
    flow.memset(B.all(), 2.0)
    flow.activate(C.all(), A.all(), ActFunc.COPY)
    flow.activate(D.all(), A.all(), ActFunc.COPY)
    flow.activate(D.all(), B.all(), ActFunc.COPY)
    assert _waits(flow, Engine.SCALAR) == [(Engine.VECTOR, 1), None, (Engine.VECTOR, 2)]
    assert _waits(flow, Engine.VECTOR) == [None, None]


def test_a_writer_waits_for_the_reader():
    flow = Dataflow(NANO)
    flow.activate(B.all(), A.all(), ActFunc.COPY)
    flow.memset(A.all(), 0.0)
    assert _waits(flow, Engine.VECTOR) == [(Engine.SCALAR, 1)]


def test_other_words_of_the_same_matrix_are_free():
    flow = Dataflow(NANO)
    flow.memset(A.tile(0, 0, 8), 0.0)
    flow.activate(B.tile(0, 8, 8), A.tile(0, 8, 8), ActFunc.COPY)
    assert _waits(flow, Engine.SCALAR) == [None]


def test_what_another_engine_has_waited_for_needs_no_wait():
    flow = Dataflow(NANO)
    flow.load(A, 0x1000)
    flow.copy(B.all(), A.all())
    flow.activate(A.all(), B.all(), ActFunc.COPY)  # after the vector engine, hence after the DMA
    assert _waits(flow, Engine.SCALAR) == [(Engine.VECTOR, 1)]


def test_two_strangers_need_a_nop():
    flow = Dataflow(NANO)
    flow.load(A, 0x1000)
    flow.activate(B.all(), C.all(), ActFunc.COPY)
    flow.tensor_tensor(D.all(), A.all(), B.all(), AluOp.ADD)
    stream = flow.program.vector.instructions
    assert [i.opcode for i in stream] == [Opcode.NOP, Opcode.TENSOR_TENSOR]
    assert set(_waits(flow, Engine.VECTOR)) == {(Engine.SYNC, 1), (Engine.SCALAR, 1)}


def test_dmas_wait_for_each_other_where_they_touch():
    flow = Dataflow(NANO)
    flow.load(A, 0x1000)
    flow.load(B, 0x2000)
    flow.store(A, 0x3000)
    assert _waits(flow, Engine.SYNC) == [None, None, (Engine.SYNC, 1)]


class Serial(Dataflow):
    """Every instruction after the one before it in the text."""

    last = None

    def order(self, engine, reads, writes):
        wait = self.last
        update = self.marks[engine].mark()
        self.last = Wait(self.marks[engine].semaphore.index, self.marks[engine].count)
        return {"wait": wait, "update": update}


class Careless(Dataflow):
    """No one waits."""

    def order(self, engine, reads, writes):
        return super().order(engine, reads, writes) | {"wait": None}


def _random_program(kind, seed):
    """Random instructions on a few overlapping places, and all of them stored in the end."""
    rng = np.random.default_rng(seed)
    flow, image = kind(NANO), Image.empty(NANO)
    places = [Matrix(4 * int(n), DType.FP32, 8, 16, 8) for n in rng.integers(0, 60, 6)]
    image.add(0x1000, rng.normal(0, 1, (8, 16)).astype("<f4").tobytes())
    everything = Matrix(0, DType.FP32, 8, 80, 8)
    flow.memset(everything.all(), 0.5)
    for _ in range(40):
        dst, a = (places[i].tile(0, *rng.choice([[0, 16], [4, 8], [8, 8]])) for i in rng.integers(0, 6, 2))
        dst, a = (type(p)(p.addr, p.dtype, ((1, 8),)) for p in (dst, a))
        apart = abs(dst.addr - a.addr) >= 32
        match rng.integers(0, 5):
            case 0:
                flow.load(places[rng.integers(0, 6)], 0x1000)
            case 1 if apart:
                flow.activate(dst, a, ActFunc.ABS, scale=0.75)
            case 2 if apart:
                flow.copy(dst, a)
            case 3:
                flow.tensor_scalar(dst, dst, AluOp.MUL, 1.25, AluOp.ADD, 0.125)
            case _:
                flow.store(places[rng.integers(0, 6)], 0x4000)
    flow.store(everything, 0x8000)
    flow.program.finish()
    image.add_program(0, flow.program, 0x10000)
    image.add_output(0x4000, 512)
    image.add_output(0x8000, 8 * 320)
    return image


def _model(image):
    machine = Machine(NANO)
    machine.load(image)
    machine.run()
    assert machine.cores[0].error is None
    return machine.outputs(image).segments[1][1]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_give_what_serial_ones_give(seed):
    want = _model(_random_program(Serial, seed))
    image = _random_program(Dataflow, seed)
    assert _model(image) == want
    result = run_image(NANO, image, stall_seed=seed)
    assert result.cores[0].error is None
    assert result.outputs.segments[1][1] == want


def test_without_waits_they_do_not():
    different = [
        _model(_random_program(Careless, n)) != _model(_random_program(Serial, n)) for n in range(12)
    ]
    assert sum(different) > 6
