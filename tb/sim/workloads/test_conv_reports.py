"""Field reports about softmax, layer normalisation, GELU, exp and rsqrt: their exact values through the chip's instructions and the network's.

Each runs on the functional model and on the chip, which must agree word for word.
"""

import dataclasses
import math

import numpy as np
import pytest

from models.access import row
from models.addressing import SBUF_PARTITION_STRIDE, core_address, memory_address
from models.formats import DType
from models.functions import ActFunc
from models.image import Image
from models.isa import AluOp, Space
from models.program import Program
from sim.run import run_image
from sim.workloads import conv
from sim.workloads.conv_shape import Options
from sim.workloads.marks import Marks, need
from tb.sim.images import NANO, model

FP32 = DType.FP32
INF = float("inf")
BIG = 3e38
ONE, NAN = "3f800000", "7fc00000"


def both(image):
    """Outputs of the functional model, which the chip's must equal."""
    machine = model(image)
    assert machine.cores[0].error is None
    want = machine.outputs(image)
    result = run_image(NANO, image)
    assert result.cores[0].error is None
    assert result.outputs.segments == want.segments
    return want


def codes(values) -> list[str]:
    """FP32 codes, eight digits each."""
    return [f"{int(v):08x}" for v in np.asarray(values, dtype=np.float32).view(np.uint32).ravel()]


class Bench:
    """Rows of FP32 numbers, one on each partition, through instructions of the vector and scalar engines, and back."""

    def __init__(self, rows):
        self.rows = np.array(rows, dtype="<f4")
        self.parts, self.columns = self.rows.shape
        self.p = Program(NANO)
        self.mv, self.ma = (Marks(self.p.semaphore(n)) for n in ("vector", "scalar"))
        self.loaded = Marks(self.p.semaphore("loaded"))
        self.size = 4 * self.columns
        self._dma(
            memory_address(0x1000), self._sbuf(), (self.size, SBUF_PARTITION_STRIDE), self.loaded.mark()
        )
        need(self.p.vector, self.loaded.here())
        need(self.p.scalar, self.loaded.here())

    def _sbuf(self, place: int = 0) -> int:
        return core_address(0, Space.SBUF, 0, place * self.size)

    def _dma(self, src, dst, strides, update=None):
        self.p.sync.dma(
            src,
            dst,
            row_bytes=self.size,
            rows=self.parts,
            src_stride=strides[0],
            dst_stride=strides[1],
            update=update,
        )

    def at(self, place: int, columns: int | None = None):
        """The pattern of a row's place; the rows come in at place 0."""
        return row(place * self.size, FP32, self.columns if columns is None else columns)

    def vector(self, method: str, *args, **more):
        """A vector instruction, after all of the scalar engine so far."""
        need(self.p.vector, self.ma.here())
        getattr(self.p.vector, method)(*args, parts=self.parts, update=self.mv.mark(), **more)

    def activate(self, *args, **more):
        """A scalar instruction, after all of the vector engine so far."""
        need(self.p.scalar, self.mv.here())
        self.p.scalar.activate(*args, parts=self.parts, update=self.ma.mark(), **more)

    def result(self, place: int) -> np.ndarray:
        """The rows of a place, by model and chip."""
        need(self.p.sync, self.mv.here(), self.ma.here())
        self._dma(self._sbuf(place), memory_address(0x8000), (SBUF_PARTITION_STRIDE, self.size))
        self.p.finish()
        image = Image.empty(NANO)
        image.add(0x1000, self.rows.tobytes())
        image.add_output(0x8000, self.rows.nbytes)
        image.add_program(0, self.p, 0x10000)
        return np.frombuffer(both(image).segments[0][1], dtype="<f4").reshape(self.rows.shape)


def activated(function: ActFunc, values, **more) -> np.ndarray:
    """A function of a row of values."""
    bench = Bench([values])
    bench.activate(bench.at(1), bench.at(0), function, **more)
    return bench.result(1)[0]


