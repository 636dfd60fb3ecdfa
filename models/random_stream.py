"""Vector instructions of a stream for random numbers and dropout."""

from typing import Any

import numpy as np

from models import cast, fp
from models.access import AccessPattern
from models.element_stream import ElementInstructions, fp32_bits
from models.formats import FLOATS, INTS, DType
from models.isa import AluOp, Flag, Opcode, StateOp
from models.xorwow import FRACTION, STATE_TYPES, WORDS

UNIT = np.float32(2.0**-FRACTION)
"""One over the number of a float's random bits."""


def resolution(dtype: DType, low: float, high: float) -> int:
    """Bits that a random number from `low` to below `high` may have, so that it stays below `high` when it has been rounded and cast.

    Raises ValueError when there is no number in between, or their distance is not finite.
    """
    first, last = (np.array([bound], dtype=np.float32) for bound in (low, high))
    scale = np.array([_scale(low, high)])
    if not (np.isfinite(scale).all() and (first < last).all()):
        raise ValueError(
            f"low and high must be a finite distance apart, low below high, not {low!r}, {high!r}"
        )
    end = cast.decode(dtype, cast.encode(dtype, last, saturate=True))
    for bits in range(FRACTION, 0, -1):
        most = np.array([(1 << FRACTION) - (1 << (FRACTION - bits))], dtype=np.float32)
        value = fp.add(fp.mul(most, scale), first)
        if (cast.decode(dtype, cast.encode(dtype, value, saturate=True)) < end).all() and (
            value < last
        ).all():
            return bits
    return 0


def _scale(low: float, high: float) -> np.float32:
    """What n, of FRACTION bits, is multiplied with."""
    return np.float32((np.float64(np.float32(high)) - np.float64(np.float32(low))) * UNIT)


class RandomInstructions(ElementInstructions):
    """RANDOM, RANDOM_STATE and DROPOUT. Methods are as those of ElementInstructions; all raise ProgramError."""

    def random(
        self, dst: AccessPattern, low: float, high: float, *, parts: int, saturate: bool = False, **sync: Any
    ) -> int:
        """dst, of a float type = numbers from `low` to below `high`, equally spaced, each as likely: of 2^24, or as many as stay apart and below `high`."""
        fields = {"parts": parts, "op0": AluOp.MUL, "op1": AluOp.ADD, "flags": Flag.SATURATE * saturate}

        def check() -> None:
            if dst.dtype not in FLOATS:
                raise ValueError(
                    f"dst.dtype must be a float type, not {dst.dtype.name}; random_bits fills integers"
                )
            self._checker().vector(dst, {}, parts, copy=False)
            fields["axes"] = resolution(dst.dtype, low, high)
            fields["imm0"], fields["imm1"] = fp32_bits(float(_scale(low, high))), fp32_bits(low)

        self._checked(Opcode.RANDOM, check)
        return self.emit(Opcode.RANDOM, fields, {"dst": dst}, **sync)

    def random_bits(self, dst: AccessPattern, *, parts: int, **sync: Any) -> int:
        """dst, of an integer type = the lowest bits of random words."""

        def check() -> None:
            if dst.dtype not in INTS:
                raise ValueError(
                    f"dst.dtype must be an integer type, not {dst.dtype.name}; random fills floats"
                )
            self._checker().vector(dst, {}, parts, copy=False)

        self._checked(Opcode.RANDOM, check)
        return self.emit(Opcode.RANDOM, {"parts": parts}, {"dst": dst}, **sync)

    def dropout(
        self,
        dst: AccessPattern,
        src: AccessPattern,
        probability: float,
        *,
        parts: int,
        saturate: bool = False,
        **sync: Any,
    ) -> int:
        """dst = cast(src), each element with `probability` +0 instead; equal types copy bits. dst may be src."""

        def check() -> None:
            if not 0 <= probability <= 1:
                raise ValueError(f"probability must be from 0 to 1, not {probability!r}")
            self._vector(dst, {"src0": src}, parts)

        self._checked(Opcode.DROPOUT, check)
        fields = {"parts": parts, "flags": Flag.SATURATE * saturate, "imm0": fp32_bits(probability + 0.0)}
        return self.emit(Opcode.DROPOUT, fields, {"dst": dst, "src0": src}, **sync)

    def seed_random(self, seed: int, *, parts: int, **sync: Any) -> int:
        """Give the first `parts` lanes new states from a seed of 32 bits, each lane its own."""

        def check() -> None:
            self._checker().parts("parts", parts)
            if not 0 <= seed < 1 << 32:
                raise ValueError(f"seed must be from 0 to 2^32 - 1, not {seed!r}")

        self._checked(Opcode.RANDOM_STATE, check)
        return self.emit(Opcode.RANDOM_STATE, {"parts": parts, "op0": StateOp.SEED, "imm0": seed}, {}, **sync)

    def store_random_state(self, dst: AccessPattern, *, parts: int, **sync: Any) -> int:
        """dst, six INT32 or UINT32 a partition = the lanes' states, which stay as they are."""
        return self._state(StateOp.STORE, "dst", dst, parts, **sync)

    def load_random_state(self, src: AccessPattern, *, parts: int, **sync: Any) -> int:
        """The lanes' states = src, six INT32 or UINT32 a partition. With zeros in the first five the lane only counts."""
        return self._state(StateOp.LOAD, "src0", src, parts, **sync)

    def _state(self, op: StateOp, name: str, ap: AccessPattern, parts: int, **sync: Any) -> int:
        def check() -> None:
            self._checker().parts("parts", parts)
            if ap.dtype not in STATE_TYPES or ap.size != WORDS:
                raise ValueError(
                    f"{name} must be {WORDS} elements of INT32 or UINT32 a partition, not {ap.size} of {ap.dtype.name}"
                )
            self._checker().pattern(name, ap, parts)

        self._checked(Opcode.RANDOM_STATE, check)
        return self.emit(Opcode.RANDOM_STATE, {"parts": parts, "op0": op}, {name: ap}, **sync)
