"""A column of operands as the array takes it, made of what an operand's two readers give."""

from typing import Any

from amaranth import Cat, Module, Mux, Value
from amaranth.lib.wiring import In, Out

from models.config import ChipConfig
from models.formats import MX_ROWS
from rtl.interfaces import ColumnLayout, lanes_layout
from rtl.tiles import ClockedTile, TileLibrary


class OperandColumn(ClockedTile):
    """Combinational.

    Members
    -------
    words: an element of every lane, zero-extended; size: log2 of its bytes.
    others: what src1's reader gives: block scales, from the quadrant offset 4 * `offset` on, or with `double` a second element of every lane.
    column: `others` as scales; an element at every place in its word where PSUM may want it (numbers are taken from the lowest one), or the
        two of a double row, the second above the first.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "words": In(lanes_layout(config.partitions)),
                "others": In(lanes_layout(config.partitions)),
                "size": In(2),
                "offset": In(2),
                "double": In(1),
                "column": Out(ColumnLayout(config.partitions)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        m.d.comb += self.column.scale.as_value().eq(Cat(self._scales()))
        for k in range(self.config.partitions):
            word: Value = self._spread(self.words[k])
            if self.config.tensor.double_row:
                word = Mux(self.double, Cat(self.words[k][:8], self.others[k][:8]), word)
            m.d.comb += self.column.data[k].eq(word)
        return m

    def _scales(self) -> list[Value]:
        """The groups' scales out of a scale item whose lane 0 is the operand's first partition."""
        lanes = self.others
        per = self.config.quadrant // MX_ROWS
        out = []
        for group in range(self.config.scale_groups):
            first = group // per * self.config.quadrant + group % per
            if self.config.partitions >= 32:
                a, b, c, d = (lanes[first + 4 * o][:8] for o in range(4))
                out.append(Mux(self.offset[1], Mux(self.offset[0], d, c), Mux(self.offset[0], b, a)))
            else:
                out.append(lanes[first][:8])
        return out

    def _spread(self, word: Value) -> Value:
        return Mux(self.size[1], word, Mux(self.size[0], word[:16].replicate(2), word[:8].replicate(4)))
