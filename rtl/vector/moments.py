"""Count, mean and variance of a lane's elements in two walks: what leads the lanes, and what a lane has for it beside its ALUs."""

from typing import Any

from amaranth import Array, C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out

from models.fp import IDENTITY, PARTIALS
from models.isa import AluOp
from models.moments import AGGREGATE, MOMENTS, STATS, TRIPLE
from rtl.fp import decode, divide
from rtl.tiles import ClockedTile, TileLibrary
from rtl.vector.groups import ALU_LATENCY, OP_BITS, TAG_BITS

COUNT_BITS = 10
"""Of a BN_STATS's number of elements."""
ONE = 0x3F800000
LARGEST = 0x7F7FFFFF
NOTHING = IDENTITY[AluOp.ADD]
DEPTH = decode.LATENCY + 4 * ALU_LATENCY
"""Cycles from an element to the sum that it has gone into, at the most: first ALU, two products, addition."""
assert ALU_LATENCY < TRIPLE, "a sum must be back before its next element comes"


class A(enum.Enum, shape=3):
    """First operand of the first ALU and of the divider: the element, shift, mean, scratch, a sum, the count."""

    ELEMENT = 0
    SHIFT = 1
    MEAN = 2
    SCRATCH = 3
    SUM = 4
    COUNT = 5


class B(enum.Enum, shape=3):
    """Second operand; SUM is the other half of a sum, ZERO takes nothing away, LARGEST is the largest finite number, CENTRE is what an element's distance is from."""

    CENTRE = 0
    SHIFT = 1
    ZERO = 2
    SCRATCH = 3
    SUM = 4
    COUNT = 5
    LARGEST = 6


STEPS = (
    # after the first walk: the mean, and in SCRATCH what its rounding adds to the second walk's sum
    (AluOp.ADD, A.SUM, B.SUM, A.SCRATCH),
    (AluOp.DIVIDE, A.SCRATCH, B.COUNT, A.SCRATCH),
    (AluOp.ADD, A.SHIFT, B.SCRATCH, A.MEAN),
    (AluOp.SUB, A.MEAN, B.SHIFT, A.SHIFT),
    (AluOp.SUB, A.SCRATCH, B.SHIFT, A.SCRATCH),
    (AluOp.MUL, A.SCRATCH, B.SCRATCH, A.SCRATCH),
    (AluOp.MUL, A.SCRATCH, B.COUNT, A.SCRATCH),
    (AluOp.MIN, A.SCRATCH, B.LARGEST, A.SCRATCH),
    # after the second: variance * count in SHIFT, and of triples the variance
    (AluOp.ADD, A.SUM, B.SUM, A.SHIFT),
    (AluOp.SUB, A.SHIFT, B.SCRATCH, A.SHIFT),
    (AluOp.MAX, A.SHIFT, B.ZERO, A.SHIFT),
    (AluOp.DIVIDE, A.SHIFT, B.COUNT, A.SHIFT),
)
"""Operations between and after the walks: result into the register that the last entry names."""
SECOND_WALK = 8
"""Step before which it is."""
WRITTEN = (A.SHIFT, A.MEAN, A.SCRATCH)
"""Bits of `write`."""
GIVEN = {STATS: (A.COUNT, A.MEAN, A.SHIFT), AGGREGATE: (A.MEAN, A.SHIFT)}
"""Results, of one set."""
assert all(len(names) * (2 if op == STATS else 1) == MOMENTS[op] for op, names in GIVEN.items())


class MomentLayout(data.StructLayout):
    """What the lanes are told each cycle, each field at the place in their pipeline where it is used.

    Held: on (an instruction of this kind runs), triples (BN_AGGR), second (walk), op (of the first ALU).
    begin: sums and shifts start anew. enter, kind: an element comes to the first ALU; of triples its place in one, else its number
    mod 4. a, b, slot: operands, and of which set of numbers. count: its elements (BN_STATS). give: a result goes out instead.
    of_mean, hold: the second ALU's factor is the triple's count; the distance that comes to it is kept. again: its product is multiplied by that.
    tag, put, put_tag: sum that an element is added to; the second ALU gives this one. write, write_slot, divided: register that the first ALU's
    result goes into, or the divider's. divide: it takes the operands.
    """

    def __init__(self) -> None:
        bits = ("on", "triples", "second", "begin", "enter", "slot", "give", "of_mean", "hold", "again")
        super().__init__(
            {name: unsigned(1) for name in (*bits, "put", "write_slot", "divided", "divide")}
            | {name: unsigned(TAG_BITS) for name in ("kind", "tag", "put_tag")}
            | {
                "op": unsigned(OP_BITS),
                "a": A,
                "b": B,
                "count": unsigned(32),
                "write": unsigned(len(WRITTEN)),
            }
        )


