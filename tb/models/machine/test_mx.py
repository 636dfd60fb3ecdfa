"""Functional model: MX_SCALE and MX_CAST against the golden quantisation, and through a matmul."""

import numpy as np
import pytest

from models import cast
from models.access import AccessPattern, row
from models.formats import E8M0_NAN, MX_PACK, MX_ROWS, PACKED, DType, MxRule
from models.isa import Space
from models.program import Program, ProgramError
from tb.models.machines import FULL, SEED, get, put, run

N = 6
SRC, DST, SCALE = 0, 2048, 3072


def _numbers(parts, seed):
    rng = np.random.default_rng([SEED, seed])
    x = rng.standard_normal((parts, MX_PACK * N)) * 2.0 ** rng.integers(-140, 120, (parts, 1))
    x = x.astype(np.float32)
    x[:MX_ROWS, :MX_PACK] = [0.0, -0.0, 0.0, -0.0]  # an all-zero block
    x[3, MX_PACK] = np.inf
    x[2, 2 * MX_PACK] = np.nan
    x[:MX_ROWS, 3 * MX_PACK : 4 * MX_PACK] = np.float32(1e-45)
    return x


def _golden(x, dtype, rule):
    """(words [parts, N], scales [groups, N])."""
    groups = x.shape[0] // MX_ROWS
    blocks = x.reshape(groups, MX_ROWS, N, MX_PACK).transpose(0, 2, 1, 3).reshape(groups, N, -1)
    codes, scales = cast.quantize_mx(blocks, dtype, rule=rule.name.lower())
    codes = codes.reshape(groups, N, MX_ROWS, MX_PACK).transpose(0, 2, 1, 3)
    return cast.pack_x4(dtype, codes).reshape(x.shape[0], N), scales


@pytest.mark.parametrize("rule", list(MxRule), ids=lambda r: r.name)
@pytest.mark.parametrize("dtype", list(PACKED), ids=lambda d: d.name)
@pytest.mark.parametrize("parts", [8, 16])
def test_quantize_is_the_golden_one(dtype, rule, parts):
    x = _numbers(parts, int(dtype))
    words, scales = _golden(x, dtype, rule)
    p = Program(FULL)
    kind = "u2" if dtype == DType.E2M1X4 else "u4"
    p.vector.quantize_mx(
        row(DST, dtype, N), row(SCALE, DType.E8M0, N), row(SRC, DType.FP32, 4 * N), parts=parts, rule=rule
    )
    core = run(p, lambda c: put(c, SRC, x))
    assert np.array_equal(core.sbuf[: parts // MX_ROWS, SCALE : SCALE + N], scales)
    assert np.array_equal(get(core, DST, kind, (parts, N)).astype(np.uint32), words)
    assert not core.sbuf[parts // MX_ROWS :, SCALE : SCALE + N].any()


def test_a_bf16_source_in_psum():
    x = cast.decode(DType.BF16, cast.encode(DType.BF16, _numbers(16, 9), saturate=False))
    words, scales = _golden(x, DType.E4M3X4, MxRule.OCP)
    p = Program(FULL)
    p.vector.quantize_mx(
        row(DST, DType.E4M3X4, N),
        row(SCALE, DType.E8M0, N),
        row(SRC, DType.BF16, 4 * N, space=Space.PSUM),
        parts=16,
    )
    raw = cast.encode(DType.BF16, x, saturate=False).astype(np.uint16)
    core = run(p, lambda c: put(c, SRC, raw, space=Space.PSUM))
    assert np.array_equal(core.sbuf[:2, SCALE : SCALE + N], scales)
    assert np.array_equal(get(core, DST, "u4", (16, N)), words)


def test_scales_that_are_given():
    x = np.array([[1.0, -3.0, 1e6, np.nan] * 2] * 8, dtype=np.float32)
    scales = np.array([[127, E8M0_NAN]], dtype=np.uint8)
    p = Program(FULL)
    p.vector.mx_cast(row(DST, DType.E4M3X4, 2), row(SRC, DType.FP32, 8), row(SCALE, DType.E8M0, 2), parts=8)

    def prepare(core):
        put(core, SRC, x)
        put(core, SCALE, scales)

    core = run(p, prepare)
    first = cast.encode(DType.E4M3, x[0, :4], saturate=True)
    got = get(core, DST, "u4", (8, 2))
    assert got[:, 0].tolist() == [int(cast.pack_x4(DType.E4M3X4, first))] * 8
    assert got[:, 1].tolist() == [0] * 8


def test_what_the_builder_refuses():
    v = Program(FULL).vector
    dst, scale = row(DST, DType.E4M3X4, N), row(SCALE, DType.E8M0, N)
    src = row(SRC, DType.FP32, 4 * N)
    cases = [
        (lambda: v.quantize_mx(dst, scale, src, parts=12), "parts must be a multiple of 8, not 12"),
        (
            lambda: v.quantize_mx(row(DST, DType.E4M3, N), scale, src, parts=8),
            "dtype must be one of E4M3X4, E5M2X4, E2M1X4, not E4M3",
        ),
        (
            lambda: v.quantize_mx(dst, scale, row(SRC, DType.FP32, N), parts=8),
            f"src0 must have {4 * N} elements, not {N}",
        ),
        (
            lambda: v.quantize_mx(dst, scale, row(SRC, DType.INT8, 4 * N), parts=8),
            "src0.dtype must be one of",
        ),
        (
            lambda: v.quantize_mx(dst, row(SCALE, DType.UINT8, N), src, parts=8),
            "scale must be E8M0 in SBUF, not UINT8",
        ),
        (
            lambda: v.mx_cast(dst, src, row(SCALE, DType.E8M0, N + 1), parts=8),
            f"scale must have {N} elements, not {N + 1}",
        ),
        (
            lambda: v.mx_cast(
                AccessPattern(DST, DType.E4M3X4, ((1, N),), Space.SBUF, 4), src, scale, parts=8
            ),
            "MX operand's part must be a multiple of 16, not 4",
        ),
    ]
    for emit, text in cases:
        with pytest.raises(ProgramError, match=text):
            emit()
