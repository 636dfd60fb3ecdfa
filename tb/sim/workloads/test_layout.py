"""Byte allocation: aligned, in order, never beyond the end."""

import pytest

from sim.workloads.layout import Allocator, WorkloadError


def test_aligned_and_in_order():
    a = Allocator(100, "memory", first=3)
    assert a.take(5) == 16
    assert a.take(1, align=1) == 21
    assert a.take(4, align=32) == 32
    assert a.next == 36


def test_exact_fit_then_full():
    a = Allocator(64, "a partition")
    assert a.take(64) == 0
    assert a.take(0) == 64
    with pytest.raises(WorkloadError, match="a partition of 64 bytes is too small: 65 needed"):
        a.take(1, align=1)
