"""Small images for tests of the whole chip: GEMMs of odd shapes, vector layers, programs that go wrong."""

import numpy as np

from models.access import row
from models.addressing import core_address, memory_address
from models.config import ChipConfig, find
from models.formats import MAC_CLASSES, PACKED, DType
from models.functions import ActFunc
from models.image import Image
from models.isa import INSTR_BYTES, AluOp, Cond, RegOp, Space
from models.machine import Machine
from models.program import Program
from sim.workloads import gemm

NANO = find("nano")
SHAPES = [(1, 1, 1), (13, 5, 3), (24, 16, 16), (33, 32, 1), (1, 33, 17), (40, 3, 1), (9, 10, 300)]
"""K, M, N: single elements, K no multiple of P or 32, M and N above P, N = 1, N beyond a PSUM bank; field reports A6 and A7."""


def gemm_job(
    dtype: DType, shape: tuple[int, int, int], seed: int, *, double: bool = False
) -> tuple[gemm.Job, np.ndarray]:
    """A job and its golden result."""
    k, m, n = shape
    rng = np.random.default_rng(seed)
    a, b = (gemm.operand(dtype, rng.standard_normal((k, c)) * 4.0, double=double) for c in (m, n))
    return gemm.build(NANO, a, b), gemm.golden(a, b, NANO)


def wild_gemm(dtype: DType, seed: int) -> tuple[gemm.Job, np.ndarray]:
    """Operands of any bits: Inf, NaN, subnormals, every scale."""
    rng = np.random.default_rng(seed)
    top = 1 << (
        8
        if dtype in (DType.E4M3, DType.E5M2)
        else 16
        if dtype in (DType.BF16, DType.FP16, DType.E2M1X4)
        else 32
    )

    def operand(columns: int) -> gemm.Operand:
        words = rng.integers(0, top, (11, columns), dtype=np.uint64).astype(np.uint32)
        scales = rng.integers(0, 256, (2, columns), dtype=np.uint8) if dtype in PACKED else None
        return gemm.Operand(dtype, words, scales)

    a, b = operand(7), operand(9)
    assert any(dtype in c for c in MAC_CLASSES)
    return gemm.build(NANO, a, b), gemm.golden(a, b, NANO)


def vector_image(config: ChipConfig, seed: int) -> Image:
    """FP32 rows through add, multiply, max, casts and two functions on every core, back to memory."""
    rng = np.random.default_rng(seed)
    image = Image.empty(config)
    at = 0x10000
    for core in range(config.cores):
        data = rng.standard_normal((config.partitions, 16)).astype("<f4")
        image.add(at, data.tobytes())
        p = Program(config)
        loaded, cast, done = (p.semaphore(n) for n in ("loaded", "cast", "done"))
        sbuf = core_address(core, Space.SBUF, 0, 0)
        stride = 1 << 20
        p.sync.dma(
            memory_address(at),
            sbuf,
            row_bytes=64,
            rows=config.partitions,
            src_stride=64,
            dst_stride=stride,
            update=loaded.add(),
        )
        x = row(0, DType.FP32, 16)
        v = p.vector
        v.tensor_tensor(row(64, DType.FP32, 16), x, x, AluOp.ADD, parts=config.partitions, wait=loaded.ge(1))
        v.tensor_scalar(
            row(128, DType.BF16, 16),
            row(64, DType.FP32, 16),
            AluOp.MUL,
            0.75,
            AluOp.MAX,
            0.0,
            parts=config.partitions,
        )
        v.tensor_copy(
            row(160, DType.E4M3, 16),
            row(128, DType.BF16, 16),
            parts=config.partitions,
            saturate=True,
            update=cast.add(),
        )
        p.scalar.activate(
            row(176, DType.FP32, 16),
            row(64, DType.FP32, 16),
            ActFunc.GELU,
            parts=config.partitions,
            scale=0.5,
            bias=row(0, DType.FP32, 1),
            wait=cast.ge(1),
        )
        p.scalar.activate(
            row(240, DType.BF16, 16),
            row(128, DType.BF16, 16),
            ActFunc.EXP,
            parts=config.partitions,
            update=done.add(),
        )
        out = at + 0x4000
        back = core_address(core, Space.SBUF, 0, 64)
        p.sync.dma(
            back,
            memory_address(out),
            row_bytes=208,
            rows=config.partitions,
            src_stride=stride,
            dst_stride=208,
            wait=done.ge(1),
        )
        p.finish()
        image.add_program(core, p, at + 0x8000)
        image.add_output(out, 208 * config.partitions)
        at += 0x10000
    return image


