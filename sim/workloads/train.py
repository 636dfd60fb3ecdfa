"""Training on the chip: a 64-64-10 perceptron, forward, loss, backward and SGD with momentum, step after step, in one program for core 0.

Sums, softmax, momentum and master weights are FP32; matmuls are BF16, or MXFP8 (E4M3) in all contractions over features, hidden units and samples: their
operands are quantised on the chip in blocks of 32 (the samples themselves by the host). The contraction over ten classes, shorter than a block, and biases
stay BF16. The learning rate is in the gradient of the logits: v = m v - g, w = w + v.

Activations have samples on partitions (hT, logits, dpre), in tiles of p, so that softmax runs along the free axis and weight gradients contract over
samples; the vector engine turns what has to have features on partitions. Parameters lie in one row a partition, [w1 | b1 | w2T | b2], biases repeated on
every partition, as FP32 weights, FP32 momentum and BF16 copy alike. Every step's samples are one block of memory, loaded while the step before runs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.config import ChipConfig
from models.image import Image
from models.isa import INSTR_BYTES
from sim.workloads.layout import Allocator, WorkloadError
from sim.workloads.mlp import CLASSES, HIDDEN, Digits, Mlp
from sim.workloads.operands import mx_operands
from sim.workloads.train_program import TrainProgram
from sim.workloads.train_shape import BF16, INPUTS, X4, Options, Shape, shape

UNWRITTEN = 0xFFFFFFFF
"""What the place of a loss holds before the chip writes it: a NaN that no engine makes."""


@dataclass(frozen=True, slots=True)
class Job:
    """The image, where its losses and final parameters are, and what was trained on."""

    image: Image
    shape: Shape
    options: Options
    losses: int
    params: int
    samples: NDArray[np.int64]

    def loss(self, memory: bytes, step: int) -> float:
        """Mean cross-entropy of a step, from the chip's memory contents at `losses`."""
        size = 4 * self.shape.batch
        return float(
            -np.frombuffer(memory[step * size : (step + 1) * size], dtype="<f4").astype(np.float64).mean()
        )

    def network(self, raw: bytes) -> Mlp:
        """The trained network from the words at `params`."""
        s = self.shape
        rows = np.frombuffer(raw, dtype="<f4").reshape(s.p, s.words).astype(np.float64)
        part = {name: rows[:, at : at + size] for name, (at, size) in s.starts.items()}
        w1 = part["w1"].reshape(s.p, s.packs, HIDDEN, s.pack).transpose(1, 3, 0, 2).reshape(-1, HIDDEN)
        w2 = part["w2t"].reshape(s.p, len(s.classes), HIDDEN).transpose(1, 0, 2).reshape(-1, HIDDEN).T
        return Mlp(w1[:INPUTS], part["b1"][0], w2[:, :CLASSES], part["b2"][0])


def initial(s: Shape, seed: int) -> NDArray[np.float32]:
    """Initial parameters FP32 [p, words] (He, biases 0)."""
    rng = np.random.default_rng(seed)
    out = np.zeros((s.p, s.words), dtype=np.float32)
    w1 = np.zeros((s.packs * s.pack * s.p, HIDDEN), dtype=np.float32)
    w1[:INPUTS] = rng.normal(0, np.sqrt(2 / INPUTS), (INPUTS, HIDDEN))
    w2t = np.zeros((s.pitch, HIDDEN), dtype=np.float32)
    w2t[:CLASSES] = rng.normal(0, np.sqrt(2 / HIDDEN), (CLASSES, HIDDEN))
    rows = {
        "w1": w1.reshape(s.packs, s.pack, s.p, HIDDEN).transpose(2, 0, 3, 1),
        "w2t": w2t.reshape(len(s.classes), s.p, HIDDEN).transpose(1, 0, 2),
    }
    for name, values in rows.items():
        at, size = s.starts[name]
        out[:, at : at + size] = values.reshape(s.p, size)
    return out


