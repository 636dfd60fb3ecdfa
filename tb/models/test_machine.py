"""Functional model: each opcode, semaphores, DMA and its odd sizes, on small programs; results against NumPy and the other models.

The errors are in test_machine_errors.py.
"""

import numpy as np
import pytest

from models import array, cast
from models import config as configs
from models.access import row
from models.addressing import PSUM_PARTITION_STRIDE, SBUF_PARTITION_STRIDE, core_address, memory_address
from models.formats import MX_ROWS, DType, dtype_bytes
from models.image import Image, ImageError
from models.isa import Engine, ErrorCode, Space
from models.machine import Machine
from models.program import Program
from sim.workloads import gemm
from tb.models import exact
from tb.models.machines import FULL, NANO, SEED, get, put, random_f32, run


# --- DMA -------------------------------------------------------------------------------------------------------------
def test_dma_goes_through_every_memory():
    p = Program(NANO)
    done = p.semaphore("done")
    source, back = 0x1000, 0x2000
    p.sync.dma(
        memory_address(source + 3),
        core_address(0, Space.SBUF, 1, 5),
        row_bytes=7,
        rows=4,
        src_stride=11,
        dst_stride=SBUF_PARTITION_STRIDE,
        update=done.add(),
    )
    p.sync.dma(
        core_address(0, Space.SBUF, 1, 5),
        core_address(0, Space.PSUM, 7, 100),
        row_bytes=7,
        rows=4,
        src_stride=SBUF_PARTITION_STRIDE,
        dst_stride=-PSUM_PARTITION_STRIDE,
        wait=done.ge(1),
        update=done.add(),
    )
    p.sync.dma(
        core_address(0, Space.PSUM, 7, 100),
        memory_address(back),
        row_bytes=7,
        rows=4,
        src_stride=-PSUM_PARTITION_STRIDE,
        dst_stride=7,
        wait=done.ge(2),
    )
    data = np.random.default_rng(SEED).integers(0, 256, 64).astype(np.uint8)

    def prepare(core):
        core.chip.memory[source : source + 64] = data

    core = run(p, prepare)
    want = np.concatenate([data[3 + 11 * r : 10 + 11 * r] for r in range(4)])
    assert np.array_equal(core.chip.memory[back : back + 28], want)
    assert np.array_equal(core.sbuf[1:5, 5:12].reshape(-1), want)
    assert np.array_equal(core.psum[7:3:-1, 100:107].reshape(-1), want)
    assert core.sbuf.sum() == core.psum.sum() == int(want.astype(np.int64).sum())
    assert core.counters.dma_bytes == 3 * 28


@pytest.mark.parametrize(("row_bytes", "rows"), [(0, 1), (0, 0), (64, 0), (0, 1 << 31)])
def test_a16_empty_dma_completes_once_and_moves_nothing(row_bytes, rows):
    """Length 0, then 64 bytes from a misaligned source; an empty copy may even name places that do not exist."""
    p = Program(NANO)
    done = p.semaphore("done")
    p.sync.dma(
        memory_address(0x1000), memory_address(0x2000), row_bytes=row_bytes, rows=rows, update=done.add()
    )
    p.sync.dma(0xDEAD << 40, 7 << 40, row_bytes=row_bytes, rows=rows, update=done.add())
    p.sync.dma(memory_address(0x1001), memory_address(0x3000), row_bytes=64, wait=done.ge(2))
    data = np.arange(1, 66, dtype=np.uint8)

    def prepare(core):
        core.chip.memory[0x1000:0x1041] = data

    core = run(p, prepare)
    assert core.semaphores[done.index] == 2
    assert not core.chip.memory[0x2000:0x2400].any()
    assert np.array_equal(core.chip.memory[0x3000:0x3040], data[1:])
    assert not core.chip.memory[0x3040:0x3400].any()


def test_dma_repeats_with_stride_zero_and_reaches_the_last_byte():
    p = Program(NANO)
    last = NANO.memory.bytes - 4
    p.tensor.dma(
        memory_address(last),
        core_address(0, Space.SBUF, 0, 0),
        row_bytes=4,
        rows=8,
        dst_stride=SBUF_PARTITION_STRIDE,
    )
    end = NANO.sbuf.bytes_per_partition - 4
    p.vector.dma(memory_address(last), core_address(0, Space.SBUF, 7, end), row_bytes=4)

    def prepare(core):
        core.chip.memory[last:] = [1, 2, 3, 4]

    core = run(p, prepare)
    assert core.sbuf[:, :4].tolist() == [[1, 2, 3, 4]] * 8
    assert core.sbuf[7, end:].tolist() == [1, 2, 3, 4]


