"""DMA source: beats in chunk order from memory, SBUF and PSUM, whatever answers first."""

from collections import deque

from models.config import find
from rtl.dma.source import DEPTH, DmaSource
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = find("nano")


def _word(kind, place):
    """16 bytes that tell where they come from."""
    return {"memory": 1, "sbuf": 2, "psum": 3}[kind] << 100 | place


def test_order_over_memories():
    dut = DmaSource(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        todo, want = deque(), deque()
        for _ in range(60):
            kind = random.choice(["memory", "sbuf", "psum"])
            offset, count, part = random.randrange(64) * 8, random.randint(1, 200), random.randrange(8)
            todo.append((kind, offset, count, part))
            for beat in range(offset // 16, -(-(offset + count) // 16)):
                want.append(_word(kind, beat << 8 | (part if kind != "memory" else 0)))
        bursts, rows = deque(), {"sbuf": deque(), "psum": deque()}
        held = 0
        for cycle in range(6000):
            if todo:
                kind, offset, count, part = todo[0]
                place = dut.chunk.payload.place
                for name, value in (
                    ("memory", kind == "memory"),
                    ("psum", kind == "psum"),
                    ("part", part),
                    ("offset", offset),
                ):
                    ctx.set(getattr(place, name), value)
                ctx.set(dut.chunk.payload.bytes, count)
            ctx.set(dut.chunk.valid, bool(todo))
            ctx.set(dut.read.req.ready, random.random() < 0.6)
            due = bool(bursts) and bursts[0][0] <= cycle and random.random() < 0.7
            ctx.set(dut.read.rsp.valid, due)
            if due:
                _, beat, left = bursts[0]
                ctx.set(dut.read.rsp.payload.data, _word("memory", beat << 8))
                ctx.set(dut.read.rsp.payload.last, left == 1)
            for name, port in (("sbuf", dut.sbuf), ("psum", dut.psum)):
                ctx.set(port.req.ready, random.random() < 0.6)
                answer = bool(rows[name]) and rows[name][0][0] == cycle
                ctx.set(port.rsp_valid, answer)
                if answer:
                    ctx.set(port.rsp, rows[name].popleft()[1])
            take = random.random() < 0.5
            ctx.set(dut.beat.ready, take)
            if ctx.get(dut.beat.valid) and take:
                assert ctx.get(dut.beat.payload.data) == want.popleft()
                held -= 1
            if due and ctx.get(dut.read.rsp.ready):
                bursts[0] = (bursts[0][0], bursts[0][1] + 1, bursts[0][2] - 1)
                if bursts[0][2] == 0:
                    bursts.popleft()
            if ctx.get(dut.read.req.valid) and ctx.get(dut.read.req.ready):
                addr, beats = ctx.get(dut.read.req.payload.addr), ctx.get(dut.read.req.payload.beats)
                bursts.append((cycle + random.choice([2, 20]), addr // 16, beats))
            for name, port in (("sbuf", dut.sbuf), ("psum", dut.psum)):
                if ctx.get(port.req.valid) and ctx.get(port.req.ready):
                    beat, part = ctx.get(port.req.payload.addr), ctx.get(port.req.payload.part)
                    rows[name].append((cycle + 3, _word(name, beat << 8 | part)))
                    held += 1
                    assert held <= DEPTH + 1
            if todo and ctx.get(dut.chunk.ready):
                if todo[0][0] == "memory":
                    held = 0
                todo.popleft()
            if not want:
                break
            held = max(held, 0)
            await ctx.tick()
        assert not want, f"{len(want)} beats did not come"
        ctx.set(dut.chunk.valid, 0)
        await ctx.tick()
        assert ctx.get(dut.quiet)

    simulate(dut, bench)
