"""RankControl with the list that it leads: what leaves is the model's, whatever comes when."""

from typing import Any

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models.ranking import EIGHT, largest, matches
from rtl.fp import decode
from rtl.lib.delay import Delay, DelayConfig
from rtl.tiles import TileLibrary
from rtl.vector.top8 import INF, LATENCY, RankControl, Top8
from tb.lib.simulate import rng, simulate

CORNERS = (0, 1 << 31, INF, 0xFF800000, 0x7FC00000, 1, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000)
INS = ("start", "on", "given", "listed", "there", "element", "last", "room")


class Ranked(wiring.Component):
    """One list; its elements and values come after as many cycles as in a lane."""

    def __init__(self) -> None:
        words = {name: In(32) for name in ("x", "value", "number", "other")}
        outs = {name: Out(1) for name in ("load", "open", "result")}
        super().__init__({**{name: In(1) for name in INS}, **words, **outs, "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tiles = TileLibrary(inline=True)
        m.submodules.control = control = tiles.place(RankControl, None)
        m.submodules.list = top8 = tiles.place(Top8, None)
        for name in ("x", "value", "number"):
            line = tiles.place(Delay, DelayConfig(width=32, cycles=decode.LATENCY))
            m.submodules[name] = line
            m.d.comb += [line.i.eq(getattr(self, name)), getattr(top8, name).eq(line.o)]
        m.d.comb += [
            *(getattr(control, name).eq(getattr(self, name)) for name in INS),
            *(getattr(self, name).eq(getattr(control, name)) for name in ("load", "open", "result")),
            top8.other.eq(self.other),
            top8.control.eq(control.control),
            self.o.eq(top8.o),
        ]
        return m


def numbers(random: Any, count: int) -> list[int]:
    """FP32 codes with duplicates and neighbours; NaN is canonical."""
    few = [random.getrandbits(1) << 31 | random.randint(120, 130) << 23 for _ in range(6)]
    return [random.choice([*CORNERS, *few, *(f + 1 for f in few)]) for _ in range(count)]


def floats(codes: list[int]) -> np.ndarray:
    """One row of FP32."""
    return np.array([codes], dtype=np.uint32).view(np.float32)


def expected(kind: str, x: list[int], values: list[int], other: int) -> list[int]:
    """What leaves the list."""
    if kind == "max":
        return largest(floats(x)).view(np.uint32)[0].tolist()
    at = matches(floats(x), floats(values))[0].tolist()
    if kind == "find":
        return [INF if n < 0 else 1000 + n for n in at]
    return [other if n in at else code for n, code in enumerate(x)]


@pytest.mark.parametrize("rate", [1.0, 0.6])
@pytest.mark.parametrize("kind", ["max", "find", "replace"])
def test_lists(kind, rate):
    random = rng()
    dut = Ranked()
    late = decode.LATENCY + LATENCY

    async def run(ctx, x, values, other, most):
        """What leaves within `most` cycles, and how many it took."""
        settings = {"given": kind != "max", "listed": kind != "replace", "on": 0, "other": other, "start": 1}
        for name, value in settings.items():
            ctx.set(getattr(dut, name), int(value))
        for name in ("there", "element"):
            ctx.set(getattr(dut, name), 0)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.on, 1)
        due, got, at, loaded, cycles = [], [], 0, 0, 0
        count = EIGHT if kind != "replace" else len(x)
        while len(got) < count and cycles < most:
            ctx.set(dut.room, int(random.random() < rate))
            ctx.set(dut.there, int(kind != "max" and random.random() < rate))
            ctx.set(dut.value, values[loaded] if loaded < EIGHT else random.getrandbits(32))
            enters = at < len(x) and ctx.get(dut.open) and random.random() < rate
            ctx.set(dut.element, int(enters))
            ctx.set(dut.last, int(at == len(x) - 1))
            ctx.set(dut.x, x[at] if enters else random.getrandbits(32))
            ctx.set(dut.number, 1000 + at)
            due = [d - 1 for d in due]
            if due and due[0] == 0:
                got.append(ctx.get(dut.o))
                due.pop(0)
            if ctx.get(dut.result) or (enters and kind == "replace"):
                due.append(late)
            loaded += ctx.get(dut.load)
            at += bool(enters)
            cycles += 1
            await ctx.tick()
        return got, cycles

    async def bench(ctx):
        for n in [EIGHT, EIGHT + 1, *(random.randint(EIGHT, 60) for _ in range(12))]:
            x, other = numbers(random, n), random.getrandbits(32)
            values = [random.choice([*x, *numbers(random, 2)]) for _ in range(EIGHT)]
            want = expected(kind, x, values, other)
            if random.random() < 0.3:  # one that is stopped leaves nothing behind
                await run(ctx, x, values, other, random.randint(1, 30))
            got, cycles = await run(ctx, x, values, other, 1000)
            assert got == want, f"{kind} of {n}"
            if rate == 1.0:
                assert cycles == n + late + EIGHT * ((kind != "max") + (kind != "replace"))

    simulate(dut, bench)
