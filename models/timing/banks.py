"""Who is in which bank of SBUF and PSUM when: what engines and DMA lose to each other (rtl.memory.controller, rtl.lib.arbiter).

Streams that win whatever happens (moving columns, partial sums) are known when they start. The rest gives way to them; a row of the DMA
and a lane access that meet take turns.
"""

from dataclasses import dataclass, field

from models.access import AccessPattern
from models.config import ChipConfig
from models.isa import Space

PSUM_BANKS = 8
ROW_BANKS = 4
WORD = 4
NOWHERE = -1


def pattern_banks(config: ChipConfig, ap: AccessPattern, *, fresh: bool) -> list[int]:
    """The bank of every element's word; with `fresh`, NOWHERE for an element in the word before it."""
    count = config.sbuf.banks if ap.space == Space.SBUF else PSUM_BANKS
    words = ap.addresses() // WORD
    banks: list[int] = (words % count).tolist()
    if fresh:
        for i in (words[1:] == words[:-1]).nonzero()[0].tolist():
            banks[i + 1] = NOWHERE
    return banks


@dataclass(slots=True)
class Stream:
    """An access every `pace` cycles from `start` on, to `banks` in order. `delay`: cycles that rows of the DMA have cost it."""

    start: int
    banks: list[int]
    pace: int = 1
    delay: int = 0
    row_first: bool = False

    @property
    def end(self) -> int:
        """The cycle after the last access."""
        return self.start + self.delay + self.pace * len(self.banks)

    def bank(self, cycle: int) -> int:
        """The bank in `cycle`, or NOWHERE."""
        at, rest = divmod(cycle - self.start - self.delay, self.pace)
        return self.banks[at] if rest == 0 and 0 <= at < len(self.banks) else NOWHERE


@dataclass(slots=True)
class Side:
    """Reads or writes of one memory with `banks` banks: `first` streams always win, `others` take turns with the DMA's rows."""

    banks: int
    first: list[Stream] = field(default_factory=list)
    others: list[Stream] = field(default_factory=list)

    def add(self, stream: Stream, now: int, *, wins: bool) -> Stream:
        """A stream that starts at `now` or later; streams that ended long ago are forgotten."""
        mine = self.first if wins else self.others
        mine[:] = [s for s in mine if s.end + 4096 > now]
        mine.append(stream)
        return stream

    def lost(self, stream: Stream) -> int:
        """Cycles that a stream of lane accesses loses to those that always win."""
        against = [s for s in self.first if s.start < stream.end and s.end > stream.start and s is not stream]
        lost = 0
        if not against:
            return 0
        for at, bank in enumerate(stream.banks):
            if bank == NOWHERE:
                continue
            cycle = stream.start + stream.delay + at * stream.pace + lost
            while any(s.bank(cycle) == bank for s in against):
                cycle += 1
                lost += 1
        return lost

    def row(self, cycle: int, beat: int) -> int:
        """The first cycle from `cycle` on in which a row access to beat `beat` of a partition is granted."""
        groups = self.banks // ROW_BANKS
        group = beat % groups
        while True:
            if any((b := s.bank(cycle)) != NOWHERE and b // ROW_BANKS == group for s in self.first):
                cycle += 1
                continue
            for s in self.others:
                b = s.bank(cycle)
                if b != NOWHERE and b // ROW_BANKS == group:
                    if not s.row_first:
                        s.row_first = True
                        break
                    s.row_first = False
                    s.delay += 1
            else:
                return cycle
            cycle += 1


class Banks:
    """A core's memories: `reads` and `writes` of each space."""

    def __init__(self, config: ChipConfig):
        self.config = config
        self.reads = {Space.SBUF: Side(config.sbuf.banks), Space.PSUM: Side(PSUM_BANKS)}
        self.writes = {Space.SBUF: Side(config.sbuf.banks), Space.PSUM: Side(PSUM_BANKS)}
