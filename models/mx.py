"""Vector engine: MX scales, and casts to x4 types."""

import numpy as np
from numpy.typing import NDArray

from models import cast, fp
from models.access import AccessPattern
from models.fault import legal
from models.formats import E8M0_BIAS, E8M0_NAN, FLOATS, MX_PACK, MX_ROWS, PACKED, DType, MxRule
from models.isa import Opcode, Space
from models.operands import U8, U32, Action, Memories, Place

MX_OPS = (Opcode.MX_SCALE, Opcode.MX_CAST)


def factors(scales: U8) -> np.ndarray:
    """FP32 reciprocals 2^(127 - code) of scales; that of NaN, which is not used, is 2^-127's neighbour's."""
    code = np.minimum(scales.astype(np.int32), E8M0_NAN - 1)
    return np.ldexp(np.float32(1), E8M0_BIAS - code).astype(np.float32)


class MxOperations(Memories):
    """MX_SCALE and MX_CAST: one result for four elements."""

    def _mx(self, opcode: Opcode, word: bytes, raw: dict[str, int]) -> Action:
        parts = raw["parts"]
        legal(parts % MX_ROWS == 0 and raw["flags"] == 0)
        if opcode == Opcode.MX_SCALE:
            legal(raw["op0"] in PACKED and raw["op1"] in list(MxRule))
            src, scale = self._pattern(word, "src0", parts), self._scale_pattern(word, "dst")
            legal(src.dtype in FLOATS and src.part % self.config.quadrant == 0)
            legal(src.size == MX_PACK * scale.size)
            return self._mx_scale(scale, src, parts, DType(raw["op0"]), MxRule(raw["op1"]))
        legal(raw["op0"] == 0 and raw["op1"] == 0)
        src, dst = self._pattern(word, "src0", parts), self._pattern(word, "dst", parts)
        scale = self._scale_pattern(word, "src1")
        legal(src.dtype in FLOATS and dst.dtype in PACKED and dst.part % self.config.quadrant == 0)
        legal(src.size == MX_PACK * dst.size and scale.size == dst.size)
        return self._mx_cast(dst, src, scale, parts)

    def _scale_pattern(self, word: bytes, name: str) -> AccessPattern:
        ap = self._pattern(word, name, 0, scale=True)
        offsets = (0, 4, 8, 12) if self.config.partitions >= 32 else (0,)
        legal(ap.dtype == DType.E8M0 and ap.space == Space.SBUF and ap.part in offsets)
        return ap

    def _scales(self, scale: AccessPattern, part: int, k: int) -> "Scales":
        """The scales of `k` partitions from `part` on."""
        q = self.config.quadrant
        first = np.arange(-(-k // MX_ROWS)) * MX_ROWS
        rows = part + first // q * q + scale.part + first % q // MX_ROWS
        return Scales(self._place(scale, 0, scale=True), rows)

    def _mx_scale(
        self, scale: AccessPattern, src: AccessPattern, parts: int, dtype: DType, rule: MxRule
    ) -> Action:
        scales, value = self._scales(scale, src.part, parts), self._place(src, parts)
        fmt = PACKED[dtype]
        emax = (fmt.max_code >> fmt.man_bits) - fmt.bias

        def run() -> None:
            top = (_blocks(value) >> np.uint32(23) & np.uint32(0xFF)).max(axis=(1, 3)).astype(np.int64)
            code = np.clip(top - emax + int(rule), 0, E8M0_NAN - 1)
            scales.write(np.where(top == E8M0_NAN, E8M0_NAN, code).astype(np.uint8))

        return run

    def _mx_cast(self, dst: AccessPattern, src: AccessPattern, scale: AccessPattern, parts: int) -> Action:
        out, value = self._place(dst, parts), self._place(src, parts)
        scales = self._scales(scale, dst.part, parts)

        def run() -> None:
            codes = scales.read()[:, None, :, None]
            scaled = fp.mul(_blocks(value).view(np.float32), factors(codes))
            elements = cast.encode_float(PACKED[dst.dtype], scaled, saturate=True)
            if np.count_nonzero(codes == E8M0_NAN):
                elements = np.where(codes == E8M0_NAN, 0, elements)
            out.write(cast.pack_x4(dst.dtype, elements).reshape(parts, -1))

        return run


class Scales:
    """E8M0 codes, one for a column of a group of 8 partitions, each group's in a partition of its own: `rows`."""

    def __init__(self, place: Place, rows: NDArray[np.int64]):
        self.place, self.rows = place, rows

    def read(self) -> U8:
        """uint8 [groups, columns]."""
        return self.place.take(self.rows).astype(np.uint8, copy=False)

    def write(self, codes: U8) -> None:
        """The same, in the order of the columns."""
        self.place.put(self.rows, codes)


def _blocks(src: Place) -> U32:
    """FP32 bits [groups, 8, columns, 4] of a source."""
    return src.numbers().view(np.uint32).reshape(src.parts // MX_ROWS, MX_ROWS, -1, MX_PACK)
