"""Backward half of the transformer block: gradients of every weight and of the input, each stored as soon as it is there."""

import math

from models.access import AccessPattern
from models.functions import ActFunc
from models.isa import AluOp
from sim.workloads import transformer_forward as forward
from sim.workloads.tiles import Matrix
from sim.workloads.transformer_program import BlockProgram

Places = dict[str, int]
"""Byte addresses of results in memory."""


def gradient(w: BlockProgram, name: str, left: str, right: str, out: Places) -> None:
    """Gradient of a projection, left^T right, over positions; from PSUM straight to memory, a tile of its rows after the other."""
    a, b, p = w.at[left], w.at[right], w.s.p
    for m in range(a.cols // p):
        with w.sums.take(p, b.cols) as g:
            pairs = [(a.tile(k, m * p, p), b.tile(k)) for k in range(a.tiles)]
            w.flow.matmuls(g.all(), pairs)
            w.flow.store(g, out[f"d{name}"] + 4 * m * p * b.cols)


def norm_back(w: BlockProgram, dn: Matrix, key: str, other: str, dst: str, out: Places) -> None:
    """RMSNorm number `key` from its output's gradient `dn` (in PSUM): dst = its input's gradient + `other`; the gain's gradient goes to memory."""
    s, flow, at, d = w.s, w.flow, w.at, w.s.width
    unit, back, turn, share = (at[f"{n}{key}"] for n in ("unit", "back", "turn", "share"))
    mean, inverse = at[f"mean{key}"], at[f"inverse{key}"]

    def rows(m: Matrix) -> AccessPattern:
        return m.columns(0, d)

    flow.tensor_tensor(rows(back), rows(dn), at[f"gain{key}"].per_column(s.tiles), AluOp.MUL)
    flow.tensor_tensor(share.all(), dn.all(), unit.all(), AluOp.MUL)
    flow.tensor_tensor(turn.all(), back.all(), unit.all(), AluOp.MUL)
    flow.reduce(mean.all(), rows(turn), AluOp.ADD)
    flow.scalar_tensor_tensor(rows(turn), rows(unit), AluOp.MUL, 1 / d, AluOp.MUL, mean.per_row(d))
    flow.tensor_tensor(back.all(), back.all(), turn.all(), AluOp.SUB)
    flow.tensor_tensor(rows(back), rows(back), inverse.per_row(d), AluOp.MUL)
    flow.tensor_tensor(at[dst].all(), back.all(), at[other].all(), AluOp.ADD)
    with w.sums.take(s.p, d) as g:
        pairs = [(at["ones"].all(), share.tile(i)) for i in range(s.tiles)]
        flow.matmuls(g.all(), pairs, 1)
        flow.store(g, out[f"dgain{key}"], rows=1)


def mlp(w: BlockProgram, out: Places) -> None:
    """From dy to dx2 (and its BF16 copy), the gradient of the MLP's input. The block's output y is not on the way there and is made while RMSNorm's gradient takes its time."""
    s, flow, at, f = w.s, w.flow, w.at, w.s.hidden
    for i in range(s.tiles):
        da = at["da"].tile(i)
        flow.tensor_tensor(at["dgu"].tile(i, 0, f), da, at["slope"].tile(i), AluOp.MUL)
        flow.tensor_tensor(at["dgu"].tile(i, f, f), da, at["silu"].tile(i), AluOp.MUL)
    w.transpose("dgu", "dgut")
    with w.sums.take(s.sequence, s.width) as dn, w.sums.take(s.sequence, s.width) as y:
        w.product(dn, at["dgut"], at["wgut"])
        forward.output(w, y)
        gradient(w, "w2", "a", "dyb", out)
        norm_back(w, dn, "2", "dy", "dx2", out)
        flow.copy(at["dx2b"].all(), at["dx2"].all())
        flow.tensor_tensor(at["y"].all(), y.all(), at["x2"].all(), AluOp.ADD)
        flow.store(at["y"], out["y"])


def attention(w: BlockProgram, out: Places) -> None:
    """From dx2 to dx, the gradient of the block's input."""
    s, flow, at, d = w.s, w.flow, w.at, w.s.width
    w.transpose("dx2b", "dx2t")
    with w.sums.take(s.sequence, d) as do:
        w.product(do, at["dx2t"], at["wot"])
        flow.copy(at["do"].all(), do.all())
    w.transpose("do", "dot")
    with w.sums.take(s.sequence, 3 * d) as g:
        with w.sums.take(s.heads * s.sequence, s.sequence) as dp:
            w.dots(dp, "dot", 0, "qkvt", 2 * d)
            for i in range(s.tiles):
                softmax_back(w, w.heads(dp, i), i)
        # what does not need the scores' gradients, while the vector engine makes them
        for i in range(s.tiles):
            values_back(w, g, i)
        gradient(w, "wo", "o", "dx2b", out)
        gradient(w, "wgu", "n2", "dgu", out)
        for i in range(s.tiles):
            w.transpose_heads("dpb", "dpt", i, scalar=True)
        for i in range(s.tiles):
            queries_back(w, g, i)
        w.rotate(at["dqkv"], g, AluOp.SUB)
        flow.activate(at["dqkv"].columns(2 * d, d), g.columns(2 * d, d), ActFunc.COPY)
    w.transpose("dqkv", "dqkvt")
    with w.sums.take(s.sequence, d) as dn:
        w.product(dn, at["dqkvt"], at["wqkvt"])
        gradient(w, "wqkv", "n1", "dqkv", out)
        norm_back(w, dn, "1", "dx2", "dx", out)


def softmax_back(w: BlockProgram, dp: AccessPattern, i: int) -> None:
    """Gradient of the scores of position tile `i`, p (dp - p . dp) scaled, in BF16."""
    flow, at = w.flow, w.at
    p, z = w.heads(at["p"], i), w.heads(at["dz"], i)
    dot = at["dot_rows"]
    flow.tensor_tensor(z, dp, p, AluOp.MUL)
    flow.reduce(w.head_rows(dot, i), z, AluOp.ADD)
    flow.tensor_tensor(z, dp, w.head_rows(dot, i, w.seen(i)), AluOp.SUB)
    scale = 1 / math.sqrt(w.s.head)
    flow.scalar_tensor_tensor(w.heads(at["dpb"], i), z, AluOp.MUL, scale, AluOp.MUL, p)


def values_back(w: BlockProgram, g: Matrix, i: int) -> None:
    """Gradients of v of position tile `i`, into the last third of `g`."""
    s, at, d, p = w.s, w.at, w.s.width, w.s.p
    for h in range(s.heads):
        first, row = h * s.head, h * s.tiles
        pairs = [
            (at["pb"].tile(row + j, i * p, p), at["do"].tile(j, first, s.head)) for j in range(i, s.tiles)
        ]
        w.flow.matmuls(g.tile(i, 2 * d + first, s.head), pairs)


def queries_back(w: BlockProgram, g: Matrix, i: int) -> None:
    """Gradients of q and k of position tile `i`, as they are after RoPE, into the first two thirds of `g`."""
    s, at, d, p = w.s, w.at, w.s.width, w.s.p
    for h in range(s.heads):
        first, row, width = h * s.head, h * s.tiles, s.head
        dq = [(at["dpt"].tile(row + j, i * p, p), at["qkv"].tile(j, d + first, width)) for j in range(i + 1)]
        dk = [(at["dpb"].tile(row + j, i * p, p), at["qkv"].tile(j, first, width)) for j in range(i, s.tiles)]
        w.flow.matmuls(g.tile(i, first, width), dq)
        w.flow.matmuls(g.tile(i, d + first, width), dk)
