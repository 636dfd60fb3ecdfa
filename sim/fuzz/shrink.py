"""Makes a failing list of operations small: delta debugging (Zeller and Hildebrandt, IEEE Trans. Software Engineering 28(2), 2002)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A part of `items` that still fails and of which no single item can be left out. Raises ValueError when `items` do not fail."""
    left = list(items)
    if not fails(left):
        raise ValueError("what is to be shrunk does not fail")
    size = len(left) // 2
    while size:
        start = 0
        while start < len(left):
            without = left[:start] + left[start + size :]
            if fails(without):
                left = without
            else:
                start += size
        if size == 1:
            # Leaving one out may have made others superfluous.
            again = [left[:i] + left[i + 1 :] for i in range(len(left))]
            smaller = next((a for a in again if fails(a)), None)
            if smaller is not None:
                left = smaller
                continue
        size //= 2
    return left
