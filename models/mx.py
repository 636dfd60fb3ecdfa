"""Vector engine: MX scales, and casts to x4 types."""

import numpy as np

from models import cast, fp
from models.access import AccessPattern
from models.fault import legal
from models.formats import E8M0_BIAS, E8M0_NAN, FLOATS, MX_PACK, MX_ROWS, PACKED, DType, MxRule
from models.isa import Opcode, Space
from models.operands import U8, U32, Memories

MX_OPS = (Opcode.MX_SCALE, Opcode.MX_CAST)


def factors(scales: U8) -> np.ndarray:
    """FP32 reciprocals 2^(127 - code) of scales; that of NaN, which is not used, is 2^-127's neighbour's."""
    code = np.minimum(scales.astype(np.int32), E8M0_NAN - 1)
    return np.ldexp(np.float32(1), E8M0_BIAS - code).astype(np.float32)


class MxOperations(Memories):
    """MX_SCALE and MX_CAST: one result for four elements."""

    def _mx(self, opcode: Opcode, word: bytes, raw: dict[str, int]) -> None:
        parts = raw["parts"]
        legal(parts % MX_ROWS == 0 and raw["flags"] == 0)
        if opcode == Opcode.MX_SCALE:
            legal(raw["op0"] in PACKED and raw["op1"] in list(MxRule))
            src, scale = self._pattern(word, "src0", parts), self._scale_pattern(word, "dst")
            legal(src.dtype in FLOATS and src.part % self.config.quadrant == 0)
            legal(src.size == MX_PACK * scale.size)
            self._mx_scale(scale, src, parts, DType(raw["op0"]), MxRule(raw["op1"]))
            return
        legal(raw["op0"] == 0 and raw["op1"] == 0)
        src, dst = self._pattern(word, "src0", parts), self._pattern(word, "dst", parts)
        scale = self._scale_pattern(word, "src1")
        legal(src.dtype in FLOATS and dst.dtype in PACKED and dst.part % self.config.quadrant == 0)
        legal(src.size == MX_PACK * dst.size and scale.size == dst.size)
        self._mx_cast(dst, src, scale, parts)

    def _scale_pattern(self, word: bytes, name: str) -> AccessPattern:
        ap = self._pattern(word, name, 0, scale=True)
        offsets = (0, 4, 8, 12) if self.config.partitions >= 32 else (0,)
        legal(ap.dtype == DType.E8M0 and ap.space == Space.SBUF and ap.part in offsets)
        return ap

    def _scale_rows(self, scale: AccessPattern, part: int, k: int) -> np.ndarray:
        """Partitions of the scales of `k` partitions from `part` on, one for each group of 8."""
        q = self.config.quadrant
        first = np.arange(-(-k // MX_ROWS)) * MX_ROWS
        return np.asarray(part + first // q * q + scale.part + first % q // MX_ROWS)

    def _scales(self, scale: AccessPattern, part: int, k: int) -> U8:
        """E8M0 codes uint8 [ceil(k / 8), columns] of the quadrants' groups."""
        return self.sbuf[self._scale_rows(scale, part, k)[:, None], self._addresses(scale)[None, :]]

    def _blocks(self, src: AccessPattern, parts: int) -> U32:
        """FP32 bits [groups, 8, columns, 4] of a source."""
        value = cast.decode(src.dtype, self._read(src, parts)).view(np.uint32)
        return value.reshape(parts // MX_ROWS, MX_ROWS, -1, MX_PACK)

    def _mx_scale(
        self, scale: AccessPattern, src: AccessPattern, parts: int, dtype: DType, rule: MxRule
    ) -> None:
        addresses = self._addresses(scale)
        top = (self._blocks(src, parts) >> np.uint32(23) & np.uint32(0xFF)).max(axis=(1, 3)).astype(np.int64)
        fmt = PACKED[dtype]
        emax = (fmt.max_code >> fmt.man_bits) - fmt.bias
        code = np.clip(top - emax + int(rule), 0, E8M0_NAN - 1)
        code = np.where(top == E8M0_NAN, E8M0_NAN, code).astype(np.uint8)
        rows = self._scale_rows(scale, src.part, parts)
        for n, address in enumerate(addresses):
            self.sbuf[rows, address] = code[:, n]

    def _mx_cast(self, dst: AccessPattern, src: AccessPattern, scale: AccessPattern, parts: int) -> None:
        self._addresses(dst)
        blocks = self._blocks(src, parts).view(np.float32)
        codes = self._scales(scale, dst.part, parts)[:, None, :, None]
        scaled = fp.mul(blocks, factors(codes))
        out = cast.encode_float(PACKED[dst.dtype], scaled, saturate=True)
        out = np.where(codes == E8M0_NAN, 0, out)
        words = cast.pack_x4(dst.dtype, out)
        self._write(dst, parts, words.reshape(parts, -1))
