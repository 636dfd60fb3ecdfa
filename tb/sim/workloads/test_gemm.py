"""GEMM workload: operands, golden, refusals."""

import numpy as np
import pytest

from models.config import find
from models.formats import DType
from sim.workloads import gemm
from sim.workloads.layout import WorkloadError
from tb.sim.images import gemm_job, model

NANO = find("nano")


KINDS = [(f, False) for f in NANO.tensor.formats] + [(f, True) for f in NANO.tensor.double_row]


@pytest.mark.parametrize(("dtype", "double"), KINDS, ids=lambda v: getattr(v, "name", "double" * v))
def test_close_to_float64_and_run_by_the_model(dtype, double):
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((41, 6)), rng.standard_normal((41, 9))
    operands = [gemm.operand(dtype, v, double=double) for v in (x, y)]
    golden = gemm.golden(*operands, NANO)
    tolerance = {DType.BF16: 0.02, DType.E4M3: 0.15, DType.E4M3X4: 0.15, DType.E2M1X4: 0.6}[dtype]
    assert np.abs(golden - x.T @ y).max() < tolerance * 10
    job, want = gemm_job(dtype, (41, 6, 9), 5, double=double)
    machine = model(job.image)
    assert machine.cores[0].error is None
    assert np.array_equal(job.result(machine.outputs(job.image)).view("u4"), want.view("u4"))


def test_what_does_not_fit():
    a, b = (gemm.operand(DType.BF16, np.ones((k, 4))) for k in (8, 16))
    with pytest.raises(ValueError, match="K must be equal in both operands"):
        gemm.build(NANO, a, b)
    single, double = (gemm.operand(DType.E4M3, np.ones((k, 4)), double=k > 8) for k in (8, 16))
    with pytest.raises(ValueError, match="both operands must have double rows, or none"):
        gemm.build(NANO, single, double)
    big = gemm.operand(DType.BF16, np.ones((8, 30000)))
    with pytest.raises(WorkloadError, match="SBUF"):
        gemm.build(NANO, a, big)
