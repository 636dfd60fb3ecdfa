"""GroupControl with the lane that it leads: results are the model's, whatever comes when; a group takes its elements' cycles."""

from typing import Any

import numpy as np
import pytest
from amaranth import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models import fp
from models.elements import ALU_OPS
from models.formats import DType
from models.fp import IDENTITY, PARTIALS
from models.isa import AluOp
from rtl.tiles import TileLibrary
from rtl.vector.groups import PACE, GroupControl
from rtl.vector.lane import LATENCY, REDUCE_LATENCY, LaneConfig, VectorLane
from tb.lib.simulate import rng, simulate


class Reducer(wiring.Component):
    """One lane, FP32 in and out."""

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "group": In(32),
                "scan": In(1),
                "op1": In(4),
                "initial": In(32),
                "y": In(32),
                "op": In(4),
                "negate": In(1),
                "x": In(32),
                "valid": In(1),
                "room": In(1),
                "take": Out(1),
                "result": Out(1),
                "o": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tiles = TileLibrary(inline=True)
        m.submodules.control = control = tiles.place(GroupControl, None)
        m.submodules.lane = lane = tiles.place(VectorLane, LaneConfig())
        m.d.comb += [
            control.start.eq(self.start),
            control.group.eq(self.group),
            control.on.eq(~self.scan),
            control.scan.eq(self.scan),
            control.initial.eq(self.initial),
            control.negate.eq(self.negate),
            control.op.eq(self.op),
            control.valid.eq(self.valid),
            control.room.eq(self.room),
            self.take.eq(control.take),
            self.result.eq(control.result),
            lane.a.eq(self.x),
            lane.a_dtype.eq(DType.FP32.value),
            lane.o_dtype.eq(DType.FP32.value),
            lane.op0.eq(self.op),
            lane.op1.eq(Mux(self.scan, self.op1, self.op)),
            lane.second.eq(self.scan),
            lane.b.eq(self.y),
            lane.b_dtype.eq(DType.FP32.value),
            lane.reduce.eq(control.control),
            self.o.eq(lane.o),
        ]
        return m


def numbers(random: Any, count: int) -> np.ndarray:
    """FP32: corners, and numbers whose sums round."""
    corners = (0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x7F7FFFFF)
    bits = [
        random.choice(corners)
        if random.random() < 0.1
        else random.getrandbits(1) << 31 | random.randint(110, 140) << 23 | random.getrandbits(23)
        for _ in range(count)
    ]
    return np.array(bits, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize("rate", [1.0, 0.6])
@pytest.mark.parametrize("op", list(IDENTITY), ids=lambda o: o.name)
def test_groups_of_any_size(op, rate):
    random = rng()
    dut = Reducer()

    async def bench(ctx):
        for group in [*range(1, 10), random.randint(10, 40)]:
            count, negate = random.randint(1, 5), random.getrandbits(1)
            x = numbers(random, count * group)
            want = fp.reduce(op, x.reshape(count, group))
            want = (
                np.where(np.isnan(want), want, -want if negate else want).astype(np.float32).view(np.uint32)
            )
            for signal, value in ((dut.op, op), (dut.negate, negate), (dut.group, group), (dut.start, 1)):
                ctx.set(signal, int(value))
            ctx.set(dut.valid, 0)
            await ctx.tick()
            ctx.set(dut.start, 0)
            due, got, at, cycles = [], [], 0, 0
            while len(got) < count:
                ctx.set(dut.valid, int(at < x.size and random.random() < rate))
                ctx.set(dut.x, int(x.view(np.uint32)[at]) if at < x.size else random.getrandbits(32))
                ctx.set(dut.room, int(random.random() < rate))
                due = [d - 1 for d in due]
                if due and due[0] == 0:
                    got.append(ctx.get(dut.o))
                    due.pop(0)
                at += ctx.get(dut.take)
                if ctx.get(dut.result):
                    due.append(REDUCE_LATENCY)
                cycles += 1
                await ctx.tick()
                assert cycles < 3000
            assert got == want.tolist(), f"{AluOp(op).name} of {group}"
            if rate == 1.0:
                assert cycles == count * -(-group // PARTIALS) * PARTIALS + REDUCE_LATENCY

    simulate(dut, bench)


@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_scans(rate):
    random = rng()
    dut = Reducer()

    async def bench(ctx):
        for _ in range(12):
            count, op0, op1 = random.randint(1, 20), random.choice(ALU_OPS), random.choice(ALU_OPS)
            x, y, first = numbers(random, count), numbers(random, count), numbers(random, 1)
            want, state = [], first
            for n in range(count):
                state = fp.alu(op1, fp.alu(op0, state, x[n : n + 1]), y[n : n + 1])
                want.append(int(state.view(np.uint32)[0]))
            settings = {"op": op0, "op1": op1, "initial": first.view(np.uint32)[0], "scan": 1, "start": 1}
            for name, value in settings.items():
                ctx.set(getattr(dut, name), int(value))
            ctx.set(dut.valid, 0)
            await ctx.tick()
            ctx.set(dut.start, 0)
            due, got, at, cycles = [], [], 0, 0
            while len(got) < count:
                ctx.set(dut.valid, int(at < count and random.random() < rate))
                for signal, values in ((dut.x, x), (dut.y, y)):
                    word = int(values.view(np.uint32)[at]) if at < count else random.getrandbits(32)
                    ctx.set(signal, word)
                ctx.set(dut.room, int(random.random() < rate))
                due = [d - 1 for d in due]
                if due and due[0] == 0:
                    got.append(ctx.get(dut.o))
                    due.pop(0)
                assert ctx.get(dut.take) == ctx.get(dut.result)
                if ctx.get(dut.take):
                    at += 1
                    due.append(LATENCY)
                cycles += 1
                await ctx.tick()
                assert cycles < 3000
            assert got == want, f"{op0.name} {op1.name}"
            if rate == 1.0:
                assert cycles == (count - 1) * PACE + 1 + LATENCY

    simulate(dut, bench)
