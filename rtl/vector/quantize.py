"""MX scales out of exponents, and x4 words out of elements."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.formats import E8M0_NAN, MX_PACK, MX_ROWS, PACKED, DType
from rtl.interfaces import lanes_layout, mac_code_bits
from rtl.tiles import ClockedTile, TileLibrary

TURN_BITS = (MX_PACK - 1).bit_length()
SCALE_LATENCY = 1
"""Cycles from a block's last exponents to its scale."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizerConfig:
    """`partitions` P and partitions of an MX `quadrant`."""

    partitions: int
    quadrant: int

    def __post_init__(self) -> None:
        if self.quadrant % MX_ROWS:
            raise ValueError(f"quadrant must be a multiple of {MX_ROWS}, not {self.quadrant!r}")
        if self.partitions % self.quadrant:
            raise ValueError(f"partitions must be a multiple of quadrant, not {self.partitions!r}")

    @property
    def groups(self) -> int:
        """Groups of MX_ROWS partitions."""
        return self.partitions // MX_ROWS


class Quantizer(ClockedTile):
    """Members
    -------
    MX_SCALE: exps (FP32 exponent fields of an element in all lanes) come with `enter`; turn: which of a block's four it is. dtype (the x4 type), nki
        (the rule), offset (of the scales in a quadrant), parts: held. scale: E8M0 codes in the lanes that they are written to, the others in `skip`;
        SCALE_LATENCY cycles after the block's last exponents.
    MX_CAST: scale_in: what was read of the scales, lane 0 the operand's first partition; factor: for each group the FP32 number that elements are
        multiplied by; blank: its scale is NaN. Combinational. raws come with `leave`; word: with a block's fourth ones, all four together.
    """

    def __init__(self, config: QuantizerConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        p, groups = config.partitions, config.groups
        super().__init__(
            {
                "exps": In(data.ArrayLayout(unsigned(8), p)),
                "enter": In(1),
                "turn": In(TURN_BITS),
                "dtype": In(mac_code_bits()),
                "nki": In(1),
                "offset": In(4),
                "parts": In(8),
                "scale": Out(lanes_layout(p)),
                "skip": Out(p),
                "scale_in": In(lanes_layout(p)),
                "factor": Out(lanes_layout(groups)),
                "blank": Out(groups),
                "raws": In(lanes_layout(p)),
                "leave": In(1),
                "word": Out(lanes_layout(p)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        per = cfg.quadrant // MX_ROWS
        narrow = self.dtype == DType.E2M1X4.value
        m.d.comb += self.skip.eq((1 << cfg.partitions) - 1)
        for group in range(cfg.groups):
            code = self._scale(m, group)
            held = self._at(self.scale_in, group)
            m.d.comb += [
                self.factor[group].eq(Mux(held >= 254, 1 << 22, (254 - held)[:8] << 23)),
                self.blank[group].eq(held == E8M0_NAN),
            ]
            first = group // per * cfg.quadrant + group % per
            for place in self._places(first):
                mine = (self.offset[2:] == place // 4) if cfg.partitions >= 32 else 1
                lane = first + place
                m.d.comb += self.skip[lane].eq(~(mine & (self.parts > MX_ROWS * group)))
                m.d.comb += self.scale[lane].eq(code)
        for lane in range(cfg.partitions):
            before = Signal(8 * (MX_PACK - 1), name=f"before{lane}", reset_less=True)
            raw = self.raws[lane][:8]
            with m.If(self.leave):
                m.d.sync += before.eq(Cat(before[8:], raw))
            nibbles = Cat(*(before[8 * n : 8 * n + 4] for n in range(MX_PACK - 1)), raw[:4])
            m.d.comb += self.word[lane].eq(Mux(narrow, nibbles, Cat(before, raw)))
        return m

    def _places(self, first: int) -> list[int]:
        """Offsets at which a group's scale may lie."""
        return [0, 4, 8, 12] if self.config.partitions >= 32 else [0]

    def _at(self, lanes: Any, group: int) -> Value:
        """A group's scale out of what was read."""
        per = self.config.quadrant // MX_ROWS
        first = group // per * self.config.quadrant + group % per
        codes = [lanes[first + place][:8] for place in self._places(first)]
        if len(codes) == 1:
            return codes[0]
        a, b, c, d = codes
        return Mux(self.offset[3], Mux(self.offset[2], d, c), Mux(self.offset[2], b, a))

    def _scale(self, m: Module, group: int) -> Signal:
        """The largest exponent of a block, as a scale code."""
        level: list[Value] = [self.exps[MX_ROWS * group + n] for n in range(MX_ROWS)]
        while len(level) > 1:
            level = [Mux(a > b, a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
        best, top = Signal(8, name=f"best{group}"), Signal(8, name=f"top{group}", reset_less=True)
        m.d.comb += best.eq(level[0])
        with m.If(self.enter & ((self.turn == 0) | (best > top))):
            m.d.sync += top.eq(best)
        emax, code, wide = Signal(5, name=f"emax{group}"), Signal(8, name=f"code{group}"), Signal(signed(10))
        with m.Switch(self.dtype):
            for dtype, fmt in PACKED.items():
                with m.Case(dtype.value):
                    m.d.comb += emax.eq((fmt.max_code >> fmt.man_bits) - fmt.bias)
        m.d.comb += [
            wide.eq(top - emax + self.nki),
            code.eq(Mux(top == E8M0_NAN, E8M0_NAN, Mux(wide < 0, 0, wide[:8]))),
        ]
        return code
