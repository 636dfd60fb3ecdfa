"""Registers of a sequencer: operands of control instructions, and addresses with registers added."""

from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models.flow import DYNAMIC
from models.isa import AP_OFFSETS, INSTR_BYTES, REGISTERS, Cond, Opcode, RegOp
from rtl.interfaces import InstrLayout
from rtl.tiles import TileLibrary

SELECT = range(REGISTERS)


class RegisterFile(wiring.Component):
    """Members
    -------
    instr: the instruction looked at, stable from the cycle before its results are used.
    indexed: its word with registers added to the addresses, in the same cycle (models.flow.indexed).
    taken: whether its branch is taken; write: put its result into rd (REGISTER). Both one cycle after `instr` at the earliest.
    clear: all registers become 0.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "instr": In(InstrLayout()),
                "indexed": Out(8 * INSTR_BYTES),
                "taken": Out(1),
                "write": In(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        instr = self.instr
        held = [Signal(32, name=f"r{n}") for n in range(1, REGISTERS)]
        file = Array([Value.cast(0), *held])
        control, is_dma = Signal(), Signal()
        m.d.comb += [
            control.eq((instr.opcode == Opcode.REGISTER) | (instr.opcode == Opcode.BRANCH)),
            is_dma.eq(instr.opcode == Opcode.DMA),
        ]
        # three read ports: two of them read the operands of a control instruction, which has no addresses
        ports = [Signal(32, name=f"port_{name}") for name in DYNAMIC]
        for port, name, other in zip(ports, DYNAMIC, ("ra", "rb", None), strict=True):
            number = Signal(SELECT, name=f"number_{name}")
            dynamic = instr[f"dyn_{name}"][: number.shape().width]
            operand = instr[other][: number.shape().width] if other else dynamic
            m.d.comb += [number.eq(Mux(control, operand, dynamic)), port.eq(file[number])]
        self._addresses(m, dict(zip(DYNAMIC, ports, strict=True)), is_dma)

        a, b = Signal(32), Signal(32)
        m.d.sync += [a.eq(ports[0]), b.eq(Mux(instr.use_imm[0], instr.imm, ports[1]))]
        result = Signal(32)
        self._alu(m, a, b, result)
        with m.If(self.clear):
            m.d.sync += [r.eq(0) for r in held]
        with m.Elif(self.write):
            with m.Switch(instr.rd):
                for n, r in enumerate(held, 1):
                    with m.Case(n):
                        m.d.sync += r.eq(result)
        return m

    def _addresses(self, m: Module, ports: dict[str, Signal], is_dma: Signal) -> None:
        """DMA's source lies where the pattern of dst does: one adder serves both."""
        word = self.instr.as_value()
        sums: list[tuple[int, Value]] = []
        first = AP_OFFSETS["dst"] * 8
        operand = Signal(signed(64))
        with m.If(is_dma):
            m.d.comb += operand.eq(ports["src0"].as_signed())
        with m.Else():
            m.d.comb += operand.eq(ports["dst"])
        wide = Signal(64)
        m.d.comb += wide.eq(word[first : first + 64] + operand)
        sums.append((first, Mux(is_dma, wide, Cat(wide[:32], word[first + 32 : first + 64]))))
        second = Signal(64)
        at = 8 * 48
        m.d.comb += second.eq(word[at : at + 64] + Mux(is_dma, ports["dst"].as_signed(), 0))
        sums.append((at, second))
        for name in ("src0", "src1"):
            narrow = Signal(32, name=f"sum_{name}")
            at = 8 * AP_OFFSETS[name]
            m.d.comb += narrow.eq(word[at : at + 32] + Mux(is_dma, 0, ports[name]))
            sums.append((at, narrow))
        m.d.comb += self.indexed.eq(word)
        for at, value in sums:
            width = value.shape().width
            m.d.comb += self.indexed[at : at + width].eq(value)

    def _alu(self, m: Module, a: Signal, b: Signal, result: Signal) -> None:
        less, below, equal = Signal(), Signal(), Signal()
        m.d.comb += [
            less.eq(a.as_signed() < b.as_signed()),
            below.eq(a < b),
            equal.eq(a == b),
        ]
        by = b[:5]
        results = {
            RegOp.MOVE: b,
            RegOp.ADD: a + b,
            RegOp.SUB: a - b,
            RegOp.MUL: a * b,
            RegOp.AND: a & b,
            RegOp.OR: a | b,
            RegOp.XOR: a ^ b,
            RegOp.SHL: (a << by)[:32],
            RegOp.SHR: a >> by,
            RegOp.SRA: a.as_signed() >> by,
            RegOp.MIN: Mux(less, a, b),
            RegOp.MAX: Mux(less, b, a),
        }
        with m.Switch(self.instr.reg_op):
            for op, value in results.items():
                with m.Case(op.value):
                    m.d.comb += result.eq(value)
        conditions = {
            Cond.ALWAYS: 1,
            Cond.EQ: equal,
            Cond.NE: ~equal,
            Cond.LT: less,
            Cond.GE: ~less,
            Cond.LTU: below,
            Cond.GEU: ~below,
        }
        with m.Switch(self.instr.cond):
            for cond, value in conditions.items():
                with m.Case(cond.value):
                    m.d.comb += self.taken.eq(value)
