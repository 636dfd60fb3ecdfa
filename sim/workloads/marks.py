"""Counting semaphores: each engine marks its progress on its own, and others wait for a count."""

from dataclasses import dataclass

from models.program import Semaphore, Stream, Update, Wait


@dataclass
class Marks:
    """Progress of one engine: `mark()` goes with the instruction that reaches the next point, `here()` waits for the last point marked so far."""

    semaphore: Semaphore
    count: int = 0

    def mark(self) -> Update:
        """The next point; pass it as `update`."""
        self.count += 1
        return self.semaphore.add(1)

    def here(self) -> Wait:
        """Wait for all points marked so far in the program's text."""
        return self.semaphore.ge(self.count)


def need(stream: Stream, *waits: Wait) -> None:
    """The stream goes on when all waits are met: a NOP for each that is not met from the start."""
    for wait in waits:
        if wait.value > 0:
            stream.nop(wait=wait)
