"""One GEMM on one core: C[M, N] = A[M, K] B[K, N], operands brought to SBUF first, results straight from PSUM to memory.

Operands come as codes (BF16, FP16, FP8) or as MX codes with scales; K is cut into tiles of P partitions (x 4 for MX, x 2 for double rows of
FP8), N into PSUM banks, M into tiles of P columns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import array, cast
from models.access import AccessPattern, row
from models.addressing import PSUM_PARTITION_STRIDE, SBUF_PARTITION_STRIDE, core_address, memory_address
from models.config import ChipConfig
from models.formats import MX_PACK, MX_ROWS, PACKED, DType, dtype_bytes
from models.image import Image
from models.isa import Space
from models.program import Program
from sim.workloads.layout import Allocator

U32 = NDArray[np.uint32]
U8 = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Operand:
    """Words uint32 [rows, columns] (rows = K, K / 4 for x4 types, K / 2 pairs of codes for `double` rows) and scales uint8
    [rows / 8 rounded up, columns] or None."""

    dtype: DType
    words: U32
    scales: U8 | None = None
    double: bool = False


def operand(dtype: DType, values: NDArray[np.float64], *, double: bool = False) -> Operand:
    """An operand from [K, columns]: one rounding for plain types; the OCP rule, K zero-padded to 4, for x4 types.

    `double`: rows 2 k and 2 k + 1 of K share a partition; K is zero-padded to 2.
    """
    if double:
        even = np.concatenate([values, np.zeros((values.shape[0] % 2, values.shape[1]))])
        single = cast.encode(dtype, even.astype(np.float32), saturate=True)
        return Operand(dtype, array.pairs(single[::2], single[1::2]), double=True)
    if dtype not in PACKED:
        return Operand(dtype, cast.encode(dtype, values.astype(np.float32), saturate=True))
    k, columns = values.shape
    rows = -(-k // MX_PACK)
    groups = -(-rows // MX_ROWS)
    padded = np.zeros((groups * MX_ROWS * MX_PACK, columns), dtype=np.float32)
    padded[:k] = values
    blocks = padded.reshape(groups, MX_ROWS * MX_PACK, columns).transpose(0, 2, 1)
    codes, scales = cast.quantize_mx(np.ascontiguousarray(blocks), dtype, rule="ocp")
    words = cast.pack_x4(dtype, codes.reshape(groups, columns, MX_ROWS, MX_PACK)).transpose(0, 2, 1)
    return Operand(dtype, words.reshape(-1, columns)[:rows].astype(np.uint32), scales.astype(np.uint8))


def golden(a: Operand, b: Operand, config: ChipConfig) -> NDArray[np.float32]:
    """C as the chip gives it: K-tiles of P rows, each summed row by row from +0, then added up in PSUM."""
    total: NDArray[np.float32] | None = None
    for first in range(0, a.words.shape[0], config.partitions):
        stop = min(first + config.partitions, a.words.shape[0])
        groups = slice(first // MX_ROWS, -(-stop // MX_ROWS))
        scales = [None if o.scales is None else o.scales[groups] for o in (a, b)]
        part = array.matmul(
            a.words[first:stop], b.words[first:stop], a.dtype, b.dtype, *scales, double=a.double
        )
        total = part if total is None else array.accumulate(total, part)
    if total is None:
        raise ValueError("K must be at least 1, not 0")
    return total


@dataclass(frozen=True, slots=True)
class Job:
    """An image to run and where C [M, N] FP32 lies in memory."""

    image: Image
    program: Program
    address: int
    shape: tuple[int, int]

    def result(self, out: Image) -> NDArray[np.float32]:
        """C from a resulting image."""
        m, n = self.shape
        return np.frombuffer(out.read(self.address, 4 * m * n), dtype="<f4").reshape(m, n)


def build(config: ChipConfig, a: Operand, b: Operand, *, core: int = 0) -> Job:
    """The image that multiplies `a` (stationary, [K, M]) and `b` (moving, [K, N]) on `core`.

    Raises WorkloadError when the operands do not fit SBUF or memory, ValueError when their K differs or only one has double rows.
    """
    k, m = a.words.shape
    n = b.words.shape[1]
    if b.words.shape[0] != k:
        raise ValueError(f"K must be equal in both operands, not {k} and {b.words.shape[0]} rows")
    if a.double != b.double:
        raise ValueError("both operands must have double rows, or none")
    p = config.partitions
    image = Image.empty(config)
    memory = Allocator(config.memory.bytes, "memory", first=4096)
    sbuf = Allocator(config.sbuf.bytes_per_partition, "SBUF")
    program = Program(config)
    loaded, ready, stored = (
        program.semaphore("loaded"),
        program.semaphore("ready"),
        program.semaphore("stored"),
    )

    def fetch(rows: NDArray[np.generic]) -> int:
        """Memory -> SBUF, row r to partition r; returns the SBUF byte address."""
        raw = np.ascontiguousarray(rows).reshape(rows.shape[0], -1)
        width = raw.shape[1] * raw.itemsize
        source, target = memory.take(raw.size * raw.itemsize), sbuf.take(width)
        image.add(source, raw.tobytes())
        program.sync.dma(
            memory_address(source),
            core_address(core, Space.SBUF, 0, target),
            row_bytes=width,
            rows=raw.shape[0],
            src_stride=width,
            dst_stride=SBUF_PARTITION_STRIDE,
            update=loaded.add(),
        )
        return target

    def tiles(o: Operand) -> list[tuple[int, int, int]]:
        """(partitions, address of words, address of scales or of second rows) of each K-tile."""
        out = []
        narrow = {1: np.uint8, 2: np.uint16, 4: np.uint32}[dtype_bytes(o.dtype)]
        for first in range(0, k, p):
            count = min(p, k - first)
            part = o.words[first : first + count]
            words = fetch((part & 0xFF if o.double else part).astype(narrow))
            other = 0
            if o.double:
                other = fetch((part >> 8).astype(narrow))
            elif o.scales is not None:
                groups = o.scales[first // MX_ROWS : -(-(first + count) // MX_ROWS)]
                other = fetch(_by_quadrant(config, groups))
            out.append((count, words, other))
        return out

    a_tiles, b_tiles = tiles(a), tiles(b)
    address = memory.take(4 * m * n)
    image.add_output(address, 4 * m * n)
    program.tensor.nop(wait=loaded.ge(len(program.sync.instructions)))
    bank_columns = config.psum.bank_bytes // 4
    results = 0
    for m0 in range(0, m, p):
        mm = min(p, m - m0)
        for n0 in range(0, n, bank_columns):
            nn = min(bank_columns, n - n0)
            bank = (results % config.psum.banks) * config.psum.bank_bytes
            wait = stored.ge(results - config.psum.banks + 1) if results >= config.psum.banks else None
            for i, ((count, aw, ao), (_, bw, bo)) in enumerate(zip(a_tiles, b_tiles, strict=True)):
                last = i == len(a_tiles) - 1
                weights, other = _patterns(a, aw, ao, m0, mm)
                program.tensor.load_stationary(weights, k=count, m=mm, **other)
                moving, other = _patterns(b, bw, bo, n0, nn)
                program.tensor.matmul(
                    row(bank, DType.FP32, nn, space=Space.PSUM),
                    moving,
                    k=count,
                    m=mm,
                    accumulate=i > 0,
                    wait=wait if i == 0 else None,
                    update=ready.add() if last else None,
                    **other,
                )
            results += 1
            program.sync.dma(
                core_address(core, Space.PSUM, 0, bank),
                memory_address(address + 4 * (m0 * n + n0)),
                row_bytes=4 * nn,
                rows=mm,
                src_stride=PSUM_PARTITION_STRIDE,
                dst_stride=4 * n,
                wait=ready.ge(results),
                update=stored.add(),
            )
    program.finish()
    at = memory.take(128 * sum(len(s.instructions) for s in program.streams.values()), 128)
    image.add_program(core, program, at)
    return Job(image, program, address, (m, n))


def _patterns(
    o: Operand, words: int, other: int, first: int, count: int
) -> tuple[AccessPattern, dict[str, AccessPattern]]:
    """Patterns of `count` columns from `first` of a tile: data, and what goes with it by the builder's name: scales or second rows."""
    data = row(words + first * dtype_bytes(o.dtype), o.dtype, count)
    if o.double:
        return data, {"double_row": row(other + first, o.dtype, count)}
    return data, {"scale": row(other + first, DType.E8M0, count)} if o.scales is not None else {}


def _by_quadrant(config: ChipConfig, groups: U8) -> U8:
    """Scale rows where the hardware reads them: group g of quadrant q on partition q * quadrant + g; other rows are 0xFF."""
    per = config.quadrant // MX_ROWS
    last = groups.shape[0] - 1
    out = np.full((last // per * config.quadrant + last % per + 1, groups.shape[1]), 0xFF, dtype=np.uint8)
    for g in range(groups.shape[0]):
        out[g // per * config.quadrant + g % per] = groups[g]
    return out
