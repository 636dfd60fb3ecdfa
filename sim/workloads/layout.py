"""Where a workload's data lies: byte allocation in memory and in partitions."""


class WorkloadError(ValueError):
    """The workload cannot be built for this chip; the text says which option or size is wrong."""


class Allocator:
    """Hands out bytes of a partition (or of memory), aligned."""

    def __init__(self, size: int, what: str, first: int = 0):
        self.size, self.what, self.next = size, what, first

    def take(self, count: int, align: int = 16) -> int:
        """`count` bytes. Raises WorkloadError when they do not fit."""
        start = -(-self.next // align) * align
        if start + count > self.size:
            raise WorkloadError(f"{self.what} of {self.size} bytes is too small: {start + count} needed")
        self.next = start + count
        return start