def test_dma_can_name_the_chip_by_its_number():
    p = Program(NANO)
    mask = (1 << 48) - 1
    p.sync.dma(memory_address(0x1000) & mask, memory_address(0x2000) & mask, row_bytes=2)

    def prepare(core):
        core.chip.memory[0x1000:0x1002] = [8, 9]

    assert run(p, prepare).chip.memory[0x2000:0x2002].tolist() == [8, 9]


# --- tensor ----------------------------------------------------------------------------------------------------------
def operands(dtype: DType, k: int, m: int, n: int) -> list[gemm.Operand]:
    per = 4 if dtype in (DType.E4M3X4, DType.E5M2X4, DType.E2M1X4) else 1
    rng = np.random.default_rng([SEED, dtype, k, m, n])
    return [gemm.operand(dtype, rng.standard_normal((k * per, c))) for c in (m, n)]


@pytest.mark.parametrize("dtype", FULL.tensor.formats, ids=lambda d: d.name)
def test_matmul_overwrites_then_accumulates(dtype):
    k, m, n = 13, 11, 10
    a, b = operands(dtype, k, m, n)
    width = dtype_bytes(dtype)
    p = Program(FULL)
    scale_a = row(2048, DType.E8M0, m) if a.scales is not None else None
    scale_b = row(3072, DType.E8M0, n) if b.scales is not None else None
    p.tensor.load_stationary(row(0, dtype, m), k=k, m=m, scale=scale_a)
    ps = row(0, DType.FP32, n, space=Space.PSUM)
    p.tensor.matmul(ps, row(1024, dtype, n), k=k, m=m, scale=scale_b)
    p.tensor.matmul(ps, row(1024, dtype, n), k=k, m=m, scale=scale_b, accumulate=True)
    poison = 0xFF

    def prepare(core):
        # A6: whatever lies beside the operands must not matter
        core.sbuf[:] = poison
        core.psum[:] = poison
        put(core, 0, a.words.astype(f"u{width}"))
        put(core, 1024, b.words.astype(f"u{width}"))
        for at, o in ((2048, a), (3072, b)):
            if o.scales is not None:
                put(core, at, o.scales)

    core = run(p, prepare)
    once = array.matmul(a.words, b.words, dtype, dtype, a.scales, b.scales)
    want = array.accumulate(once, once)
    got = get(core, 0, "u4", (m, n), space=Space.PSUM)
    assert np.array_equal(got, want.view(np.uint32))
    assert np.isfinite(want).all()
    assert (core.psum[m:] == poison).all()
    assert (core.psum[:m, 4 * n :] == poison).all()
    assert core.counters.columns == 2 * n


def test_mixed_fp8_and_a_second_moving_tile():
    k, m = 8, 8
    a = random_f32((k, m), 5)
    p = Program(FULL)
    p.tensor.load_stationary(row(0, DType.E4M3, m), k=k, m=m)
    for i, dtype in enumerate((DType.E5M2, DType.E4M3)):
        ps = row(256 * i, DType.FP32, 4, space=Space.PSUM)
        p.tensor.matmul(ps, row(64, dtype, 4), k=k, m=m)
    words = cast.encode(DType.E4M3, a, saturate=True)

    def prepare(core):
        put(core, 0, words.astype(np.uint8))
        put(core, 64, words[:, :4].astype(np.uint8))

    core = run(p, prepare)
    for i, dtype in enumerate((DType.E5M2, DType.E4M3)):
        want = array.matmul(words, words[:, :4], DType.E4M3, dtype)
        assert np.array_equal(get(core, 256 * i, "u4", (m, 4), space=Space.PSUM), want.view(np.uint32))


@pytest.mark.parametrize("types", [("E4M3", "E4M3"), ("E5M2", "E4M3"), ("E5M2", "E5M2")])
def test_double_rows(types):
    """Second rows of any pattern, in other partitions than the first ones."""
    (s, t), (k, m, n) = (DType[name] for name in types), (7, 11, 10)
    codes = [cast.encode(d, random_f32((2, k, c), c), saturate=True) for d, c in ((s, m), (t, n))]
    p = Program(FULL)
    double = {"k": k, "m": m}
    p.tensor.load_stationary(row(0, s, m), double_row=row(63 + 64, s, m, part=8), **double)
    ps = row(0, DType.FP32, n, space=Space.PSUM)
    for accumulate in (False, True):
        second = row(256 + n - 1, t, n, stride=-1, part=4)
        p.tensor.matmul(ps, row(128, t, n), double_row=second, accumulate=accumulate, **double)
    places = [((0, 0), (128, 0)), ((127, 8), (256, 4))]

    def prepare(core):
        core.sbuf[:] = 0x55
        for plane, at in enumerate(places):
            for operand, (addr, part) in zip(codes, at, strict=True):
                put(core, addr, operand[plane][:, :: -1 if addr == 256 else 1].astype(np.uint8), part=part)

    core = run(p, prepare)
    once = array.matmul(*(array.pairs(*c) for c in codes), s, t, double=True)
    want = array.accumulate(once, once)
    assert np.array_equal(get(core, 0, "u4", (m, n), space=Space.PSUM), want.view(np.uint32))
    specs = [exact.SPECS[d.name.lower()] for d in (s, t)]

    def pairs(row, m, n):
        ends = zip(specs, codes, (m, n), strict=True)
        first, second = (
            [exact.decode(spec, int(c[plane, row, at])) for plane in (0, 1)] for spec, c, at in ends
        )
        return list(zip(first, second, strict=True))

    single = exact.matmul(k, (m, n), pairs)
    twice = [
        [exact.encode(exact.FP32, exact.total([exact.decode(exact.FP32, x)] * 2)) for x in line]
        for line in single
    ]
    assert np.array_equal(want.view(np.uint32), np.array(twice, dtype=np.uint32))
    assert core.counters.columns == 2 * n


