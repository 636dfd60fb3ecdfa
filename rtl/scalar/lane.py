"""One lane of the scalar engine: a register file, a multiply-adder and the other operations, for SLOTS elements in turn."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from models.microcode import OPERANDS, REGISTERS, Op
from rtl.fp import decode, encode
from rtl.interfaces import mac_code_bits
from rtl.lib.delay import delayed
from rtl.scalar.fma import LATENCY as FMA_LATENCY
from rtl.scalar.fma import WideFma, WideFmaConfig
from rtl.scalar.ops import OP_BITS, WideOps, WideOpsConfig
from rtl.scalar.sums import LaneSums, SumLayout, SumsConfig
from rtl.scalar.turns import LATENCY as TURNS_LATENCY
from rtl.scalar.turns import WideTurns, WideTurnsConfig
from rtl.scalar.wide import WIDE_BITS, WideLayout, from_fp32, to_fp32
from rtl.tiles import ClockedTile, TileLibrary

SLOTS = 8
"""Elements that a lane has under way, one after the other in every step: enough cycles for a step to write what the next one reads."""
SLOT_BITS = (SLOTS - 1).bit_length()
REGISTER_BITS = (REGISTERS - 1).bit_length()
READ = 1
"""Cycles from a step to its operands."""
WRITE = READ + FMA_LATENCY
assert WRITE + 1 <= SLOTS
assert TURNS_LATENCY == FMA_LATENCY
LATENCY = WRITE + 1 + encode.LATENCY
"""Cycles from a step to `o`."""


class OperandLayout(data.StructLayout):
    """Where an operand comes from: register `index`, or the constant beside the step; made positive, then negated."""

    def __init__(self) -> None:
        super().__init__(
            {
                "constant": unsigned(1),
                "index": unsigned(REGISTER_BITS),
                "negate": unsigned(1),
                "absolute": unsigned(1),
            }
        )


class StepLayout(data.StructLayout):
    """One step of one slot. `load`: FMA of the element that comes in, `scale` and `bias`, whatever a, b, c say."""

    def __init__(self) -> None:
        fields: dict[str, Any] = {
            "valid": unsigned(1),
            "load": unsigned(1),
            "op": unsigned(OP_BITS),
            "slot": unsigned(SLOT_BITS),
            "target": unsigned(REGISTER_BITS),
        }
        super().__init__({**fields, **{name: OperandLayout() for name in OPERANDS}})


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalarLaneConfig:
    """Nothing to choose."""


class ScalarLane(ClockedTile):
    """Executes the steps that it is told, one a cycle, and shows every step's result as an element.

    Members
    -------
    step: StepLayout. Steps of the same slot are SLOTS cycles or more apart.
    constant_a, constant_b, constant_c: WideLayout, READ cycles after their step.
    raw, dtype: the element that a `load` takes, decode.LATENCY - READ cycles before its step.
    scale: WideLayout; bias: FP32 bits; o_dtype, saturate: how results are cast. All held while steps are under way.
    sums, mine: what the accumulators do, and whether this lane's do it; a step's FP32 result is there for them LATENCY - encode.LATENCY cycles after it.
    o: the result as a raw element, LATENCY cycles after its step; the sum of the accumulators encode.LATENCY + 1 cycles after sums.show.
    """

    def __init__(self, config: ScalarLaneConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        code = mac_code_bits()
        super().__init__(
            {
                "step": In(StepLayout()),
                **{f"constant_{name}": In(WideLayout()) for name in OPERANDS},
                "raw": In(32),
                "dtype": In(code),
                "scale": In(WideLayout()),
                "bias": In(32),
                "o_dtype": In(code),
                "saturate": In(1),
                "sums": In(SumLayout()),
                "mine": In(1),
                "o": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        file: Any = Memory(shape=WIDE_BITS, depth=SLOTS * REGISTERS, init=[])
        m.submodules.registers = file
        m.submodules.decode = entry = self.tiles.place(decode.Decode, decode.DecodeConfig())
        m.submodules.fma = fma = self.tiles.place(WideFma, WideFmaConfig())
        m.submodules.ops = ops = self.tiles.place(WideOps, WideOpsConfig())
        m.submodules.turns = turns = self.tiles.place(WideTurns, WideTurnsConfig())
        m.submodules.encode = out = self.tiles.place(encode.Encode, encode.EncodeConfig())
        now = Signal(StepLayout(), reset_less=True)
        m.d.sync += now.eq(self.step)
        m.d.comb += [entry.raw.eq(self.raw), entry.dtype.eq(self.dtype)]
        loaded = {
            "a": from_fp32(m, "element", entry.o),
            "b": self.scale,
            "c": from_fp32(m, "bias_wide", self.bias),
        }
        operands = {}
        for name in OPERANDS:
            port = file.read_port()
            where, source = getattr(self.step, name), getattr(now, name)
            value, picked = (
                Signal(WideLayout(), name=f"{name}_value"),
                Signal(WideLayout(), name=f"{name}_picked"),
            )
            held = Mux(source.constant, getattr(self, f"constant_{name}").as_value(), port.data)
            m.d.comb += [
                port.addr.eq(Cat(self.step.slot, where.index)),
                port.en.eq(1),
                picked.as_value().eq(held),
                value.eq(picked),
                value.neg.eq(~picked.nan & ((picked.neg & ~source.absolute) ^ source.negate)),
            ]
            operands[name] = Signal(WideLayout(), name=name)
            m.d.comb += operands[name].as_value().eq(Mux(now.load, loaded[name].as_value(), value.as_value()))
        a, b, c = operands.values()
        multiply = now.load | (now.op == Op.FMA)
        m.d.comb += [
            ops.op.eq(now.op),
            ops.a.eq(a),
            ops.b.eq(b),
            ops.c.eq(c),
            fma.a.eq(a),
            fma.b.eq(b),
            fma.c.as_value().eq(Mux(multiply, c.as_value(), ops.o.as_value())),
            fma.only_c.eq(~multiply),
            turns.a.eq(a),
            turns.whole.eq(now.op == Op.QUADRANT),
        ]
        turned = ~now.load & ((now.op == Op.TURN) | (now.op == Op.QUADRANT))
        final = Signal(WideLayout())
        done = delayed(m, self.tiles, "done", Cat(now.valid, turned, now.slot, now.target), WRITE - READ)
        write = file.write_port()
        result = Signal(32, reset_less=True)
        m.submodules.sums = sums = self.tiles.place(LaneSums, SumsConfig())
        m.d.comb += [
            write.en.eq(done[0]),
            write.addr.eq(done[2:]),
            final.as_value().eq(Mux(done[1], turns.o.as_value(), fma.o.as_value())),
            write.data.eq(final.as_value()),
            sums.x.eq(result),
            sums.ctl.eq(self.sums),
            sums.mine.eq(self.mine),
            out.x.eq(result),
            out.dtype.eq(self.o_dtype),
            out.saturate.eq(self.saturate),
            self.o.eq(out.raw),
        ]
        m.d.sync += result.eq(Mux(self.sums.show, sums.o, to_fp32(m, "result", final)))
        return m
