"""Cycles in which something had work."""


class Busy:
    """Adds up cycles of spans that begin in order; cycles that spans share count once."""

    def __init__(self) -> None:
        self.cycles = 0
        self._until = 0

    def add(self, first: int, last: int) -> None:
        """The cycles after `first` up to `last`."""
        self.cycles += max(0, last - max(first, self._until))
        self._until = max(self._until, last)
