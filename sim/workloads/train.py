"""Training on the chip: a 64-64-10 perceptron, forward, loss, backward and SGD with momentum, step after step, in one program for core 0.

Activations have the batch on partitions (`hT`, logits, `dpre`), in tiles of P samples, so that softmax runs along the free axis and weight gradients
contract over samples; the tensor engine transposes what has to have features on partitions, by multiplying with the identity, which is exact. Matmuls are
BF16, sums, momentum and master weights FP32. The learning rate is in the gradient of the logits: v = m v - g, w = w + v.

All parameters lie in one row a partition, [W1 | b1 | W2 | b2], biases repeated on every partition, as FP32 weights, FP32 momentum and BF16 copy
alike; gradients have the same places in PSUM, and the update is a few long vector instructions. Every step's samples are one block of memory,
loaded while the step before runs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import cast
from models.config import ChipConfig
from models.image import Image
from models.isa import INSTR_BYTES, AluOp
from sim.workloads.layout import Allocator
from sim.workloads.marks import need
from sim.workloads.mlp import CLASSES, HIDDEN, Digits, Mlp
from sim.workloads.train_program import TrainProgram
from sim.workloads.train_shape import BF16, FP32, INPUTS, Options, Shape, shape

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

        def matrix(x: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
            return x.reshape(s.p, s.k, columns).transpose(1, 0, 2).reshape(INPUTS, columns)

        return Mlp(matrix(part["w1"], HIDDEN), part["b1"][0], matrix(part["w2"], CLASSES), part["b2"][0])


def initial(s: Shape, seed: int) -> NDArray[np.float32]:
    """Initial parameters FP32 [p, words] (He, biases 0)."""
    rng = np.random.default_rng(seed)
    out = np.zeros((s.p, s.words), dtype=np.float32)
    for name, columns in (("w1", HIDDEN), ("w2", CLASSES)):
        w = rng.normal(0, np.sqrt(2 / INPUTS), (s.k, s.p, columns)).astype(np.float32)
        at, size = s.starts[name]
        out[:, at : at + size] = w.transpose(1, 0, 2).reshape(s.p, size)
    return out


def _blocks(s: Shape, data: Digits, order: NDArray[np.int64]) -> bytes:
    """Each step's [P, x BF16 [k, batch] | xT BF16 [tiles, 64] | onehot FP32 [tiles, 10]]."""
    out = []
    for pick in order.reshape(-1, s.batch):
        x = cast.encode(BF16, data.x[pick].astype(np.float32), saturate=False).astype("<u2")
        feature = x.T.reshape(s.k, s.p, s.batch).transpose(1, 0, 2)
        sample = x.reshape(s.tiles, s.p, INPUTS).transpose(1, 0, 2)
        hot = np.eye(CLASSES, dtype="<f4")[data.y[pick]].reshape(s.tiles, s.p, CLASSES).transpose(1, 0, 2)
        out += [feature[i].tobytes() + sample[i].tobytes() + hot[i].tobytes() for i in range(s.p)]
    return b"".join(out)


def build(config: ChipConfig, data: Digits, options: Options) -> Job:
    """The image of a whole training run. Raises WorkloadError when it does not fit the chip."""
    s = shape(config, options)
    w = TrainProgram(config, s, options)
    rng = np.random.default_rng(options.seed + 1)
    train = np.flatnonzero(~data.held_out)
    need_samples = options.steps * s.batch
    epochs = -(-need_samples // train.size)
    order = np.concatenate([rng.permutation(train) for _ in range(epochs)])[:need_samples]
    memory = Allocator(config.memory.bytes, "memory")
    params = memory.take(4 * s.p * s.words, INSTR_BYTES)
    constants = memory.take(4 * s.p * s.p, INSTR_BYTES)
    losses = memory.take(4 * s.batch * options.steps, INSTR_BYTES)
    blocks = memory.take(w.block * s.p * options.steps, INSTR_BYTES)

    w.copy("w", params, 4 * s.words)
    w.copy("eye", constants, 2 * s.p)
    w.copy("ones", constants + 2 * s.p * s.p, 2 * s.p, update=w.md.mark())
    need(w.v, w.md.here())
    whole = (1, s.words)
    w.v.tensor_scalar(w.sb("v", FP32, 0, whole), w.sb("w", FP32, 0, whole), AluOp.MUL, 0.0, parts=s.p)
    w.v.tensor_copy(w.sb("wb", BF16, 0, whole), w.sb("w", FP32, 0, whole), parts=s.p, update=w.mv.mark())
    for n in range(options.steps):
        w.step(n, blocks + n * w.block * s.p, losses + 4 * n * s.batch)
    need(w.d, w.mv.here())
    w.copy("w", params, 4 * s.words, out=True)
    w.program.finish()

    image = Image.empty(config)
    image.add(params, initial(s, options.seed).astype("<f4").tobytes())
    eye = cast.encode(BF16, np.eye(s.p, dtype=np.float32), saturate=False).astype("<u2")
    ones = cast.encode(BF16, np.ones((s.p, s.p), dtype=np.float32), saturate=False).astype("<u2")
    image.add(constants, eye.tobytes() + ones.tobytes())
    image.add(losses, UNWRITTEN.to_bytes(4, "little") * (s.batch * options.steps))
    image.add(blocks, _blocks(s, data, order))
    total = sum(INSTR_BYTES * len(stream.instructions) for stream in w.program.streams.values())
    image.add_program(0, w.program, memory.take(total, INSTR_BYTES))
    image.add_output(losses, 4 * s.batch * options.steps)
    image.add_output(params, 4 * s.p * s.words)
    return Job(image, s, options, losses, params, order)
