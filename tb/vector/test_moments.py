"""MomentControl with the lane that it leads: what leaves is the model's, whatever comes when."""

from typing import Any

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models.formats import DType
from models.moments import MOMENTS, aggregate, stats
from rtl.tiles import TileLibrary
from rtl.vector.lane import LATENCY, LaneConfig, VectorLane
from rtl.vector.moments import MomentControl
from tb.lib.simulate import rng, simulate

CORNERS = (0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x7F7FFFFF, 0x3F800000)
INS = ("start", "on", "triples", "element", "last", "ready", "room")
OUTS = ("open", "again", "result")


class Summed(wiring.Component):
    """The control and one lane."""

    def __init__(self) -> None:
        super().__init__(
            {name: In(1) for name in INS}
            | {name: Out(1) for name in OUTS}
            | {"count": In(10), "x": In(32), "o": Out(32)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tiles = TileLibrary(inline=True)
        m.submodules.control = control = tiles.place(MomentControl, None)
        m.submodules.lane = lane = tiles.place(VectorLane, LaneConfig())
        m.d.comb += [
            *(getattr(control, name).eq(getattr(self, name)) for name in (*INS, "count")),
            *(getattr(self, name).eq(getattr(control, name)) for name in OUTS),
            lane.a.eq(self.x),
            lane.a_dtype.eq(DType.FP32.value),
            lane.o_dtype.eq(DType.FP32.value),
            lane.moments.eq(control.control),
            self.o.eq(lane.o),
        ]
        return m


def numbers(random: Any, count: int) -> list[int]:
    """FP32 codes about a large number or about nothing, some of them special."""
    offset = random.choice([0.0, 0.0, 1e4, -1e6])
    near = np.float32([offset + random.gauss(0, 1) for _ in range(count)]).view(np.uint32).tolist()
    rare = random.choice([0, 0, 0.1])
    return [random.choice(CORNERS) if random.random() < rare else code for code in near]


@pytest.mark.parametrize("rate", [1.0, 0.6])
@pytest.mark.parametrize("triples", [0, 1], ids=["stats", "aggregate"])
def test_both_walks(triples, rate):
    random = rng()
    dut = Summed()
    results = list(MOMENTS.values())[triples]

    async def run(ctx, x, most):
        """What leaves within `most` cycles, and how many it took."""
        for name in ("element", "ready", "on"):
            ctx.set(getattr(dut, name), 0)
        ctx.set(dut.start, 1)
        await ctx.tick()
        settings = {"start": 0, "on": 1, "triples": triples, "count": len(x)}
        for name, value in settings.items():
            ctx.set(getattr(dut, name), value)
        due, got, at, cycles, there = [], [], 0, 0, True
        while len(got) < results and cycles < most:
            ctx.set(dut.room, int(random.random() < rate))
            ctx.set(dut.ready, int(random.random() < rate))
            enters = there and ctx.get(dut.open) and random.random() < rate
            ctx.set(dut.element, int(enters))
            ctx.set(dut.last, int(at == len(x) - 1))
            ctx.set(dut.x, x[at] if enters else random.getrandbits(32))
            due = [d - 1 for d in due]
            if due and due[0] == 0:
                got.append(ctx.get(dut.o))
                due.pop(0)
            if ctx.get(dut.result):
                due.append(LATENCY)
            if enters:
                at += 1
                if at == len(x):
                    at, there = 0, False
            if ctx.get(dut.again) and ctx.get(dut.ready):
                assert not there
                there = True
            cycles += 1
            await ctx.tick()
        return got, cycles

    async def bench(ctx):
        for n in [1, 2, 3, 4, 5, *(random.randint(1, 40) for _ in range(9))]:
            x = numbers(random, n)
            if triples:
                counts = np.float32([random.choice([0, 1, 3, 200]) for _ in x]).view(np.uint32).tolist()
                own = np.float32([random.random() for _ in x]).view(np.uint32).tolist()
                x = [code for triple in zip(counts, x, own, strict=True) for code in triple]
            floats = np.array([x], dtype=np.uint32).view(np.float32)
            want = (aggregate if triples else stats)(floats).view(np.uint32)[0].tolist()
            if random.random() < 0.4:  # one that is stopped leaves nothing behind
                await run(ctx, x, random.randint(1, 90))
            got, cycles = await run(ctx, x, 4000)
            assert got == want, f"{n}: {floats}"
            assert rate < 1.0 or cycles == 2 * len(x) + (78 if triples else 90) + LATENCY, (cycles, len(x))

    simulate(dut, bench)
