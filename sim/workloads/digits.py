"""The main job: 1,797 handwritten digits through a 64-64-10 perceptron, every layer on the chip.

Layer 1 puts PSUM tiles of up to P hidden units out, the vector engine adds the bias, applies ReLU, casts to the operand format and
writes the moving operand of layer 2; logits go back to memory as FP32 [10, n] for each core. MXFP8 packs four hidden tiles into the
x4 words, so that hidden unit (4 t + i) * m + p is element i of partition p in K-tile t. The hidden layer's block scale is a constant
2^e: W1's scales and b1 are divided by it, which is exact, so PSUM holds values ready to cast.

Images are cut into chunks of at most one PSUM bank and dealt to the cores. Layer 1 of the next chunk runs while the vector engine
finishes the last one; X, hidden and logit buffers are double. The count of PSUM tiles that the vector engine has done orders
everything: it frees PSUM banks, X buffers and logits. The vector engine's own order (layer 1 of chunk c + 2 after layer 2 of chunk c)
frees the hidden buffers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.access import AccessPattern, row
from models.addressing import SBUF_PARTITION_STRIDE, core_address, memory_address
from models.config import ChipConfig
from models.formats import MX_PACK, MX_ROWS, DType
from models.image import Image
from models.isa import INSTR_BYTES, AluOp, Space
from models.program import Program
from sim.workloads.layout import Allocator, WorkloadError
from sim.workloads.mlp import CLASSES, HIDDEN, Mlp

FORMATS = {"mxfp8": DType.E4M3X4, "bf16": DType.BF16}
INPUTS = 64
BUFFERS = 2


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the layers are cut: `k` partitions and `k_tiles` K-tiles a layer, `m` hidden units a tile, `out` (first, count) output tiles."""

    dtype: DType
    k: int
    k_tiles: int
    m: int
    m_tiles: int
    out: tuple[tuple[int, int], ...]

    @property
    def packed(self) -> bool:
        """True for x4 operands."""
        return self.dtype == DType.E4M3X4

    @property
    def element(self) -> int:
        """Bytes of an operand word."""
        return 4 if self.packed else 2