def _operand(tiles: NDArray[np.float64], pack: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """(words, scales) of [tiles, p, columns] as rows of p partitions, `pack` tiles a word; no tile is all padding but in the last word."""
    count, p, columns = tiles.shape
    if pack == 1:
        plain = cast.encode(BF16, tiles.astype(np.float32), saturate=False).astype("<u2")
        return tuple(row.tobytes() for row in plain.transpose(1, 0, 2)), (b"",) * p
    packs = -(-count // pack)
    padded = np.zeros((packs * pack, p, columns))
    padded[:count] = tiles
    x = mx_operands(padded.reshape(packs, pack, p, columns).transpose(0, 2, 1, 3), X4)
    scales = np.zeros((p, packs, columns), dtype=np.uint8)
    scales[: x.scales.shape[1]] = x.scales.transpose(1, 0, 2)
    return (
        tuple(row.tobytes() for row in x.words.astype("<u4").transpose(1, 0, 2)),
        tuple(row.tobytes() for row in scales),
    )


def _blocks(s: Shape, data: Digits, order: NDArray[np.int64], rate: float) -> bytes:
    """Each step's rows of samples, as train_places.Block has them; targets are times rate / batch."""
    out = []
    for pick in order.reshape(-1, s.batch):
        x = data.x[pick]
        words, scales = _operand(x.T.reshape(s.k, s.p, s.batch), s.pack)
        words_t, scales_t = _operand(x.reshape(s.tiles, s.p, INPUTS), s.pack)
        hot = (np.eye(CLASSES) * (rate / s.batch)).astype("<f4")[data.y[pick]]
        rows = hot.reshape(s.tiles, s.p, CLASSES).transpose(1, 0, 2)
        out += [
            b"".join((words[i], words_t[i], scales[i], scales_t[i], rows[i].tobytes())) for i in range(s.p)
        ]
    return b"".join(out)


def build(config: ChipConfig, data: Digits, options: Options) -> Job:
    """The image of a whole training run. Raises WorkloadError when it does not fit the chip."""
    s = shape(config, options)
    w = TrainProgram(config, s, options)
    size = w.at.block.size * s.p
    most = config.memory.bytes // (size + 4 * s.batch)
    if options.steps > most:
        raise WorkloadError(
            f"steps must be from 1 to {most}, their samples in a memory of {config.memory.bytes} bytes, not {options.steps!r}"
        )
    rng = np.random.default_rng(options.seed + 1)
    train = np.flatnonzero(~data.held_out)
    need_samples = options.steps * s.batch
    epochs = -(-need_samples // train.size)
    order = np.concatenate([rng.permutation(train) for _ in range(epochs)])[:need_samples]
    memory = Allocator(config.memory.bytes, "memory")
    params = memory.take(4 * s.p * s.words, INSTR_BYTES)
    losses = memory.take(4 * s.batch * options.steps, INSTR_BYTES)
    blocks = memory.take(size * options.steps, INSTR_BYTES)

    w.params(params)
    w.load(0, blocks)
    w.begin()
    for n in range(options.steps):
        if n + 1 < options.steps:
            w.load(n + 1, blocks + (n + 1) * size)
        w.step(n, losses + 4 * n * s.batch)
    w.params(params, out=True)
    program = w.flow.program
    program.finish()

    image = Image.empty(config)
    image.add(params, initial(s, options.seed).astype("<f4").tobytes())
    image.add(losses, UNWRITTEN.to_bytes(4, "little") * (s.batch * options.steps))
    image.add(blocks, _blocks(s, data, order, options.rate))
    total = sum(INSTR_BYTES * len(stream.instructions) for stream in program.streams.values())
    image.add_program(0, program, memory.take(total, INSTR_BYTES))
    image.add_output(losses, 4 * s.batch * options.steps)
    image.add_output(params, 4 * s.p * s.words)
    return Job(image, s, options, losses, params, order)