def test_columns_that_fall_on_one_psum_word_add_up_in_order():
    """Destination stride 0 with accumulate is a sum over columns, one rounding each; without, the last column stays."""
    k, m, n = 8, 8, 6
    a, b = operands(DType.BF16, k, m, n)
    p = Program(NANO)
    p.tensor.load_stationary(row(0, DType.BF16, m), k=k, m=m)
    for at, accumulate in ((0, True), (8, False)):
        ps = row(at, DType.FP32, n, stride=0, space=Space.PSUM)
        p.tensor.matmul(ps, row(64, DType.BF16, n), k=k, m=m, accumulate=accumulate)

    def prepare(core):
        put(core, 0, a.words.astype(np.uint16))
        put(core, 64, b.words.astype(np.uint16))

    core = run(p, prepare)
    columns = array.matmul(a.words, b.words, DType.BF16, DType.BF16)
    want = np.zeros(m, np.float32)
    for c in range(n):
        want = array.accumulate(want, columns[:, c])
    assert np.array_equal(get(core, 0, "u4", (m, 1), space=Space.PSUM)[:, 0], want.view(np.uint32))
    last = np.ascontiguousarray(columns[:, n - 1]).view(np.uint32)
    assert np.array_equal(get(core, 8, "u4", (m, 1), space=Space.PSUM)[:, 0], last)


def test_empty_matmul_completes_once():
    p = Program(NANO)
    done = p.semaphore("done")
    p.tensor.load_stationary(row(0, DType.BF16, 8), k=8, m=8)
    p.tensor.matmul(
        row(0, DType.FP32, 0, space=Space.PSUM), row(0, DType.BF16, 0), k=8, m=8, update=done.add()
    )
    core = run(p)
    assert core.semaphores[done.index] == 1
    assert core.counters.columns == 0


@pytest.mark.parametrize("shape", [(24, 16, 16), (33, 32, 1), (1, 33, 17)])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.E4M3, DType.E4M3X4, DType.E2M1X4], ids=lambda d: d.name)
def test_a7_gemm_shapes(dtype, shape):
    gemm_against_golden(dtype, *shape)


@pytest.mark.parametrize("k", [40, 1504])
def test_a6_gemm_with_a_tail_of_k(k):
    gemm_against_golden(DType.E4M3X4, 3, k, 1)


def gemm_against_golden(dtype: DType, m: int, k: int, n: int) -> None:
    """A whole GEMM on clean memories and on memories full of NaN: both are the golden model's result."""
    rng = np.random.default_rng([SEED, dtype, m, k, n])
    a, b = (gemm.operand(dtype, rng.standard_normal((k, c))) for c in (m, n))
    job = gemm.build(NANO, a, b)
    want = gemm.golden(a, b, NANO)
    assert want.shape == (m, n)
    for fill in (0x00, 0xFF, 0x7F):
        machine = Machine(NANO)
        machine.cores[0].sbuf[:] = fill
        machine.cores[0].psum[:] = fill
        machine.load(job.image)
        machine.run()
        assert machine.cores[0].error is None
        got = job.result(machine.outputs(job.image))
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
    assert np.isfinite(want).all()


