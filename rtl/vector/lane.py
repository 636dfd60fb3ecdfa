"""One lane of the vector engine: decode, two ALU stages, encode."""

from dataclasses import dataclass
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from models.formats import DType
from models.isa import AluOp
from rtl.fp import add, decode, encode, mul
from rtl.fp.extreme import canonical, extreme
from rtl.interfaces import mac_code_bits
from rtl.lib.delay import Delay, DelayConfig
from rtl.tiles import ClockedTile, TileLibrary

ALU_LATENCY = max(add.LATENCY, mul.LATENCY)
LATENCY = decode.LATENCY + 2 * ALU_LATENCY + encode.LATENCY
"""Cycles from `a` and `b` to `o`."""
OP_BITS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneConfig:
    """Nothing to choose."""


class VectorAlu(ClockedTile):
    """o = a op b in FP32, ALU_LATENCY cycles later; `op` (AluOp) is held while results are under way."""

    def __init__(self, config: LaneConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__({"a": In(32), "b": In(32), "op": In(OP_BITS), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.add = adder = self.tiles.place(add.Fp32Add, add.Fp32AddConfig())
        m.submodules.mul = multiplier = self.tiles.place(mul.Fp32Mul, mul.Fp32MulConfig())
        subtract = self.op == AluOp.SUB
        best = extreme(m, "best", self.a, self.b, self.op == AluOp.MAX)
        other = Signal(32)
        m.d.comb += [
            adder.a.eq(self.a),
            adder.b.eq(Cat(self.b[:31], self.b[31] ^ subtract)),
            multiplier.a.eq(self.a),
            multiplier.b.eq(self.b),
            other.eq(Mux(self.op == AluOp.BYPASS, canonical(self.a), best)),
        ]
        for stage in range(ALU_LATENCY):
            held = Signal(32, name=f"other{stage}", reset_less=True)
            m.d.sync += held.eq(other)
            other = held
        with m.Switch(self.op):
            with m.Case(AluOp.ADD.value, AluOp.SUB.value):
                m.d.comb += self.o.eq(adder.o)
            with m.Case(AluOp.MUL.value):
                m.d.comb += self.o.eq(multiplier.o)
            with m.Default():
                m.d.comb += self.o.eq(other)
        return m


class VectorLane(ClockedTile):
    """o = encode((decode(a) op0 decode(b)) op1 c), LATENCY cycles later; one element a cycle, never stalls.

    Members
    -------
    a, b: raw elements of types a_dtype and b_dtype. c: FP32 bits. o: raw element of type o_dtype, cast as `saturate` says.
    copy: o is a, bit for bit. All but `a` and `b` are held while results are under way.
    """

    def __init__(self, config: LaneConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        code = mac_code_bits()
        super().__init__(
            {
                "a": In(32),
                "b": In(32),
                "c": In(32),
                "a_dtype": In(code),
                "b_dtype": In(code),
                "o_dtype": In(code),
                "op0": In(OP_BITS),
                "op1": In(OP_BITS),
                "saturate": In(1),
                "copy": In(1),
                "o": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        values: list[Value] = []
        for name, raw, dtype in (("a", self.a, self.a_dtype), ("b", self.b, self.b_dtype)):
            m.submodules[f"decode_{name}"] = unit = self.tiles.place(decode.Decode, decode.DecodeConfig())
            m.d.comb += [unit.raw.eq(raw), unit.dtype.eq(dtype)]
            values.append(unit.o)
        m.submodules.alu0 = alu0 = self.tiles.place(VectorAlu, self.config)
        m.submodules.alu1 = alu1 = self.tiles.place(VectorAlu, self.config)
        m.submodules.encode = out = self.tiles.place(encode.Encode, encode.EncodeConfig())
        m.submodules.raw = raw = self.tiles.place(Delay, DelayConfig(width=32, cycles=LATENCY))
        m.d.comb += [
            alu0.a.eq(values[0]),
            alu0.b.eq(values[1]),
            alu0.op.eq(self.op0),
            alu1.a.eq(alu0.o),
            alu1.b.eq(self.c),
            alu1.op.eq(self.op1),
            out.x.eq(alu1.o),
            out.dtype.eq(self.o_dtype),
            out.saturate.eq(self.saturate),
            raw.i.eq(self.a),
            self.o.eq(Mux(self.copy, raw.o, out.raw)),
        ]
        return m


FP32_CODE = C(DType.FP32.value, mac_code_bits())
"""Type of immediates."""
