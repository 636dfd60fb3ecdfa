"""Images on the simulated chip in both simulators against the golden and the functional model."""

import dataclasses

import numpy as np
import pytest

from models import config
from models.formats import DType
from models.image import ImageError
from models.isa import Engine, ErrorCode
from sim.run import parse_core, result_registers, run_image, start_writes
from sim.tools import SimulationError
from tb.sim.images import NANO, SHAPES, broken, gemm_job, loop_image, model, vector_image, wild_gemm

FORMATS = NANO.tensor.formats
SIMULATORS = ("verilator", "icarus")


def _same(result, job, want):
    assert result.cores[0].error is None
    assert not result.timed_out
    got = job.result(result.outputs)
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda d: d.name.lower())
def test_gemm_shapes(dtype):
    for shape in SHAPES:
        job, want = gemm_job(dtype, shape, 1)
        _same(run_image(NANO, job.image), job, want)


def test_double_rows():
    """GEMMs of every shape, and of a large one in not much more than half the cycles of single rows."""
    for shape in SHAPES:
        job, want = gemm_job(DType.E4M3, shape, 1, double=True)
        _same(run_image(NANO, job.image), job, want)
    busy = []
    for double in (False, True):
        job, want = gemm_job(DType.E4M3, (128, 16, 256), 1, double=double)
        result = run_image(NANO, job.image)
        _same(result, job, want)
        busy.append(result.cores[0].counters["BUSY_TENSOR"])
    assert busy[1] < 0.55 * busy[0], busy


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda d: d.name.lower())
def test_gemm_of_any_bits(dtype):
    for seed in range(4):
        job, want = wild_gemm(dtype, seed)
        _same(run_image(NANO, job.image), job, want)


@pytest.mark.parametrize(("dtype", "shape"), [(DType.BF16, (13, 5, 3)), (DType.E4M3X4, (40, 9, 2))])
def test_icarus_gemm(dtype, shape):
    job, want = gemm_job(dtype, shape, 2)
    _same(run_image(NANO, job.image, simulator="icarus"), job, want)


def test_weather_changes_cycles_not_results():
    job, want = gemm_job(DType.E4M3X4, (40, 10, 20), 3)
    cycles = set()
    for latency, bandwidth, stalls in ((1, 1.0, 0), (20, 1.0, 0), (90, 0.25, 0), (5, 1.0, 11), (30, 0.5, 12)):
        result = run_image(NANO, job.image, latency=latency, bandwidth=bandwidth, stall_seed=stalls)
        assert not result.notes
        _same(result, job, want)
        cycles.add(result.cycles)
    assert len(cycles) == 5


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_vector_layer(simulator):
    image = vector_image(NANO, 4)
    result = run_image(NANO, image, simulator=simulator)
    machine = model(image)
    assert machine.cores[0].error is None
    assert result.outputs.segments == machine.outputs(image).segments
    assert result.cores[0].counters["BUSY_VECTOR"] > 0
    assert result.cores[0].counters["BUSY_SCALAR"] > 0


@pytest.mark.parametrize(
    ("simulator", "weather"),
    [("verilator", {}), ("verilator", {"latency": 70, "bandwidth": 0.4, "stall_seed": 5}), ("icarus", {})],
)
def test_loops_and_dynamic_addresses(simulator, weather):
    image = loop_image(8)
    result = run_image(NANO, image, simulator=simulator, **weather)
    machine = model(image)
    assert machine.cores[0].error is None
    assert result.cores[0].error is None
    assert result.outputs.segments == machine.outputs(image).segments
    segments = dict(image.segments)
    start = np.frombuffer(segments[0x10000], "<f4")
    want = start * np.float32(1.5) + np.float32(-0.25)
    assert result.outputs.segments[0][1] == want.tobytes()


@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("opcode", ErrorCode.ILLEGAL_OPCODE),
        ("field", ErrorCode.ILLEGAL_FIELD),
        ("dma", ErrorCode.DMA_RANGE),
        ("watchdog", ErrorCode.WATCHDOG),
        ("spin", ErrorCode.WATCHDOG),
        ("halt", ErrorCode.ILLEGAL_OPCODE),
    ],
)
def test_errors_end_in_registers(simulator, kind, code):
    image = broken(kind)
    result = run_image(NANO, image, simulator=simulator, watchdog=500)
    want = model(image).cores[0].error
    assert result.cores[0].error == want
    assert want.code == code
    assert not result.timed_out


def test_watchdog_off_ends_at_the_limit():
    result = run_image(NANO, broken("watchdog"), watchdog=0, limit=3000)
    assert result.timed_out
    assert result.cores[0].error is None
    assert result.cycles == 3000


def test_program_beyond_memory():
    image = broken("none")
    image.entries[:] = [
        (core, engine, NANO.memory.bytes - 128 * (n + 1)) for n, (core, engine, _) in enumerate(image.entries)
    ]
    result = run_image(NANO, image, watchdog=500)
    want = model(image).cores[0].error
    assert result.cores[0].error.code in (ErrorCode.ILLEGAL_OPCODE, ErrorCode.FETCH_ERROR)
    assert want.code in (ErrorCode.ILLEGAL_OPCODE, ErrorCode.FETCH_ERROR)


def test_foreign_image_and_settings_that_icarus_has_not():
    other = dataclasses.replace(NANO, core=config.CoreConfig(prefetch=8))
    with pytest.raises(ImageError):
        run_image(other, broken("none"))
    with pytest.raises(SimulationError, match="no bandwidth or stall setting"):
        run_image(NANO, broken("none"), simulator="icarus", stall_seed=3)


def test_registers_by_name():
    assert len(result_registers(0)) == len(set(result_registers(0)))
    values = list(range(len(result_registers(0))))
    with pytest.raises(ValueError, match="is not a valid"):
        parse_core(values)
    writes = start_writes(broken("none"), 77)
    assert writes[0][1] == 77
    assert writes[-1][1] in range(1, 1 << len(Engine))