# --- A10 -------------------------------------------------------------------------------------------------------------
def test_exp_of_far_arguments():
    """Field report A10: 2**i built by writing i + 127 unguarded gave exp(-100) = -4.3e33 and exp(89.5) = -0."""
    x = [-100, -88.5, 89.5, 100, INF, -INF, -0.0]
    want = ["0000001b", "0027fce2", "7f800000", "7f800000", "7f800000", "00000000", ONE]
    assert codes(activated(ActFunc.EXP, x)) == want
    half = [v / 2 for v in x]
    assert codes(activated(ActFunc.EXP, half, scale=2.0)) == want, "an argument that only the scale takes far"
    assert codes(activated(ActFunc.EXP, [v + 1 for v in x[:4]], bias=-1.0)) == want[:4]


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (ActFunc.SIGMOID, 0.0, 1.0),
        (ActFunc.TANH, -1.0, 1.0),
        (ActFunc.ERF, -1.0, 1.0),
        (ActFunc.SOFTPLUS, 0.0, INF),
    ],
)
def test_what_is_made_of_exp_stays_in_range(function, low, high):
    """Field report A10, the same kind elsewhere: no sign and no size that the function has not."""
    x = [-BIG, -1e4, -100, -88.5, -87.4, 87.4, 88.5, 89.5, 100, 1e4, BIG]
    got = activated(function, x)
    assert (got >= low).all()
    assert (got <= high).all()
    assert (np.diff(got) >= 0).all()
    assert got[0] == low
    assert got[-1] == (np.float32(BIG) if high == INF else high)


# --- A11 -------------------------------------------------------------------------------------------------------------
def classified(row_of_logits, label: int):
    """Softmax as the network's gradient has it, and the loss, of one image with these logits."""
    classes = len(row_of_logits)
    o = Options(1, channels=1, filters=1, height=1, width=1, classes=classes)
    d = conv.draw(o, 0)
    d = dataclasses.replace(d, wc=np.zeros_like(d.wc), bc=np.array(row_of_logits), labels=np.array([label]))
    job = conv.build(NANO, o, d)
    out = both(job.image)
    assert codes(job.tensor(out, "logits")) == codes(row_of_logits)
    return codes(job.tensor(out, "gradient")), codes(job.tensor(out, "loss"))


def test_softmax_of_rows_with_infinities():
    """Field report A11: -inf - (-inf). A whole row of -inf is NaN, as in ONNX Softmax; single ones are shares of 0."""
    gradient, loss = classified([-INF] * 4, 1)
    assert gradient == [NAN] * 4
    assert loss == [NAN]
    gradient, loss = classified([-INF, 0, 0, -INF], 1)
    assert gradient == codes([0, 0.5 - 1, 0.5, 0])
    assert loss == codes([math.log(2)])
    gradient, loss = classified([BIG, -BIG, 0, 0], 0)
    assert gradient == codes([1 - 1, 0, 0, 0])
    assert loss == codes([0])
    gradient, loss = classified([-INF, 0, 0, -INF], 3)
    assert gradient == codes([0, 0.5, 0.5, 0 - 1])
    assert loss == codes([INF]), "a label that is masked has no share, and an infinite loss"


@pytest.mark.parametrize(("masked_rows", "first"), [("nan", [NAN] * 4), ("zero", ["00000000"] * 4)])
def test_softmax_of_attention(masked_rows, first):
    """Field report A11: a fully masked row of attention is 0 where the largest value and the sum are kept finite, and NaN where not."""
    bench = Bench([[-INF] * 4, [-INF, 0, 0, -INF], [BIG, -BIG, 0, 0]])
    minus_top, total = bench.at(1, 1), bench.at(2, 1)
    bench.vector("tensor_reduce", minus_top, bench.at(0), AluOp.MAX, negate=True)
    if masked_rows == "zero":
        bench.vector("tensor_scalar", minus_top, minus_top, AluOp.MIN, float(np.finfo(np.float32).max))
    bench.activate(bench.at(3), bench.at(0), ActFunc.EXP, bias=minus_top)
    bench.vector("tensor_reduce", total, bench.at(3), AluOp.ADD)
    if masked_rows == "zero":
        bench.vector("tensor_scalar", total, total, AluOp.MAX, 2.0**-126)
    bench.activate(total, total, ActFunc.RECIPROCAL)
    bench.vector("tensor_scalar", bench.at(3), bench.at(3), AluOp.MUL, total)
    got = bench.result(3)
    assert codes(got[0]) == first
    assert codes(got[1:]) == codes([[0, 0.5, 0.5, 0], [1, 0, 0, 0]])


