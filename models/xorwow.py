"""Vector engine: each lane's random numbers, what fills a tensor with them, and dropout.

Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003: XORWOW, period 2^192 - 2^32.
"""

import numpy as np
from numpy.typing import NDArray

from models import cast, fp
from models.access import AccessPattern
from models.config import ChipConfig
from models.fault import legal
from models.formats import FLOATS, INTS, DType
from models.isa import AluOp, Flag, Opcode, StateOp
from models.operands import Action, Memories

U32 = NDArray[np.uint32]

RANDOMS = (Opcode.RANDOM, Opcode.RANDOM_STATE, Opcode.DROPOUT)
WORDS = 6
"""Of a lane's state, in this order: x, y, z, w, v, and the counter d."""
START = (123456789, 362436069, 521288629, 88675123, 5783321, 6615241)
"""Before the rounds of a seed: x and y are changed by the seed and by the lane's number."""
STEP = 362437
"""Of the counter."""
ROUNDS = 96
"""In which a seed and a lane's number get into every bit of the state."""
FRACTION = 24
"""Bits of a word that a float is made of."""
STATE_TYPES = (DType.INT32, DType.UINT32)
ALL = 0x3F800000
"""FP32 code of 1, the largest probability."""


def _moved(state: U32) -> tuple[U32, U32]:
    """(next v, next d) of states [lanes, WORDS]."""
    x, v, d = state[:, 0], state[:, 4], state[:, 5]
    t = x ^ (x >> np.uint32(2))
    return (v ^ (v << np.uint32(4))) ^ (t ^ (t << np.uint32(1))), d + np.uint32(STEP)


def seeded(seed: int, lanes: int) -> U32:
    """States [lanes, WORDS] for a seed: ROUNDS steps of the generator, whose results take the place of v."""
    state = np.tile(np.array(START, dtype=np.uint32), (lanes, 1))
    state[:, 0] ^= np.uint32(seed)
    state[:, 1] ^= np.arange(lanes, dtype=np.uint32)
    for _ in range(ROUNDS):
        v, d = _moved(state)
        state = np.column_stack([state[:, 1:5], v + d, d])
    return state


def draw(state: U32, count: int) -> U32:
    """The next `count` words of each lane, [lanes, count]; `state` moves on."""
    out = np.empty((state.shape[0], count), dtype=np.uint32)
    for n in range(count):
        v, d = _moved(state)
        state[:, :4], state[:, 4], state[:, 5] = state[:, 1:5].copy(), v, d
        out[:, n] = v + d
    return out


def threshold(probability: int) -> int:
    """The least number, of those up to 2^32, that is not below FP32 code `probability` times 2^32."""
    value = np.array([probability], dtype=np.uint32).view(np.float32)[0]
    return int(np.ceil(np.float64(value) * 2.0**32))


class Random(Memories):
    """RANDOM, RANDOM_STATE and DROPOUT.

    random: state of each lane, uint32 [partitions, WORDS]; that of seed 0 after reset and after a clear. An element takes its lane's next word,
    elements in walking order; lanes that an instruction does not have stay where they are.
    """

    config: ChipConfig
    random: U32

    def _randoms(self, opcode: Opcode, word: bytes, dst: AccessPattern, raw: dict[str, int]) -> Action:
        """One of RANDOMS. Raises Fault(ILLEGAL_FIELD) for fields, sizes and types, and range faults."""
        parts, saturate = raw["parts"], bool(raw["flags"] & Flag.SATURATE)
        if opcode == Opcode.RANDOM:
            return self._fill(dst, raw)
        src = self._pattern(word, "src0", parts)
        if opcode == Opcode.RANDOM_STATE:
            return self._state(dst, src, raw)
        legal(raw["imm0"] <= ALL and dst.size == src.size)
        legal(dst.dtype in {*FLOATS, *INTS} and src.dtype in {*FLOATS, *INTS, DType.E8M0})
        out, a, least = self._place(dst, parts), self._place(src, parts), threshold(raw["imm0"])

        def run() -> None:
            bits = a.read()
            if src.dtype != dst.dtype:
                bits = cast.encode(dst.dtype, cast.decode(src.dtype, bits), saturate=saturate)
            words = draw(self.random[:parts], bits.shape[1])
            out.write(np.where(words < least, np.uint32(0), bits))

        return run

    def _fill(self, dst: AccessPattern, raw: dict[str, int]) -> Action:
        parts, bits, saturate = raw["parts"], raw["axes"], bool(raw["flags"] & Flag.SATURATE)
        whole = dst.dtype in INTS
        legal(dst.dtype in {*FLOATS, *INTS} and bits <= (0 if whole else FRACTION))
        legal(not whole or (raw["op0"] == 0 and raw["op1"] == 0))
        out, kept = self._place(dst, parts), np.uint32(((1 << bits) - 1) << (FRACTION - bits))
        op0, op1 = AluOp(raw["op0"]), AluOp(raw["op1"])
        imm0, imm1 = (np.full((1, 1), raw[k], dtype=np.uint32).view(np.float32) for k in ("imm0", "imm1"))

        def run() -> None:
            words = draw(self.random[:parts], dst.size)
            if not whole:
                number = cast.decode(DType.UINT32, words >> np.uint32(32 - FRACTION) & kept)
                result = fp.alu(op1, fp.alu(op0, number, imm0), imm1)
                words = cast.encode(dst.dtype, result, saturate=saturate)
            out.write(words)

        return run

    def _state(self, dst: AccessPattern, src: AccessPattern, raw: dict[str, int]) -> Action:
        parts, op = raw["parts"], raw["op0"]
        legal(op in list(StateOp) and raw["op1"] == 0)
        for ap, wanted in ((dst, StateOp.STORE), (src, StateOp.LOAD)):
            legal(ap.size == (WORDS if op == wanted else 0))
            legal(op != wanted or ap.dtype in STATE_TYPES)
        out, a = self._place(dst, parts), self._place(src, parts)

        def run() -> None:
            state = self.random[:parts]
            if op == StateOp.SEED:
                state[:] = seeded(raw["imm0"], self.config.partitions)[:parts]
            elif op == StateOp.LOAD:
                state[:] = a.read()
            else:
                out.write(state)

        return run