def tiling(config: ChipConfig, fmt: str) -> Tiling:
    """The tiling for a format. Raises WorkloadError for an unknown format or one that the chip was not built for."""
    if fmt not in FORMATS:
        raise WorkloadError(f"FORMAT must be one of {', '.join(FORMATS)}, not {fmt!r}")
    dtype = FORMATS[fmt]
    if dtype not in config.tensor.formats:
        built = ", ".join(d.name.lower() for d in config.tensor.formats)
        raise WorkloadError(
            f"FORMAT {fmt} needs {dtype.name.lower()} in tensor.formats; {config.name} has {built}"
        )
    pack = MX_PACK if dtype == DType.E4M3X4 else 1
    k = min(config.partitions, INPUTS // pack)
    m = k
    out = tuple(
        (first, min(config.partitions, CLASSES - first)) for first in range(0, CLASSES, config.partitions)
    )
    return Tiling(dtype, k, INPUTS // pack // k, m, HIDDEN // m, out)


@dataclass(frozen=True, slots=True)
class Operands:
    """Raw operand words and scales: `words` uint32 [k_tiles, k, columns], `scales` uint8 [k_tiles, k / 8, columns] (empty unless packed)."""

    words: NDArray[np.uint32]
    scales: NDArray[np.uint8]


def _plain(values: NDArray[np.float64], t: Tiling) -> Operands:
    """BF16 operands from [64, columns]."""
    words = cast.encode(t.dtype, values.astype(np.float32), saturate=True).reshape(t.k_tiles, t.k, -1)
    return Operands(words, np.zeros((t.k_tiles, 0, words.shape[2]), dtype=np.uint8))


def _mx(values: NDArray[np.float64], t: Tiling) -> Operands:
    """MX operands from [k_tiles, k, 4, columns], quantised by the OCP rule in blocks of 8 partitions x 4 elements."""
    columns = values.shape[3]
    blocks = values.reshape(t.k_tiles, t.k // MX_ROWS, MX_ROWS, MX_PACK, columns).transpose(0, 1, 4, 2, 3)
    flat = blocks.reshape(t.k_tiles, t.k // MX_ROWS, columns, MX_ROWS * MX_PACK).astype(np.float32)
    codes, scales = cast.quantize_mx(flat, t.dtype, rule="ocp")
    words = cast.pack_x4(t.dtype, codes.reshape(*codes.shape[:-1], MX_ROWS, MX_PACK))
    words = words.transpose(0, 1, 3, 2).reshape(t.k_tiles, t.k, columns)
    return Operands(words.astype(np.uint32), scales.astype(np.uint8))


def hidden_order(t: Tiling) -> NDArray[np.int64]:
    """Hidden unit of [k_tile, partition, element] in layer 2."""
    pack = MX_PACK if t.packed else 1
    tile = np.arange(t.k_tiles)[:, None, None] * pack + np.arange(pack)[None, None, :]
    return tile * t.m + np.arange(t.k)[None, :, None]


@dataclass(frozen=True, slots=True)
class Quantised:
    """The network as the chip holds it."""

    tiling: Tiling
    w1: Operands
    w2: Operands
    b1: NDArray[np.float32]
    b2: NDArray[np.float32]
    hidden_scale: int


def quantise(net: Mlp, x: NDArray[np.float64], t: Tiling) -> Quantised:
    """Weights in the operand format; `x` [n, 64] calibrates the hidden layer's scale. Columns of w1 are hidden units in order."""
    b1, b2 = net.b1.astype(np.float32), net.b2.astype(np.float32)
    if not t.packed:
        return Quantised(t, _plain(net.w1, t), _plain(net.w2, t), b1, b2, 0)
    exponent = int(np.ceil(np.log2(net.hidden(x).max() / 448.0)))
    w1 = _mx(net.w1.reshape(t.k_tiles, t.k, MX_PACK, HIDDEN), t)
    scaled = w1.scales.astype(int) - exponent
    if scaled.min() < 0 or scaled.max() > 254:
        raise WorkloadError(f"hidden scale 2^{exponent} takes W1's block scales out of 0..254")
    w1 = Operands(w1.words, scaled.astype(np.uint8))
    w2 = _mx(net.w2[hidden_order(t)].copy(), t)
    return Quantised(t, w1, w2, np.ldexp(b1, -exponent).astype(np.float32), b2, 127 + exponent)


@dataclass(slots=True)
class Job:
    """An image to run, and where its results lie: per core (address of FP32 [10, n], indices of its images)."""

    image: Image
    programs: list[Program]
    results: list[tuple[int, NDArray[np.int64]]]


class _CoreBuilder:
    """Builds one core's program and its data in memory."""

    def __init__(
        self,
        config: ChipConfig,
        core: int,
        image: Image,
        memory: Allocator,
        q: Quantised,
        x: NDArray[np.float64],
    ):
        self.config, self.core, self.image, self.memory, self.q, self.t = (
            config,
            core,
            image,
            memory,
            q,
            q.tiling,
        )
        self.n = len(x)
        self.bank_columns = config.psum.bank_bytes // 4
        self.chunks = [(s, min(self.bank_columns, self.n - s)) for s in range(0, self.n, self.bank_columns)]
        self.program = Program(config)
        self.sbuf = Allocator(config.sbuf.bytes_per_partition, "SBUF")
        self.x = x
        self.tile = 0
        self.logit_tile = 0

    # --- data in memory ---------------------------------------------------------------------------------------
    def _store(self, data: bytes) -> int:
        address = self.memory.take(len(data))
        self.image.add(address, data)
        return address

    def _fetch(self, rows: NDArray[np.generic], sbuf: int, **sync: object) -> None:
        """DMA a [partitions, ...] array to SBUF byte `sbuf` of partitions 0, 1, ..."""
        raw = np.ascontiguousarray(rows).reshape(rows.shape[0], -1)
        address = self._store(raw.tobytes())
        width = raw.shape[1] * raw.itemsize
        self.program.sync.dma(
            memory_address(address),
            core_address(self.core, Space.SBUF, 0, sbuf),
            row_bytes=width,
            rows=raw.shape[0],
            src_stride=width,
            dst_stride=SBUF_PARTITION_STRIDE,
            **sync,
        )

    def _words(self, words: NDArray[np.uint32]) -> NDArray[np.generic]:
        return words if self.t.packed else words.astype(np.uint16)

    # --- program ----------------------------------------------------------------------------------------------
    def build(self) -> int:
        """Emit everything; returns the memory address of the core's logits."""
        t, p = self.t, self.program
        n_max = max(count for _, count in self.chunks)
        out_bytes = 4 * CLASSES * self.n
        logits = self.memory.take(out_bytes)
        self.loaded, self.ready = p.semaphore("loaded"), p.semaphore("psum ready")
        self.done, self.logits_free = p.semaphore("psum done"), p.semaphore("logits free")
        self.layer1_end: list[int] = []
        self.layer2_end: dict[tuple[int, int], int] = {}
        self.s_w1 = [self.sbuf.take(HIDDEN * t.element) for _ in range(t.k_tiles)]
        self.s_w1s = [self.sbuf.take(HIDDEN) for _ in range(t.k_tiles)]
        self.s_w2 = [self.sbuf.take(CLASSES * t.element) for _ in range(t.k_tiles)]
        self.s_w2s = [self.sbuf.take(CLASSES) for _ in range(t.k_tiles)]
        self.s_b1, self.s_b2 = self.sbuf.take(4 * t.m_tiles), self.sbuf.take(4 * len(t.out))
        self.s_scale = self.sbuf.take(4)
        self.s_x = [[self.sbuf.take(n_max * t.element) for _ in range(t.k_tiles)] for _ in range(BUFFERS)]
        self.s_xs = [[self.sbuf.take(n_max) for _ in range(t.k_tiles)] for _ in range(BUFFERS)]
        self.s_hidden = [
            [self.sbuf.take(n_max * t.element) for _ in range(t.k_tiles)] for _ in range(BUFFERS)
        ]
        self.s_logits = [[self.sbuf.take(4 * n_max) for _ in t.out] for _ in range(BUFFERS)]
        self._constants()
        for c in range(len(self.chunks)):
            self._load_chunk(c)
            self._layer1(c)
            if c >= 1:
                self._layer2(c - 1)
                self._store_chunk(c - 1, logits)
        if self.chunks:
            self._layer2(len(self.chunks) - 1)
            self._store_chunk(len(self.chunks) - 1, logits)
        p.finish()
        return logits

    def _constants(self) -> None:
        t, q = self.t, self.q
        for i in range(t.k_tiles):
            self._fetch(self._words(q.w1.words[i]), self.s_w1[i], update=self.loaded.add())
            self._fetch(self._words(q.w2.words[i]), self.s_w2[i], update=self.loaded.add())
            if t.packed:
                self._fetch(q.w1.scales[i], self.s_w1s[i], update=self.loaded.add())
                self._fetch(q.w2.scales[i], self.s_w2s[i], update=self.loaded.add())
        self._fetch(q.b1.reshape(t.m_tiles, t.m).T, self.s_b1, update=self.loaded.add())
        for i, (first, count) in enumerate(t.out):
            self._fetch(
                q.b2[first : first + count].reshape(-1, 1), self.s_b2 + 4 * i, update=self.loaded.add()
            )
        if t.packed:
            groups = np.full((max(1, t.k // MX_ROWS), 1), q.hidden_scale, dtype=np.uint8)
            self._fetch(groups, self.s_scale, update=self.loaded.add())
        self.constants = self._loads_so_far()

    def _loads_so_far(self) -> int:
        return len(self.program.sync.instructions)

    def _per_chunk_loads(self) -> int:
        return self.t.k_tiles * (2 if self.t.packed else 1)

    def _load_chunk(self, c: int) -> None:
        start, count = self.chunks[c]
        t = self.t
        values = self.x[start : start + count].T
        operands = _mx(values.reshape(t.k_tiles, t.k, MX_PACK, count), t) if t.packed else _plain(values, t)
        if c >= BUFFERS:
            self.program.sync.nop(wait=self.done.ge(self.layer1_end[c - BUFFERS]))
        for i in range(t.k_tiles):
            self._fetch(self._words(operands.words[i]), self.s_x[c % BUFFERS][i], update=self.loaded.add())
            if t.packed:
                self._fetch(operands.scales[i], self.s_xs[c % BUFFERS][i], update=self.loaded.add())

    def _psum(self, count: int, part: int = 0) -> AccessPattern:
        bank = self.tile % self.config.psum.banks
        return row(bank * self.config.psum.bank_bytes, DType.FP32, count, space=Space.PSUM, part=part)

    def _product(
        self,
        k_tiles: list[tuple[AccessPattern, AccessPattern | None, AccessPattern, AccessPattern | None]],
        m: int,
        count: int,
        done: int = 0,
    ) -> None:
        """One PSUM tile: load and multiply every K-tile, once its bank is free and the vector engine has done `done` tiles."""
        tensor = self.program.tensor
        wait = self.done.ge(max(done, self.tile - self.config.psum.banks + 1))
        for i, (w, ws, x, xs) in enumerate(k_tiles):
            tensor.load_stationary(w, k=self.t.k, m=m, scale=ws)
            sync: dict[str, Any] = {"wait": wait} if i == 0 and wait.value > 0 else {}
            sync |= {"update": self.ready.add()} if i == len(k_tiles) - 1 else {}
            tensor.matmul(self._psum(count), x, k=self.t.k, m=m, accumulate=i > 0, scale=xs, **sync)

    def _scales(self, address: int, count: int, stride: int = 1) -> AccessPattern | None:
        return row(address, DType.E8M0, count, stride=stride) if self.t.packed else None

    def _layer1(self, c: int) -> None:
        t, b, count = self.t, c % BUFFERS, self.chunks[c][1]
        tensor, vector = self.program.tensor, self.program.vector
        tensor.label(f"layer1_chunk{c}")
        tensor.nop(wait=self.loaded.ge(self.constants + (c + 1) * self._per_chunk_loads()))
        vector.label(f"layer1_chunk{c}")
        if c == 0:
            vector.nop(wait=self.loaded.ge(self.constants))
        for m in range(t.m_tiles):
            k_tiles = [
                (
                    row(self.s_w1[i] + m * t.m * t.element, t.dtype, t.m),
                    self._scales(self.s_w1s[i] + m * t.m, t.m),
                    row(self.s_x[b][i], t.dtype, count),
                    self._scales(self.s_xs[b][i], count),
                )
                for i in range(t.k_tiles)
            ]
            self._product(k_tiles, t.m, count)
            tile, element = divmod(m, MX_PACK) if t.packed else (m, 0)
            dtype = DType.E4M3 if t.packed else DType.BF16
            dst = row(self.s_hidden[b][tile] + element, dtype, count, stride=MX_PACK if t.packed else 1)
            vector.tensor_scalar(
                dst,
                self._psum(count),
                AluOp.ADD,
                row(self.s_b1 + 4 * m, DType.FP32, 1),
                AluOp.MAX,
                0.0,
                parts=t.m,
                saturate=True,
                wait=self.ready.ge(self.tile + 1),
                update=self.done.add(),
            )
            self.tile += 1
        self.layer1_end.append(self.tile)

    def _layer2(self, c: int) -> None:
        t, b, count = self.t, c % BUFFERS, self.chunks[c][1]
        tensor, vector = self.program.tensor, self.program.vector
        tensor.label(f"layer2_chunk{c}")
        vector.label(f"layer2_chunk{c}")
        if c >= BUFFERS:
            vector.nop(wait=self.logits_free.ge((c - BUFFERS + 1) * len(t.out)))
        for o, (first, outputs) in enumerate(t.out):
            k_tiles = [
                (
                    row(self.s_w2[i] + first * t.element, t.dtype, outputs),
                    self._scales(self.s_w2s[i] + first, outputs),
                    row(self.s_hidden[b][i], t.dtype, count),
                    self._scales(self.s_scale, count, stride=0),
                )
                for i in range(t.k_tiles)
            ]
            self._product(k_tiles, outputs, count, done=self.layer1_end[c])
            vector.tensor_scalar(
                row(self.s_logits[b][o], DType.FP32, count),
                self._psum(count),
                AluOp.ADD,
                row(self.s_b2 + 4 * o, DType.FP32, 1),
                parts=outputs,
                wait=self.ready.ge(self.tile + 1),
                update=self.done.add(),
            )
            self.tile += 1
            self.layer2_end[c, o] = self.tile

    def _store_chunk(self, c: int, logits: int) -> None:
        start, count = self.chunks[c]
        for o, (first, outputs) in enumerate(self.t.out):
            self.program.sync.dma(
                core_address(self.core, Space.SBUF, 0, self.s_logits[c % BUFFERS][o]),
                memory_address(logits + 4 * (first * self.n + start)),
                row_bytes=4 * count,
                rows=outputs,
                src_stride=SBUF_PARTITION_STRIDE,
                dst_stride=4 * self.n,
                wait=self.done.ge(self.layer2_end[c, o]),
                update=self.logits_free.add(),
            )


def build(config: ChipConfig, net: Mlp, x: NDArray[np.float64], fmt: str) -> Job:
    """The image that classifies `x` [n, 64] on all cores. Raises WorkloadError when it does not fit the chip."""
    if len(x) < 1:
        raise WorkloadError(f"images must be at least 1, not {len(x)}")
    t = tiling(config, fmt)
    q = quantise(net, x, t)
    image = Image.empty(config)
    job = Job(image, [], [])
    memory = Allocator(config.memory.bytes, "memory", first=4096)
    for core, share in enumerate(np.array_split(np.arange(len(x)), min(config.cores, len(x)))):
        builder = _CoreBuilder(config, core, image, memory, q, x[share])
        logits = builder.build()
        image.add_output(logits, 4 * CLASSES * len(share))
        at = memory.take(
            sum(INSTR_BYTES * len(s.instructions) for s in builder.program.streams.values()), INSTR_BYTES
        )
        image.add_program(core, builder.program, at)
        job.programs.append(builder.program)
        job.results.append((logits, share))
    return job


def logits(job: Job, out: Image, count: int) -> NDArray[np.float32]:
    """FP32 logits [count, 10] from a resulting image."""
    result = np.zeros((count, CLASSES), dtype=np.float32)
    for address, share in job.results:
        raw = out.read(address, 4 * CLASSES * len(share))
        result[share] = np.frombuffer(raw, dtype="<f4").reshape(CLASSES, len(share)).T
    return result
