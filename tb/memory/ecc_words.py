"""Golden contents of a memory with check bits: what was stored, with its flips, and what a read of it must find."""

from dataclasses import dataclass

import numpy as np

from models import ecc
from models.ecc import Status

UNDER_WAY = 2
"""Cycles after its own in which a write is not yet in the SRAM, so that reads get it by forwarding, without the flips that it brings."""


@dataclass(slots=True)
class Found:
    """What a read finds: data, lost, one bit corrected, syndrome (of either)."""

    data: int
    bad: bool
    corrected: bool
    syndrome: int


@dataclass(slots=True)
class _Word:
    data: int = 0
    bad: bool = False
    flips: int = 0
    cycle: int = -UNDER_WAY - 1


class Words:
    """Stored words by any key. Operations of one cycle come reads first; cycles never go back."""

    def __init__(self) -> None:
        self.words: dict[object, _Word] = {}

    def read(self, key: object, cycle: int) -> Found:
        """What a read addressed in `cycle` finds."""
        word = self.words.get(key, _Word())
        flips = word.flips if cycle - word.cycle > UNDER_WAY else 0
        if cycle - word.cycle <= UNDER_WAY:
            return Found(word.data, word.bad, False, ecc.POISON if word.bad else 0)
        mark = ecc.POISON << ecc.DATA_BITS if word.bad else 0
        stored = ecc.encode(word.data) ^ np.uint64(mark ^ flips)
        found = ecc.decode(stored)
        status, syndrome = Status(int(found.status)), int(found.syndrome)
        return Found(int(found.data), status == Status.UNCORRECTABLE, status == Status.CORRECTED, syndrome)

    def write(self, key: object, cycle: int, data: int, mask: int) -> None:
        """Bytes `mask` of `data`."""
        if mask == 0:
            return
        keep = sum(0xFF << 8 * b for b in range(4) if not mask >> b & 1)
        old = self.read(key, cycle)
        bad = old.bad and mask != 15
        self.words[key] = _Word(old.data & keep | data & ~keep & 0xFFFF_FFFF, bad, 0, cycle)

    def scrub(self, key: object, cycle: int) -> None:
        """Write it back if a bit was wrong."""
        old = self.read(key, cycle)
        if old.corrected:
            self.words[key] = _Word(old.data, False, 0, cycle)

    def flip(self, key: object, cycle: int, flips: int) -> None:
        """Write it back with flips."""
        old = self.read(key, cycle)
        self.words[key] = _Word(old.data, old.bad, flips, cycle)
