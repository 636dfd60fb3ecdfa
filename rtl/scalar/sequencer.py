"""Microsequencer of the scalar engine: walks a function's steps for one batch of elements after the other."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from models.functions import ActFunc, library
from models.microcode import OPERANDS, PARAMETER, Op, Step
from rtl.fp.decode import LATENCY as DECODE_LATENCY
from rtl.scalar.lane import READ, SLOTS, OperandLayout, StepLayout
from rtl.scalar.ops import OP_BITS
from rtl.scalar.wide import WIDE_BITS, WideLayout, wide_bits
from rtl.tiles import ClockedTile, TileLibrary

FUNCTION_BITS = max(ActFunc).value.bit_length()
STEP_DELAY = DECODE_LATENCY - READ
"""Cycles from `take` to the step that loads the element: the time its decoding has."""
assert STEP_DELAY == 1, "the read of the microcode takes one cycle"


def _word(s: Step, const_bits: int) -> int:
    """A step as it lies in the microcode: op, target, then for each operand: constant number, register, flags."""
    value, at = s.op.value | s.target << OP_BITS, OP_BITS + 3
    for o in (s.a, s.b, s.c):
        layout = OperandLayout().const(
            {
                "constant": int(o.constant),
                "index": 0 if o.constant else o.index,
                "negate": int(o.negate),
                "absolute": int(o.absolute),
            }
        )
        value |= (o.index if o.constant else 0) << at | layout.as_value().value << (at + const_bits)
        at += const_bits + OperandLayout().size
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroSequencerConfig:
    """Nothing to choose: the programs are those of models.functions."""


class MicroSequencer(ClockedTile):
    """Members
    -------
    start: one cycle while idle, with `function` (ActFunc) and `count`, the number of elements; 0 is done at once.
    ready: an element is there and its result has a place. take: it is taken in this cycle, STEP_DELAY cycles before its step.
    parameter: what PARAMETER is to the programs; held.
    step, constant_a, constant_b, constant_c: to all lanes.
    last: the step that is shown is the last one of its element.
    clear: forget everything. idle.

    A batch of SLOTS elements takes SLOTS * (1 + steps) cycles, and longer where elements do not come at once.
    """

    def __init__(self, config: MicroSequencerConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "start": In(1),
                "function": In(FUNCTION_BITS),
                "count": In(64),
                "parameter": In(WideLayout()),
                "ready": In(1),
                "take": Out(1),
                "step": Out(StepLayout()),
                **{f"constant_{name}": Out(WideLayout()) for name in OPERANDS},
                "last": Out(1),
                "clear": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        programs, constants = library()
        const_bits = (len(constants) - 1).bit_length()
        steps = [s for f in ActFunc for s in programs[f]]
        width = OP_BITS + 3 + 3 * (const_bits + OperandLayout().size)
        code: Any = Memory(shape=width, depth=len(steps), init=[_word(s, const_bits) for s in steps])
        m.submodules.microcode = code
        fetch = code.read_port()
        self._lookup(m, fetch, constants, const_bits)

        left = Signal(64)
        slot = Signal(range(SLOTS))
        address, first, end = (Signal(range(len(steps) + 1), name=n) for n in ("address", "first", "end"))
        active = Signal(SLOTS)
        at = 0
        begin, stop = Signal.like(first), Signal.like(end)
        with m.Switch(self.function):
            for f in ActFunc:
                with m.Case(f.value):
                    m.d.comb += [begin.eq(at), stop.eq(at + len(programs[f]) - 1)]
                at += len(programs[f])
        issue, load, last = Signal(), Signal(), Signal()
        with m.FSM() as fsm:
            m.d.comb += self.idle.eq(fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                with m.If(self.start & (self.count != 0) & ~self.clear):
                    m.d.sync += [left.eq(self.count), first.eq(begin), end.eq(stop), slot.eq(0), active.eq(0)]
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += [load.eq(1), self.take.eq(self.ready & (left != 0) & ~self.clear)]
                with m.If(self.take):
                    m.d.comb += issue.eq(1)
                    m.d.sync += left.eq(left - 1)
                with m.If(self.take | (left == 0)):
                    m.d.sync += [
                        active.bit_select(slot, 1).eq(self.take),
                        slot.eq(slot + 1),
                        address.eq(first),
                    ]
                    with m.If(slot == SLOTS - 1):
                        m.next = "STEP"
                with m.If(self.clear):
                    m.next = "IDLE"
            with m.State("STEP"):
                m.d.comb += [issue.eq(active.bit_select(slot, 1)), last.eq(address == end)]
                m.d.sync += slot.eq(slot + 1)
                with m.If(slot == SLOTS - 1):
                    m.d.sync += address.eq(address + 1)
                    with m.If(last):
                        m.d.sync += active.eq(0)
                        m.next = "IDLE"
                        with m.If(left != 0):
                            m.next = "LOAD"
                with m.If(self.clear):
                    m.next = "IDLE"
        m.d.comb += [fetch.addr.eq(address), fetch.en.eq(1)]
        shown_valid, shown_load, shown_last = Signal(), Signal(), Signal()
        shown_slot = Signal(range(SLOTS))
        m.d.sync += [
            shown_valid.eq(issue & ~self.clear),
            shown_load.eq(load),
            shown_last.eq(issue & last & ~self.clear),
            shown_slot.eq(slot),
        ]
        m.d.comb += [
            self.step.valid.eq(shown_valid),
            self.step.load.eq(shown_load),
            self.step.slot.eq(shown_slot),
            self.step.op.eq(Mux(shown_load, Op.FMA.value, fetch.data[:OP_BITS])),
            self.step.target.eq(Mux(shown_load, 0, fetch.data[OP_BITS : OP_BITS + 3])),
            self.last.eq(shown_last),
        ]
        return m

    def _lookup(self, m: Module, fetch: Any, constants: list[Any], const_bits: int) -> None:
        """Operands of the step that was read, and the constants that they name, a cycle later."""
        at = OP_BITS + 3
        for name in OPERANDS:
            # the parameter's place is never read
            words = [0 if c == PARAMETER else wide_bits(c) for c in constants]
            table: Any = Memory(shape=WIDE_BITS, depth=len(constants), init=words)
            m.submodules[f"constants_{name}"] = table
            port = table.read_port()
            size = OperandLayout().size
            number, given = fetch.data[at : at + const_bits], Signal(name=f"given_{name}")
            m.d.sync += given.eq(number == constants.index(PARAMETER))
            m.d.comb += [
                port.addr.eq(number),
                port.en.eq(1),
                getattr(self.step, name).as_value().eq(fetch.data[at + const_bits :][:size]),
                getattr(self, f"constant_{name}")
                .as_value()
                .eq(Mux(given, self.parameter.as_value(), Cat(port.data))),
            ]
            at += const_bits + size
