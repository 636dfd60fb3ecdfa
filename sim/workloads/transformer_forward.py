"""Forward half of the transformer block. Its text interleaves what the tensor engine can do while the scalar engine is busy with exponentials."""

import math

from models.functions import ActFunc
from models.isa import AluOp
from sim.workloads.tiles import Matrix
from sim.workloads.transformer_program import BlockProgram
from sim.workloads.transformer_shape import EPSILON


def norm(w: BlockProgram, source: str, key: str) -> None:
    """RMSNorm number `key` of `source`: unit = x / rms, n = unit * gain in BF16, and n's transpose."""
    s, flow, at = w.s, w.flow, w.at
    x, unit, square = at[source], at[f"unit{key}"], at[f"square{key}"]
    mean, inverse = at[f"mean{key}"], at[f"inverse{key}"]
    flow.tensor_tensor(square.all(), x.all(), x.all(), AluOp.MUL)
    flow.reduce(mean.all(), square.columns(0, s.width), AluOp.ADD)
    flow.activate(inverse.all(), mean.all(), ActFunc.RSQRT, scale=1 / s.width, bias=EPSILON)
    flow.tensor_tensor(unit.columns(0, s.width), x.columns(0, s.width), inverse.per_row(s.width), AluOp.MUL)
    n = at[f"n{key}"]
    gain = at[f"gain{key}"].per_column(s.tiles)
    flow.tensor_tensor(n.columns(0, s.width), unit.columns(0, s.width), gain, AluOp.MUL)
    w.transpose(f"n{key}", f"n{key}t")


def attention(w: BlockProgram) -> None:
    """Projections, RoPE, causal softmax attention and its projection, added to the input: x2."""
    s, flow, at, d = w.s, w.flow, w.at, w.s.width
    flow.memset(at["p"].all(), 0.0)  # later positions, which no one computes, but which are results
    norm(w, "x", "1")
    w.weight("wqkv", scalar=True)
    with w.sums.take(s.sequence, 3 * d) as out:
        w.product(out, at["n1t"], at["wqkvb"])
        flow.activate(at["qkv"].columns(2 * d, d), out.columns(2 * d, d), ActFunc.COPY)
        w.rotate(at["qkv"], out, AluOp.ADD)
    w.transpose("qkv", "qkvt")
    with w.sums.take(s.heads * s.sequence, s.sequence) as scores:
        w.dots(scores, "qkvt", 0, "qkvt", d)
        for i in range(s.tiles):
            n = w.seen(i)
            mask = at["mask"].at(s.sequence - n, (0, s.heads), (1, n))
            z, scale = w.heads(at["z"], i), 1 / math.sqrt(s.head)
            flow.scalar_tensor_tensor(z, w.heads(scores, i), AluOp.MUL, scale, AluOp.ADD, mask)
            flow.reduce(w.head_rows(at["top"], i), z, AluOp.MAX, negate=True)
            for h in range(s.heads):
                row = h * s.tiles + i
                e = at["z"].tile(row, 0, n)
                flow.activate(e, e, ActFunc.EXP, bias=at["top"].tile(row))
    meanwhile(w)
    for i in range(s.tiles):
        n = w.seen(i)
        z, p = w.heads(at["z"], i), w.heads(at["p"], i)
        flow.reduce(w.head_rows(at["sum"], i), z, AluOp.ADD)
        part = w.head_rows(at["part"], i)
        flow.activate(part, w.head_rows(at["sum"], i), ActFunc.RECIPROCAL)
        each = w.head_rows(at["part"], i, n)
        flow.tensor_tensor(w.heads(at["pb"], i), z, each, AluOp.MUL)
        flow.tensor_tensor(p, z, each, AluOp.MUL)
        w.transpose_heads("pb", "pt", i)
    with w.sums.take(s.sequence, d) as out:
        for i in range(s.tiles):
            for h in range(s.heads):
                first = h * s.head
                pairs = [
                    (
                        at["pt"].tile(h * s.tiles + j, i * s.p, s.p),
                        at["qkv"].tile(j, 2 * d + first, s.head),
                    )
                    for j in range(i + 1)
                ]
                flow.matmuls(out.tile(i, first, s.head), pairs)
        flow.copy(at["o"].all(), out.all())
    w.transpose("o", "ot")
    with w.sums.take(s.sequence, d) as out:
        w.product(out, at["ot"], at["wob"])
        flow.tensor_tensor(at["x2"].all(), out.all(), at["x"].all(), AluOp.ADD)


def meanwhile(w: BlockProgram) -> None:
    """Weights that are used later (those of w2 after the sigmoid has begun), while the softmax waits for exponentials; the vector engine has time too."""
    for name in ("wo", "wgu"):
        w.weight(name)
        w.transpose(f"{name}b", f"{name}t")


def mlp(w: BlockProgram) -> None:
    """SwiGLU up to a = silu(gate) * up; and slope = silu'(gate) * up, which the backward half needs."""
    s, flow, at, f = w.s, w.flow, w.at, w.s.hidden
    norm(w, "x2", "2")
    with w.sums.take(s.sequence, 2 * f) as out:
        w.product(out, at["n2t"], at["wgub"])
        for i in range(s.tiles):
            flow.activate(at["sigmoid"].tile(i), out.tile(i, 0, f), ActFunc.SIGMOID)
        flow.copy(at["gate"].all(), out.columns(0, f))
        flow.copy(at["up"].all(), out.columns(f, f))
    upstream(w)
    for i in range(s.tiles):
        gate, up, sigmoid, silu, slope = (
            at[name].tile(i) for name in ("gate", "up", "sigmoid", "silu", "slope")
        )
        flow.tensor_tensor(silu, gate, sigmoid, AluOp.MUL)
        # silu' = sigmoid + silu (1 - sigmoid) = sigmoid - (sigmoid - 1) silu
        flow.scalar_tensor_tensor(slope, sigmoid, AluOp.SUB, 1.0, AluOp.MUL, silu)
        flow.tensor_tensor(slope, sigmoid, slope, AluOp.SUB)
        flow.tensor_tensor(slope, slope, up, AluOp.MUL)
        flow.tensor_tensor(at["a"].tile(i), silu, up, AluOp.MUL)


def output(w: BlockProgram, y: Matrix) -> None:
    """The MLP's result in PSUM."""
    w.transpose("a", "at", scalar=True)
    w.product(y, w.at["at"], w.at["w2b"])


def upstream(w: BlockProgram) -> None:
    """What the backward half can do without the forward half, while the sigmoid takes its time: the gradient of the MLP's inner activations."""
    s, flow, at = w.s, w.flow, w.at
    w.weight("w2")
    w.transpose("w2b", "w2t")
    flow.copy(at["dyb"].all(), at["dy"].all())
    w.transpose("dyb", "dyt")
    with w.sums.take(s.sequence, s.hidden) as out:
        w.product(out, at["dyt"], at["w2t"])
        flow.copy(at["da"].all(), out.all())
    w.transpose("wqkvb", "wqkvt")