def loop_image(seed: int) -> Image:
    """Blocks of rows through two nested vector loops: DMAs, addresses and waits of every turn from one instruction each."""
    rng = np.random.default_rng(seed)
    blocks, columns, inner = 6, 8, 4
    image, parts = Image.empty(NANO), NANO.partitions
    data = rng.standard_normal((blocks, parts, columns)).astype("<f4")
    source, target = 0x10000, 0x20000
    image.add(source, data.tobytes())
    image.add_output(target, data.nbytes)
    p = Program(NANO)
    loaded, done = p.semaphore("loaded"), p.semaphore("done")
    size, stride = parts * columns * 4, 1 << 20
    rows = {"row_bytes": columns * 4, "rows": parts}
    with p.sync.loop(blocks, step=size) as at:
        place = p.sync.register("place")
        p.sync.compute(place, RegOp.SHR, at, (parts).bit_length() - 1)
        p.sync.dma(
            memory_address(source),
            core_address(0, Space.SBUF, 0, 0),
            **rows,
            src_stride=columns * 4,
            dst_stride=stride,
            dynamic={"src0": at, "dst": place},
            update=loaded.add(),
        )
    v = p.vector
    total = v.register("total")
    with v.loop(blocks, step=columns * 4) as block:
        v.nop(wait=loaded.ge(1), update=loaded.sub(1))
        with v.loop(inner, step=8) as pair:
            v.compute(total, RegOp.ADD, block, pair)
            both = {"dst": total, "src0": total}
            x = row(0, DType.FP32, 2)
            v.tensor_scalar(x, x, AluOp.MUL, 1.5, AluOp.ADD, -0.25, parts=parts, dynamic=both)
            v.branch("skip", Cond.GE, total, 0)
            v.nop(update=done.add(100))
            v.label("skip")
        v.nop(update=done.add())
    with p.sync.loop(blocks, step=size) as at:
        p.sync.compute(place, RegOp.SHR, at, (parts).bit_length() - 1)
        p.sync.nop(wait=done.ge(1), update=done.sub(1))
        p.sync.dma(
            core_address(0, Space.SBUF, 0, 0),
            memory_address(target),
            **rows,
            src_stride=stride,
            dst_stride=columns * 4,
            dynamic={"src0": place, "dst": at},
        )
    p.finish()
    image.add_program(0, p, 0x40000)
    return image


def broken(kind: str) -> Image:
    """An image whose program ends in an error: see the names."""
    image = Image.empty(NANO)
    p = Program(NANO)
    never = p.semaphore("never")
    p.vector.nop()
    if kind == "watchdog":
        p.vector.nop(wait=never.ge(1))
    if kind == "spin":
        p.sync.label("for ever")
        p.sync.branch("for ever")
    if kind == "dma":
        p.sync.dma(
            memory_address(0x2000),
            memory_address(0x8000),
            row_bytes=64,
            rows=2,
            src_stride=NANO.memory.bytes,
            dst_stride=64,
        )
    p.finish()
    image.add_program(0, p, 0x2000)
    image.add_output(0x8000, 64)
    streams = {engine: address for _, engine, address in image.entries}
    if kind in ("opcode", "field", "halt"):
        address = streams[min(streams, key=lambda e: e.name != "VECTOR")]
        at = address + INSTR_BYTES
        word = {"opcode": bytes([0x7F]), "field": bytes([0x01, 0x07]), "halt": b""}[kind].ljust(
            INSTR_BYTES, b"\0"
        )
        for n, (start, data) in enumerate(image.segments):
            if start <= at < start + len(data):
                raw = bytearray(data)
                raw[at - start : at - start + INSTR_BYTES] = word
                image.segments[n] = (start, bytes(raw))
    return image


def model(image: Image, config: ChipConfig = NANO) -> Machine:
    """The functional model after the image."""
    machine = Machine(config)
    machine.load(image)
    machine.run()
    return machine
