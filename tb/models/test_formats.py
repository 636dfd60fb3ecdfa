"""The table of formats: against the formats' definitions, ml_dtypes' limits, and the codes that instructions store."""

import ml_dtypes
import numpy as np
import pytest

from models import formats
from models.formats import DType
from tb.models import exact

ALL = [formats.FP32, formats.BF16, formats.FP16, formats.E4M3, formats.E5M2, formats.E2M1]
THEIRS = [
    np.float32,
    ml_dtypes.bfloat16,
    np.float16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float4_e2m1fn,
]
BYTES = {
    DType.FP32: 4,
    DType.BF16: 2,
    DType.FP16: 2,
    DType.E4M3: 1,
    DType.E5M2: 1,
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.INT16: 2,
    DType.UINT16: 2,
    DType.INT32: 4,
    DType.UINT32: 4,
    DType.E8M0: 1,
    DType.E4M3X4: 4,
    DType.E5M2X4: 4,
    DType.E2M1X4: 2,
}


@pytest.mark.parametrize("fmt", ALL, ids=lambda f: f.name)
def test_matches_the_definition(fmt):
    spec = exact.SPECS[fmt.name]
    assert (fmt.exp_bits, fmt.man_bits, fmt.bias) == (spec.exp, spec.man, spec.bias)
    assert (fmt.max_code, fmt.nan) == (spec.largest, spec.nan)
    assert fmt.has_inf == (spec.inf is not None)
    assert 1 << (fmt.width - 1) == spec.sign
    assert fmt.sig_bits == spec.man + 1


@pytest.mark.parametrize(("fmt", "theirs"), list(zip(ALL, THEIRS, strict=True)), ids=[f.name for f in ALL])
def test_limits_are_those_of_other_libraries(fmt, theirs):
    info = ml_dtypes.finfo(theirs)
    spec = exact.SPECS[fmt.name]
    assert exact.magnitude(spec, fmt.max_code) == exact.Fraction(float(info.max))
    assert exact.magnitude(spec, 1) == exact.Fraction(float(info.smallest_subnormal))
    assert exact.magnitude(spec, 1 << fmt.man_bits) == exact.power(fmt.min_exp)
    assert exact.power(fmt.min_exp) == exact.Fraction(float(info.smallest_normal))


def test_codes_are_what_programs_store():
    """A change here breaks every program that was ever written."""
    names = "FP32 BF16 FP16 E4M3 E5M2 INT8 UINT8 INT16 UINT16 INT32 UINT32 E8M0 E4M3X4 E5M2X4 E2M1X4".split()
    assert [(d.name, d.value) for d in DType] == [(n, i) for i, n in enumerate(names)]


def test_every_type_is_in_one_table_and_has_its_size():
    tables = [set(formats.FLOATS), set(formats.PACKED), set(formats.INTS), {DType.E8M0}]
    assert sorted(d for t in tables for d in t) == list(DType)
    assert {d: formats.dtype_bytes(d) for d in DType} == BYTES
    for dtype, (bits, signed) in formats.INTS.items():
        assert dtype.name == f"{'' if signed else 'U'}INT{bits}"


def test_array_types():
    members = [d for c in formats.MAC_CLASSES for d in c]
    assert sorted(members) == sorted(formats.MAC_DTYPES)
    assert formats.MX_BLOCK == formats.MX_ROWS * formats.MX_PACK == 32


def test_names():
    for dtype in DType:
        assert formats.dtype_by_name(dtype.name.lower()) is dtype
    with pytest.raises(ValueError, match=r"number format must be one of fp32, .*e2m1x4, not 'fp64'"):
        formats.dtype_by_name("fp64")
