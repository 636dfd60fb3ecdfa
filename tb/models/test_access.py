"""Access patterns: addresses against nested loops, and what is refused."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.access import AccessPattern, row
from models.formats import DType, dtype_bytes
from models.isa import AP_DIMS, Space

DIMS = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 4)), min_size=1, max_size=AP_DIMS)


@given(st.integers(0, 1000), st.sampled_from(list(DType)), DIMS)
def test_addresses_walk_innermost_last(addr, dtype, dims):
    ap = AccessPattern(addr, dtype, tuple(dims))
    want = [
        addr + dtype_bytes(dtype) * sum(i * s for i, (s, _) in zip(index, dims, strict=True))
        for index in itertools.product(*(range(c) for _, c in dims))
    ]
    assert ap.addresses().tolist() == want
    assert ap.size == len(want)


@given(DIMS)
def test_padding_with_outer_dims_walks_alike(dims):
    ap = AccessPattern(64, DType.BF16, tuple(dims))
    padded = ap.padded()
    assert len(padded) == AP_DIMS
    assert AccessPattern(64, DType.BF16, tuple(padded)).addresses().tolist() == ap.addresses().tolist()


def test_a17_strides():
    """Stride 2 with outer sizes of 1 reads every second element; stride 0 repeats one."""
    two = AccessPattern(0, DType.UINT8, ((0, 1), (0, 1), (0, 1), (2, 8)))
    assert two.addresses().tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert AccessPattern(5, DType.UINT8, ((0, 8),)).addresses().tolist() == [5] * 8
    assert AccessPattern(8, DType.FP32, ((0, 2), (1, 2))).addresses().tolist() == [8, 12, 8, 12]


@pytest.mark.parametrize("empty", range(AP_DIMS))
def test_a_count_of_zero_anywhere_is_empty(empty):
    dims = tuple((1, 0 if i == empty else 3) for i in range(AP_DIMS))
    ap = AccessPattern(0, DType.FP32, dims)
    assert ap.size == 0
    assert ap.addresses().shape == (0,)


def test_largest_walk_does_not_wrap():
    ap = AccessPattern((1 << 32) - 4, DType.FP32, (((1 << 31) - 1, 2), (-(1 << 31), 2)))
    top = (1 << 32) - 4
    high, low = 4 * ((1 << 31) - 1), -4 * (1 << 31)
    assert ap.addresses().tolist() == [top, top + low, top + high, top + high + low]


def test_row():
    ap = row(16, DType.BF16, 3, stride=-2, space=Space.PSUM, part=4)
    assert ap == AccessPattern(16, DType.BF16, ((-2, 3),), Space.PSUM, 4)
    assert ap.addresses().tolist() == [16, 12, 8]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0, DType.FP32, ()), r"dims must be 1 to 4 \(stride, count\) pairs, not \(\)"),
        ((0, DType.FP32, ((1, 1),) * 5), "dims must be 1 to 4"),
        ((0, DType.FP32, ((1 << 31, 1),)), "stride must fit 32 bits signed, not 2147483648"),
        ((0, DType.FP32, ((-(1 << 31) - 1, 1),)), "stride must fit 32 bits signed, not -2147483649"),
        ((0, DType.FP32, ((1, 65536),)), "count must be from 0 to 65535, not 65536"),
        ((0, DType.FP32, ((1, -1),)), "count must be from 0 to 65535, not -1"),
        ((-1, DType.FP32, ((1, 1),)), "addr must be from 0 to 4294967295, not -1"),
        ((1 << 32, DType.FP32, ((1, 1),)), "addr must be from 0 to 4294967295, not 4294967296"),
        ((0, DType.FP32, ((1, 1),), Space.SBUF, 256), "part must be from 0 to 255, not 256"),
    ],
)
def test_refusals(args, message):
    with pytest.raises(ValueError, match=message):
        AccessPattern(*args)
