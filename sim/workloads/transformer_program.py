"""What the forward and the backward half of a transformer block share: places, products, transposes, RoPE, the causal triangle's patterns."""

from models.access import AccessPattern
from models.config import ChipConfig
from models.formats import DType, dtype_bytes
from models.functions import ActFunc
from models.isa import AluOp
from sim.workloads.dataflow import Dataflow
from sim.workloads.layout import Allocator
from sim.workloads.tiles import Matrix, Sums
from sim.workloads.transformer_shape import Shape

BF16, FP32 = DType.BF16, DType.FP32
ENOUGH = 64
"""Elements that an instruction of the vector engine should have at least: it takes 22 cycles beside them, and results wait for all of them."""


class BlockProgram:
    """Places by name in SBUF, and the steps that occur more than once.

    Activations [S, D] have positions on partitions; what a matmul needs with features there (name + "t") is transposed by a matmul with the identity,
    which is exact. Matrices of all heads are stacked: tile h * tiles + i has the rows of position tile i in head h.
    """

    def __init__(self, config: ChipConfig, s: Shape):
        self.s, self.flow, self.sums = s, Dataflow(config), Sums(config)
        sbuf = Allocator(config.sbuf.bytes_per_partition, "SBUF partition")
        n, d, f, square = s.sequence, s.width, s.hidden, s.heads * s.sequence
        sizes: dict[str, tuple[DType, int, int]] = {
            "eye": (BF16, s.p, s.p),
            "ones": (BF16, s.p, 1),
            "cos": (FP32, n, s.head),
            "sin": (FP32, n, s.head),
            "mask": (FP32, s.p, n),
        }
        sizes |= {key: (FP32, n, d) for key in ("x", "dy", "x2", "y", "dx2", "dx")}
        sizes |= {key: (FP32, max(rows, s.p), cols) for key, (rows, cols) in s.weights.items()}
        for key in ("wqkv", "wo", "wgu", "w2"):
            rows, cols = s.weights[key]
            sizes |= {f"{key}b": (BF16, rows, cols), f"{key}t": (BF16, cols, rows)}
        for key in ("1", "2"):
            sizes |= {f"unit{key}": (FP32, n, d), f"square{key}": (FP32, n, d), f"n{key}": (BF16, n, d)}
            sizes |= {f"inverse{key}": (FP32, n, 1), f"mean{key}": (FP32, n, 1), f"n{key}t": (BF16, d, n)}
            sizes |= {f"back{key}": (FP32, n, d), f"turn{key}": (FP32, n, d), f"share{key}": (BF16, n, d)}
        sizes |= {"rope": (FP32, n, 2 * d), "spun": (FP32, n, 2 * d)}
        for key in ("", "d"):
            sizes |= {f"{key}qkv": (BF16, n, 3 * d), f"{key}qkvt": (BF16, 3 * d, n)}
            sizes |= {f"{key}o": (BF16, n, d), f"{key}ot": (BF16, d, n)}
            sizes |= {f"{key}gu": (BF16, n, 2 * f), f"{key}gut": (BF16, 2 * f, n)}
            sizes |= {f"{key}pb": (BF16, square, n), f"{key}pt": (BF16, square, n)}
        sizes |= {key: (FP32, square, n) for key in ("z", "p", "dz")}
        sizes |= {key: (FP32, square, 1) for key in ("top", "sum", "part", "dot_rows")}
        sizes |= {key: (FP32, n, f) for key in ("gate", "up", "sigmoid", "silu", "slope", "da")}
        sizes |= {"a": (BF16, n, f), "at": (BF16, f, n)}
        for key in ("dy", "dx2"):
            sizes |= {f"{key}b": (BF16, n, d), f"{key}t": (BF16, d, n)}
        self.at = {
            key: Matrix(sbuf.take(rows // s.p * cols * dtype_bytes(dtype)), dtype, rows, cols, s.p)
            for key, (dtype, rows, cols) in sizes.items()
        }

    # --- products ------------------------------------------------------------------------------------------------
    def product(self, dst: Matrix, left: Matrix, right: Matrix) -> None:
        """dst [M, N] = left [K, M]^T right [K, N], in PSUM."""
        for m in range(dst.tiles):
            pairs = [(left.tile(k, m * self.s.p, self.s.p), right.tile(k)) for k in range(left.tiles)]
            self.flow.matmuls(dst.tile(m), pairs)

    def transpose(self, src: str, dst: str, *, scalar: bool = False) -> None:
        """dst [C, R] = src [R, C], both BF16; from PSUM by the vector engine, or the scalar engine if it has less to do."""
        a, b, p = self.at[src], self.at[dst], self.s.p
        step = max(1, ENOUGH // b.cols)
        with self.sums.take(b.rows, b.cols) as out:
            for first in range(0, b.tiles, step):
                some = range(first, min(first + step, b.tiles))
                for c in some:
                    for r in range(a.tiles):
                        pair = (a.tile(r, c * p, p), self.at["eye"].all())
                        self.flow.matmuls(out.tile(c, r * p, p), [pair])
                count = (1, len(some) * b.cols)
                self.drain(b.at(first * b.cols, count), out.at(first * b.cols, count), scalar=scalar)

    def drain(self, dst: AccessPattern, src: AccessPattern, *, scalar: bool = False) -> None:
        """dst = cast(src), by the vector or the scalar engine."""
        if scalar:
            self.flow.activate(dst, src, ActFunc.COPY)
        else:
            self.flow.copy(dst, src)

    def weight(self, name: str, *, scalar: bool = False) -> None:
        """A weight's BF16 copy."""
        self.drain(self.at[f"{name}b"].all(), self.at[name].all(), scalar=scalar)

    # --- heads ---------------------------------------------------------------------------------------------------
    def seen(self, i: int) -> int:
        """Positions that those of tile `i` may attend to: its own tile's and all before."""
        return (i + 1) * self.s.p

    def heads(self, m: Matrix, i: int) -> AccessPattern:
        """Rows of position tile `i`, in all heads, up to the last position seen (stacked square matrix)."""
        step = self.s.tiles * m.cols
        return m.at(i * m.cols, (step, self.s.heads), (1, self.seen(i)))

    def head_rows(self, m: Matrix, i: int, repeat: int | None = None) -> AccessPattern:
        """One element a head, of position tile `i` (stacked column); read `repeat` times each if that is given."""
        step = (self.s.tiles, self.s.heads)
        return m.at(i, step) if repeat is None else m.at(i, step, (0, repeat))

    def dots(self, out: Matrix, left: str, l0: int, right: str, r0: int) -> None:
        """Stacked out[h] [s, t] = left[s] . right[t] over head h's features, for t up to s's tile; features start at rows l0 and r0 of the transposes."""
        s, p = self.s, self.s.p
        steps = s.head // p
        for i in range(s.tiles):
            for h in range(s.heads):
                pairs = []
                for j in range(h * steps, (h + 1) * steps):
                    a, b = (
                        self.at[left].tile(l0 // p + j, i * p, p),
                        self.at[right].tile(r0 // p + j, 0, self.seen(i)),
                    )
                    pairs.append((a, b))
                self.flow.matmuls(out.tile(h * s.tiles + i, 0, self.seen(i)), pairs)

    def transpose_heads(self, src: str, dst: str, i: int, *, scalar: bool = False) -> None:
        """dst[h] = src[h]^T for the rows of position tile `i` and the positions they see."""
        s, p, a, b = self.s, self.s.p, self.at[src], self.at[dst]
        with self.sums.take(s.heads * self.seen(i), p) as out:
            for h in range(s.heads):
                for j in range(i + 1):
                    pair = (a.tile(h * s.tiles + i, j * p, p), self.at["eye"].all())
                    self.flow.matmuls(out.tile(h * (i + 1) + j), [pair])
            to = b.at(i * p, (s.tiles * b.cols, s.heads), (b.cols, i + 1), (1, p))
            self.drain(to, out.at(0, ((i + 1) * p, s.heads), (p, i + 1), (1, p)), scalar=scalar)

    def rotate(self, dst: Matrix, src: Matrix, op: AluOp) -> None:
        """RoPE of q and k in `src` [S, 3 D]: x cos + swap(x) sin, where swap exchanges the halves of each head and `sin` has the first half's sign
        changed; or, with SUB, its transpose.
        """
        s, half = self.s, self.s.head // 2
        heads, table = (s.head, 2 * s.heads), (0, 2 * s.heads)
        halves, swapped = ((half, 2), (1, half)), ((-half, 2), (1, half))
        for i in range(s.tiles):
            x, y = src.at(i * src.cols, heads, *halves), src.at(i * src.cols + half, heads, *swapped)
            rope, spun, out = (
                m.at(i * m.cols, heads, *halves) for m in (self.at["rope"], self.at["spun"], dst)
            )
            cos, sin = (self.at[name].at(i * s.head, table, *halves) for name in ("cos", "sin"))
            self.flow.tensor_tensor(rope, x, cos, AluOp.MUL)
            self.flow.tensor_tensor(spun, y, sin, AluOp.MUL)
            self.flow.tensor_tensor(out, rope, spun, op)
