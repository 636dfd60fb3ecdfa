"""Every instruction has RTL, a model, a bench that compares them, random programs, a builder method and words."""

import random
from collections.abc import Callable

import pytest

from models import config, encoding
from models.isa import CONTROL, OPS, Engine, Flag, Opcode
from sim import coverage
from sim.fuzz.ops import Generator
from tb.dma import tb_engine as dma_bench
from tb.gpsimd import instructions as gpsimd_bench
from tb.scalar import tb_engine as scalar_bench
from tb.tensor import instructions as tensor_bench
from tb.vector import instructions as vector_bench

ASKED = 600
GENERATORS: dict[Engine, Callable[[], list[bytes]]] = {
    Engine.TENSOR: lambda: tensor_bench.Generator().batch(ASKED),
    Engine.VECTOR: lambda: [vector_bench.random_instruction() for _ in range(ASKED)],
    Engine.GPSIMD: lambda: [gpsimd_bench.random_instruction() for _ in range(ASKED)],
    Engine.SCALAR: lambda: [scalar_bench.random_instruction() for _ in range(ASKED)],
    Engine.GPSIMD: lambda: [gpsimd_bench.random_instruction() for _ in range(ASKED)],
}


def _opcode(word: bytes) -> Opcode:
    return Opcode(encoding.raw_fields(word)["opcode"])


def test_no_hole():
    page = coverage.coverage_page()
    assert "| - |" not in page
    for row in coverage.rows():
        for path in (coverage.rtl_of(row), coverage.bench_of(row)):
            assert (coverage.ROOT / path).exists(), path


def test_a_hole_is_seen(monkeypatch):
    monkeypatch.setitem(coverage.MODELS, Engine.TENSOR, ("models/flow.py",))
    assert "| - |" in coverage.coverage_page()


def test_names_are_whole_words():
    assert coverage.named_in(Opcode.MATMUL, ("docs/isa.md",), "{}") == "docs/isa.md"
    assert coverage.named_in(Opcode.TENSOR_COPY, ("models/mx.py",)) is None


@pytest.mark.parametrize("engine", list(GENERATORS), ids=lambda e: e.name)
def test_benches_send_every_instruction(engine):
    random.seed(1)
    seen = {_opcode(word) for word in GENERATORS[engine]()}
    own = {op for op, info in OPS.items() if engine in info.engines and info.engines != frozenset(Engine)}
    assert own <= seen


def _doubles(parts: list[tuple[Opcode, int]]) -> set[Opcode]:
    return {opcode for opcode, flags in parts if flags & Flag.DOUBLE_ROW}


def test_double_rows_come():
    """The flag changes what an opcode does, so that the opcode alone says too little."""
    random.seed(1)
    raws = [encoding.raw_fields(word) for word in GENERATORS[Engine.TENSOR]()]
    both = {Opcode.LOAD_STATIONARY, Opcode.MATMUL}
    assert _doubles([(Opcode(raw["opcode"]), raw["flags"]) for raw in raws]) == both
    ops = Generator(config.find("nano"), random.Random(1)).ops(ASKED)
    parts = [part for op in ops if op.engine == Engine.TENSOR for part in op.parts]
    assert _doubles([(part.opcode, part.fields.get("flags", 0)) for part in parts]) == both


def test_every_engine_has_a_generator():
    alone = {e for info in OPS.values() if info.engines != frozenset(Engine) for e in info.engines}
    assert alone == set(GENERATORS) == set(coverage.RTL) == set(coverage.BENCHES)


def test_dma_and_control_are_sent():
    random.seed(1)
    assert _opcode(dma_bench.random_dma()) == Opcode.DMA
    for opcode in CONTROL:
        assert coverage.named_in(opcode, ("tb/control/test_sequencer.py",))


def test_random_programs_have_every_instruction():
    generator = Generator(config.find("nano"), random.Random(1))
    ops = generator.ops(ASKED)
    seen = {(part.opcode, op.engine) for op in ops for part in op.parts}
    # waits of several semaphores need it
    assert ".nop(wait=" in (coverage.ROOT / "sim/fuzz/schedule.py").read_text()
    for opcode, engine in coverage.rows():
        if opcode in (Opcode.NOP, Opcode.HALT):  # the schedule's; HALT ends every stream
            continue
        assert any(o == opcode and engine in (None, e) for o, e in seen), (opcode, engine)
