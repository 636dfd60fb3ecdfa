"""What follows from a PE's formats."""

import itertools
from fractions import Fraction

import pytest

from models.formats import FP32_PASSES, MAC_CLASSES, MAC_DTYPES, PACKED, DType
from rtl.pe.operand import PeConfig, element_format, exponent_range


def test_known_widths():
    assert PeConfig(formats=(DType.BF16,)).digit_bits == 4
    assert PeConfig(formats=(DType.FP16,)).digit_bits == 6
    assert PeConfig(formats=(DType.E4M3X4,)).sum_bits == 38
    assert PeConfig(formats=(DType.E5M2X4,)).sum_bits == 66
    assert PeConfig(formats=(DType.E2M1X4,)).sum_bits == 10
    fp32 = PeConfig(formats=(DType.FP32,))
    assert (fp32.digit_bits, fp32.max_shift, fp32.sum_bits) == (6, 18, 48)
    assert PeConfig(formats=(DType.BF16, DType.E4M3X4)).step.window == 63
    assert PeConfig(formats=(DType.BF16, DType.E4M3), double=(DType.E4M3,)).sum_bits == 37
    e5m2 = PeConfig(formats=(DType.E5M2,), double=(DType.E5M2,))
    assert (e5m2.digit_bits, e5m2.max_shift, e5m2.sum_bits) == (3, 29, 65)
    # where MX has the same elements, double rows widen nothing
    mx = PeConfig(formats=(DType.E4M3, DType.E4M3X4))
    both = PeConfig(formats=(DType.E4M3, DType.E4M3X4), double=(DType.E4M3,))
    assert (both.sum_bits, both.max_shift, both.digit_bits) == (mx.sum_bits, mx.max_shift, mx.digit_bits)


@pytest.mark.parametrize("dtype", MAC_DTYPES)
def test_largest_sum_fits(dtype):
    """The largest sum of products of a format, in units of the smallest product, has `sum_bits` bits."""
    config = PeConfig(formats=(dtype,))
    fmt = element_format(dtype)
    top = (1 << fmt.man_bits) | (fmt.max_code & ((1 << fmt.man_bits) - 1))
    largest = Fraction(top) * 2 ** (exponent_range(fmt) if dtype in PACKED else 0)
    total = largest * largest * (4 if dtype in PACKED else 1)
    assert total < 1 << config.sum_bits
    assert total >= 1 << config.sum_bits - 3


def test_every_subset_has_room_for_all_its_classes():
    for a, b in itertools.combinations(MAC_DTYPES, 2):
        config = PeConfig(formats=(a, b))
        assert config.sum_bits >= max(PeConfig(formats=(f,)).sum_bits for f in (a, b))
        assert (
            config.digit_bits * 2 >= max(element_format(f).sig_bits for f in config.singles)
            if config.singles
            else True
        )
        assert config.digit_bits * FP32_PASSES >= 24 or DType.FP32 not in (a, b)
        assert any(a in c for c in MAC_CLASSES)


@pytest.mark.parametrize("double", [(DType.E5M2,), (DType.BF16,), (DType.E4M3X4,)])
def test_bad_double_rows(double):
    with pytest.raises(ValueError, match="double must be FP8 types that are in formats, not"):
        PeConfig(formats=(DType.BF16, DType.E4M3, DType.E4M3X4), double=double)


@pytest.mark.parametrize("formats", [(), (DType.INT32,), (DType.BF16, DType.INT8)])
def test_bad_formats(formats):
    with pytest.raises(ValueError, match="formats must be types that the array can multiply, not"):
        PeConfig(formats=formats)
