"""Shrinking: the smallest part that still fails."""

import pytest

from sim.fuzz.shrink import shrink
from tb.lib.simulate import rng


def test_needles_in_a_haystack():
    random = rng()
    for size in (1, 2, 7, 40):
        for needles in range(1, min(size, 4) + 1):
            wanted = set(random.sample(range(size), needles))
            calls = []

            def fails(items, wanted=wanted, calls=calls):
                calls.append(items)
                return wanted <= set(items)

            assert shrink(range(size), fails) == sorted(wanted)
            assert len(calls) < 40 * needles + 60


def test_one_less_makes_another_superfluous():
    """Either of two pairs fails; no single item can be left out of the result."""

    def fails(items):
        return {1, 2} <= set(items) or {3, 4, 5} <= set(items)

    got = shrink(range(8), fails)
    assert fails(got)
    assert not any(fails(got[:i] + got[i + 1 :]) for i in range(len(got)))


def test_what_does_not_fail_is_refused():
    with pytest.raises(ValueError, match="does not fail"):
        shrink([1, 2], lambda items: False)