def test_scales_of_each_quadrant_come_from_its_own_partitions():
    """P = 64 has two quadrants: group g of a quadrant reads partition g of that quadrant, plus the offset."""
    cfg = configs.from_dict(FULL.to_dict() | {"name": "two-quadrants", "partitions": 64})
    k, m, n = 64, 3, 2
    a, b = operands(DType.E4M3X4, k, m, n)
    p = Program(cfg)
    p.tensor.load_stationary(row(0, DType.E4M3X4, m), k=k, m=m, scale=row(64, DType.E8M0, m, part=4))
    p.tensor.matmul(
        row(0, DType.FP32, n, space=Space.PSUM),
        row(32, DType.E4M3X4, n),
        k=k,
        m=m,
        scale=row(64, DType.E8M0, n, part=12),
    )
    rng = np.random.default_rng(SEED)
    sa, sb = (rng.integers(118, 136, (8, c)).astype(np.uint8) for c in (m, n))

    def prepare(core):
        core.sbuf[:] = 0xFF
        put(core, 0, a.words)
        put(core, 32, b.words)
        for g in range(k // MX_ROWS):
            first = g // 4 * 32 + g % 4
            put(core, 64, sa[g : g + 1], part=first + 4)
            put(core, 64, sb[g : g + 1], part=first + 12)

    core = run(p, prepare)
    want = array.matmul(a.words, b.words, DType.E4M3X4, DType.E4M3X4, sa, sb)
    assert np.array_equal(get(core, 0, "u4", (m, n), space=Space.PSUM), want.view(np.uint32))


@pytest.mark.parametrize(
    "kind", [DType.E4M3, DType.FP16, DType.FP32, DType.E2M1X4, DType.INT8], ids=lambda d: d.name
)
def test_transpose_moves_every_bit(kind):
    """NaN payloads, signs of zero, infinities and subnormals: any bits, against NumPy's transpose."""
    k, m, size = 5, 7, dtype_bytes(kind)
    unsigned = f"u{size}"
    values = np.random.default_rng([SEED, int(kind)]).integers(0, 1 << 8 * size, (k, m)).astype(unsigned)
    values[0, :4] = [0, 1, 1 << 8 * size - 1, (1 << 8 * size) - 1]
    p = Program(FULL)
    p.tensor.transpose(
        row(3 * size, kind, k, space=Space.PSUM), row(size, kind, m, part=4), k=k, m=m, update=None
    )
    core = run(p, lambda core: put(core, size, values, part=4))
    assert np.array_equal(get(core, 3 * size, unsigned, (m, k), space=Space.PSUM), values.T)
    assert core.psum.astype(np.int64).sum() == values.view(np.uint8).astype(np.int64).sum()
    assert core.counters.columns == k


# --- control ---------------------------------------------------------------------------------------------------------
def test_semaphores_add_subtract_set_and_wrap():
    p = Program(NANO)
    a, b, c = (p.semaphore(n) for n in "abc")
    p.sync.nop(update=a.add(5))
    p.sync.nop(update=a.sub(7))
    p.sync.nop(update=b.set(-3))
    p.sync.nop(update=c.set((1 << 31) - 1))
    p.sync.nop(update=c.add(1))
    core = run(p)
    assert [core.semaphores[s.index] for s in (a, b, c)] == [-2, -3, -(1 << 31)]


def test_waiting_does_not_consume_and_engines_meet():
    p = Program(NANO)
    ping, pong = p.semaphore("ping"), p.semaphore("pong")
    for i in range(3):
        p.tensor.nop(wait=pong.ge(i), update=ping.add())
        p.vector.nop(wait=ping.ge(i + 1), update=pong.add())
    p.sync.halt(wait=pong.ge(3))
    core = run(p)
    assert core.semaphores[:2] == [3, 3]
    assert core.counters.instructions == {
        Engine.TENSOR: 4,
        Engine.VECTOR: 4,
        Engine.SYNC: 1,
        Engine.SCALAR: 1,
        Engine.GPSIMD: 1,
    }


def test_cores_work_alone():
    cfg = configs.find("mini")
    image = Image.empty(cfg)
    at = 1 << 16
    for number in range(cfg.cores):
        p = Program(cfg)
        p.sync.dma(memory_address(16 * number), core_address(number, Space.SBUF, 0, 0), row_bytes=16)
        p.finish()
        image.add(16 * number, bytes([number + 1] * 16))
        at = image.add_program(number, p, at)
    machine = Machine(cfg)
    machine.load(image)
    machine.run()
    for number, core in enumerate(machine.cores):
        assert core.error is None
        assert core.sbuf[0, :16].tolist() == [number + 1] * 16


def test_outputs_come_back_and_foreign_images_do_not_load():
    image = Image.empty(NANO)
    image.add(64, b"abcd")
    image.add_output(62, 4)
    machine = Machine(NANO)
    machine.load(image)
    machine.run()
    assert machine.outputs(image).segments == [(62, b"\0\0ab")]
    with pytest.raises(ImageError, match="was made for configuration"):
        Machine(FULL).load(image)
    assert machine.cores[0].error is None
    assert ErrorCode.NONE == 0