# --- A12 -------------------------------------------------------------------------------------------------------------
def test_gelu_of_far_arguments():
    """Field report A12: NaN for x < -13 or > 11 (x**3 overflowed exp), gelu(-100) = 2.2 (a fit of tanh up to 1.044)."""
    x = [11, -11, 13.25, -13.25, 100, -100, BIG, -BIG]
    tanh_form = activated(ActFunc.GELU_TANH, x)
    assert codes(np.abs(tanh_form)) == codes([11, 0, 13.25, 0, 100, 0, BIG, 0])
    exact_form = activated(ActFunc.GELU, x)
    assert codes(exact_form[::2]) == codes(x[::2])
    # x Phi(x) of -11 and -13.25 is no zero yet
    far = [v * math.erfc(-v / math.sqrt(2)) / 2 for v in (-11.0, -13.25)]
    assert exact_form[[1, 3]] == pytest.approx(far, rel=2e-7)
    assert codes(np.abs(exact_form[[5, 7]])) == codes([0, 0])


@pytest.mark.parametrize(
    "function", [ActFunc.GELU, ActFunc.GELU_TANH, ActFunc.SILU, ActFunc.MISH], ids=lambda f: f.name.lower()
)
def test_gelu_and_its_kind_are_never_positive_below_zero(function):
    """Field report A12, over all sizes of negative numbers and for what else is x times a share of 0 to 1: no NaN, no sign change."""
    x = -np.logspace(-38, 38.4, 400)
    got = activated(function, x)
    assert not np.isnan(got).any()
    assert (got <= 0).all()
    assert (got > -0.31).all()
    up = activated(function, -x)
    assert (up >= 0).all()
    assert (up <= (-x).astype(np.float32)).all()


# --- A13 -------------------------------------------------------------------------------------------------------------
def test_rsqrt_of_zeros_and_infinities():
    """Field report A13: a Newton step of 0 * inf made rsqrt(0) and rsqrt(inf) NaN."""
    want = ["7f800000", "ff800000", "00000000", NAN]
    assert codes(activated(ActFunc.RSQRT, [0.0, -0.0, INF, -1.0])) == want


@pytest.mark.parametrize("epsilon", [1e-5, 1e-12])
@pytest.mark.parametrize("value", [2.0, 0.0])
@pytest.mark.parametrize(("filters", "height", "width"), [(1, 2, 3), (2, 1, 3), (6, 1, 1)])
def test_layer_normalisation_of_a_constant(filters, height, width, value, epsilon):
    """Field report A13: six equal numbers gave NaN where epsilon was lost. They are six zeros, however they lie on partitions and pixels."""
    o = Options(
        1,
        channels=1,
        filters=filters,
        height=height,
        width=width,
        kernel=1,
        padding=0,
        classes=2,
        epsilon=epsilon,
    )
    d = conv.draw(o, 0)
    fixed = {"x": value, "w": 1.0, "bias": 0.0, "gain": 1.0, "shift": 0.0}
    d = dataclasses.replace(d, **{n: np.full_like(getattr(d, n), v) for n, v in fixed.items()})
    job = conv.build(NANO, o, d)
    out = both(job.image)
    assert codes(job.tensor(out, "conv")) == codes([value] * 6)
    assert codes(job.tensor(out, "norm")) == ["00000000"] * 6
    assert not np.isnan(job.tensor(out, "loss")).any()


@pytest.mark.parametrize("epsilon", [1e-5, 1e-12])
def test_rms_normalisation_of_a_constant(epsilon):
    """Field report A13: RMSNorm of [2] * 6 is six ones (less what epsilon takes), that of [0] * 6 six zeros."""
    bench = Bench([[2.0] * 6, [0.0] * 6])
    total = bench.at(2, 1)
    bench.vector("tensor_tensor", bench.at(1), bench.at(0), bench.at(0), AluOp.MUL)
    bench.vector("tensor_reduce", total, bench.at(1), AluOp.ADD)
    bench.activate(total, total, ActFunc.RSQRT, scale=1 / 6, bias=epsilon)
    bench.vector("tensor_scalar", bench.at(1), bench.at(0), AluOp.MUL, total)
    got = bench.result(1)
    assert codes(got[0]) == codes([2 / math.sqrt(4 + epsilon)]) * 6
    assert epsilon > 1e-6 or codes(got[0]) == [ONE] * 6
    assert codes(got[1]) == ["00000000"] * 6