class Moments(ClockedTile):
    """A lane's registers for two sets of numbers, and what its ALUs are given from them.

    Members
    -------
    x: FP32 element with `control.enter`. first, quotient: results of the first ALU and of the divider. sums: the lane's partial results.
    a, b: operands of the first ALU and of the divider. factor: the second ALU gives first * factor + addend, or with control.again its last
        product times `factor` in the place of that product.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ins = {name: In(32) for name in ("x", "first", "quotient")}
        outs = {name: Out(32) for name in ("a", "b", "factor", "addend")}
        sums = data.ArrayLayout(unsigned(32), PARTIALS)
        super().__init__({**ins, **outs, "sums": In(sums), "control": In(MomentLayout())})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        ctl = self.control
        shifts, means, scratches = (
            [Signal(32, name=f"{name}{n}", reset_less=True) for n in range(2)]
            for name in ("shift", "mean", "scratch")
        )
        found = [Signal(name=f"found{n}", reset_less=True) for n in range(2)]
        weight, distance = Signal(32, reset_less=True), Signal(32, reset_less=True)
        shift, mean, scratch, known = (
            Mux(ctl.slot, pair[1], pair[0]) for pair in (shifts, means, scratches, found)
        )
        of_mean = ~ctl.triples | (ctl.kind == 1)
        centre = Mux(of_mean, Mux(ctl.second, mean, Mux(known, shift, self.x)), 0)
        one_sum = Mux(ctl.second, self.sums[2], self.sums[1])
        total = Mux(ctl.triples, one_sum, Mux(ctl.slot, self.sums[1], self.sums[0]))
        other = Mux(ctl.triples, NOTHING, Mux(ctl.slot, self.sums[3], self.sums[2]))
        count = Signal(32)
        m.d.comb += count.eq(Mux(ctl.triples, self.sums[0], ctl.count))
        first, second = Signal(32), Signal(32)
        with m.Switch(ctl.a):
            for case, value in zip(A, (self.x, shift, mean, scratch, total, count), strict=True):
                with m.Case(case):
                    m.d.comb += first.eq(value)
        with m.Switch(ctl.b):
            for place, value in zip(
                B, (centre, shift, C(0, 32), scratch, other, count, C(LARGEST, 32)), strict=True
            ):
                with m.Case(place):
                    m.d.comb += second.eq(value)
        own = Mux(ctl.again, distance, Mux(ctl.second, self.first, ONE))
        m.d.comb += [
            self.a.eq(Mux(ctl.give & ~count[:31].any(), 0, first)),
            self.b.eq(second),
            self.factor.eq(Mux(ctl.triples & ~ctl.again, Mux(ctl.of_mean, weight, ONE), own)),
            self.addend.eq(Array(self.sums[n] for n in range(PARTIALS))[ctl.tag]),
        ]
        with m.If(ctl.enter & ctl.triples & (ctl.kind == 0)):
            m.d.sync += weight.eq(self.x)
        with m.If(ctl.hold):
            m.d.sync += distance.eq(self.first)
        result = Mux(ctl.divided, self.quotient, self.first)
        for n in range(2):
            takes = ctl.enter & ~ctl.second & of_mean & ~found[n] & (ctl.slot == n)
            for bit, register in enumerate((shifts[n], means[n], scratches[n])):
                with m.If(ctl.write[bit] & (ctl.write_slot == n)):
                    m.d.sync += register.eq(result)
            with m.If(ctl.begin):
                m.d.sync += found[n].eq(0)
            with m.Elif(takes):
                m.d.sync += [shifts[n].eq(self.x), found[n].eq(~ctl.triples | weight[:31].any())]
        return m


def lead_moments(
    m: Module, unit: Any, now: Any, idle: Value, restart: Value, element: Value, last: Value, room: Value
) -> None:
    """What a MomentControl is told: the instruction that runs, and the elements that enter the lanes."""
    m.d.comb += [
        unit.start.eq(restart),
        unit.on.eq(now.moments & ~idle),
        unit.triples.eq(now.triples),
        unit.count.eq(now.group),
        unit.element.eq(element),
        unit.last.eq(last),
        unit.room.eq(room),
    ]


class MomentControl(ClockedTile):
    """Two walks over the elements, the steps between and after them, then the results.

    Members
    -------
    start: one cycle; forgets everything. on, triples, count: an instruction of this kind runs, BN_AGGR, and how many elements it has; held
        while results are under way.
    open: elements may enter the lanes. element, last: one does, the last of a walk. again, ready: the elements are wanted once more, from the
        first on; they will come.
    room, result: there is room for a result; one enters the lanes' pipeline.
    control: to the lanes.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ins = ("start", "on", "triples", "element", "last", "ready", "room")
        outs = {name: Out(1) for name in ("open", "again", "result")}
        super().__init__(
            {name: In(1) for name in ins} | outs | {"count": In(COUNT_BITS), "control": Out(MomentLayout())}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        triples = self.triples
        walking, second, wanted, ended = Signal(init=1), Signal(), Signal(), Signal()
        step, cycle, owed = (
            Signal(range(len(STEPS) + 1)),
            Signal(range(32)),
            Signal(range(max(MOMENTS.values()) + 1)),
        )
        kind = Signal(TAG_BITS)
        line = [Signal(1 + TAG_BITS, name=f"line{n}") for n in range(DEPTH)]
        given = Signal()
        m.d.comb += [
            self.open.eq(~self.on | (walking & ~ended)),
            self.again.eq(wanted & ~self.start),
            given.eq((owed != 0) & self.room & ~self.start),
            self.result.eq(given),
        ]
        entry = Cat(self.element & self.on, kind)
        for n, stage in enumerate(line):
            m.d.sync += stage.eq(Mux(self.start, 0, entry if n == 0 else line[n - 1]))
        with m.If(self.element):
            m.d.sync += kind.eq(Mux(triples & (kind == TRIPLE - 1), 0, kind + 1))
        with m.If(wanted & self.ready):
            m.d.sync += wanted.eq(0)
        # one step after the other; `step` is the next one where elements pass
        dividing = Signal()
        op, a, b, write = Signal(OP_BITS), Signal(A), Signal(B), Signal(len(WRITTEN))
        with m.Switch(step):
            for n, (name, x, y, to) in enumerate(STEPS):
                with m.Case(n):
                    m.d.comb += [op.eq(name.value), a.eq(x), b.eq(y), write.eq(1 << WRITTEN.index(to))]
                    m.d.comb += dividing.eq(name == AluOp.DIVIDE)
        one = Mux(dividing, divide.LATENCY, ALU_LATENCY)
        both = Mux(dividing, divide.PACE + divide.LATENCY, ALU_LATENCY + 1)
        done = Signal()
        m.d.comb += done.eq(cycle == Mux(triples, one, both))
        steps = Mux(triples, len(STEPS), len(STEPS) - 1)
        with m.If(self.start):
            m.d.sync += [
                *(s.eq(0) for s in (second, wanted, ended, step, cycle, owed, kind)),
                walking.eq(1),
            ]
        with m.Elif(~self.on):
            pass
        with m.Elif(walking):
            with m.If(self.element & self.last):
                m.d.sync += [ended.eq(1), wanted.eq(~second)]
            with m.If(ended & ~Cat(stage[0] for stage in line).any()):
                m.d.sync += [walking.eq(0), ended.eq(0), kind.eq(0)]
        with m.Elif(step != steps):
            m.d.sync += cycle.eq(cycle + 1)
            with m.If(done):
                m.d.sync += [cycle.eq(0), step.eq(step + 1)]
                with m.If(step == SECOND_WALK - 1):
                    m.d.sync += [walking.eq(1), second.eq(1)]
                with m.If(step + 1 == steps):
                    m.d.sync += owed.eq(Mux(triples, MOMENTS[AGGREGATE], MOMENTS[STATS]))
        with m.Elif(given):
            m.d.sync += owed.eq(owed - 1)
        self._to_lanes(
            m, walking, second, step, steps, cycle, line, owed, given, (op, a, b, write), dividing, done
        )
        return m

    def _to_lanes(
        self,
        m: Module,
        walking: Signal,
        second: Signal,
        step: Signal,
        steps: Value,
        cycle: Signal,
        line: list[Signal],
        owed: Signal,
        given: Signal,
        now: tuple[Signal, ...],
        dividing: Signal,
        done: Signal,
    ) -> None:
        """`control`: the elements' by where they are, the steps' by the cycle, the results' as they come to the first ALU."""
        ctl, triples = self.control, self.triples
        op, a, b, write = now
        stepping = Signal()
        m.d.comb += stepping.eq(self.on & ~walking & (step != steps))
        # results come through the lanes' decoding time, so that they take as long as elements
        out: Value = Cat(given, owed)
        for n in range(decode.LATENCY):
            held = Signal(len(out), name=f"given{n}")
            m.d.sync += held.eq(Mux(self.start, 0, out))
            out = held
        leaving, left = out[0], out[1:]
        what, of = Signal(A), Signal()
        with m.If(triples):
            for n, name in enumerate(GIVEN[AGGREGATE]):
                with m.If(left == MOMENTS[AGGREGATE] - n):
                    m.d.comb += what.eq(name)
        with m.Else():
            m.d.comb += of.eq(left <= len(GIVEN[STATS]))
            for n, name in enumerate(GIVEN[STATS] * 2):
                with m.If(left == MOMENTS[STATS] - n):
                    m.d.comb += what.eq(name)
        enters = line[decode.LATENCY - 1]
        factor = line[decode.LATENCY + ALU_LATENCY - 1]
        product = line[decode.LATENCY + 2 * ALU_LATENCY - 1]
        added = line[decode.LATENCY + 3 * ALU_LATENCY - 1]
        added_twice = line[decode.LATENCY + 4 * ALU_LATENCY - 1]
        twice = triples & second
        result = added[1:]
        slot = Signal()
        m.d.comb += slot.eq(Mux(walking, ~triples & enters[1], Mux(stepping, cycle != 0, of)))
        m.d.comb += [
            ctl.on.eq(self.on),
            ctl.triples.eq(triples),
            ctl.second.eq(second),
            ctl.begin.eq(self.start | (stepping & done & (step == SECOND_WALK - 1) & ~triples)),
            ctl.enter.eq(enters[0] & walking),
            ctl.kind.eq(enters[1:]),
            ctl.op.eq(Mux(stepping & ~dividing, op, AluOp.SUB.value)),
            ctl.a.eq(Mux(walking, A.ELEMENT, Mux(stepping, a, what))),
            ctl.b.eq(Mux(walking, B.CENTRE, Mux(stepping, b, B.ZERO))),
            ctl.slot.eq(slot),
            ctl.count.eq(self._number(m, Mux(slot, self.count >> 1, (self.count + 1) >> 1))),
            ctl.give.eq(leaving),
            ctl.of_mean.eq(factor[1:] == 1),
            ctl.hold.eq(factor[0] & (factor[1:] == 1) & twice),
            ctl.again.eq(product[0] & (product[1:] == 1) & twice),
            ctl.tag.eq(Mux(twice, 2, product[1:])),
            ctl.put.eq(Mux(twice, added_twice[0] & (added_twice[1:] == 1), added[0]) & walking & self.on),
            ctl.put_tag.eq(Mux(twice, 2, result)),
            ctl.write_slot.eq(cycle == Mux(dividing, divide.PACE + divide.LATENCY, ALU_LATENCY + 1)),
            ctl.divided.eq(dividing),
            ctl.divide.eq(stepping & dividing & ((cycle == 0) | (~triples & (cycle == divide.PACE)))),
        ]
        first_done = cycle == Mux(dividing, divide.LATENCY, ALU_LATENCY)
        with m.If(stepping & (first_done | done)):
            m.d.comb += ctl.write.eq(write)

    def _number(self, m: Module, count: Value) -> Signal:
        """FP32 of a small count."""
        out = Signal(32)
        for bit in range(COUNT_BITS):
            with m.If(count[bit]):
                m.d.comb += out.eq(((127 + bit) << 23) | (count[:bit] << (23 - bit)))
        return out
