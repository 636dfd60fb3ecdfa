"""DMA target: beats to where their chunk goes; quiet only when all has been answered; errors name their row."""

from collections import deque

from models.config import find
from rtl.dma.target import DmaTarget
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = find("nano")


def test_beats_and_answers():
    dut = DmaTarget(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        chunks, beats = deque(), deque()
        want = {"memory": deque(), "sbuf": deque(), "psum": deque()}
        bursts_wanted = deque()
        for number in range(50):
            kind = random.choice(["memory", "sbuf", "psum"])
            offset, count, part = random.randrange(100), random.randint(1, 150), random.randrange(8)
            bad = kind == "memory" and random.random() < 0.2
            chunks.append((kind, offset, count, part, number))
            total = -(-(offset % 16 + count) // 16)
            if kind == "memory":
                bursts_wanted.append((offset // 16 * 16, total, number, bad))
            for i in range(total):
                item = (random.getrandbits(128), random.getrandbits(16))
                beats.append(item)
                want[kind].append(item if kind == "memory" else (offset // 16 + i, part, *item))
        answers, current, left = deque(), None, 0
        errors = 0
        for cycle in range(8000):
            if chunks:
                kind, offset, count, part, number = chunks[0]
                place = dut.chunk.payload.place
                for name, value in (
                    ("memory", kind == "memory"),
                    ("psum", kind == "psum"),
                    ("part", part),
                    ("offset", offset),
                ):
                    ctx.set(getattr(place, name), value)
                ctx.set(dut.chunk.payload.bytes, count)
                ctx.set(dut.chunk.payload.row, number)
            ctx.set(dut.chunk.valid, bool(chunks))
            offer = bool(beats) and random.random() < 0.7
            ctx.set(dut.beat.valid, offer)
            if offer:
                ctx.set(dut.beat.payload.data, beats[0][0])
                ctx.set(dut.beat.payload.strb, beats[0][1])
            ctx.set(dut.write.req.ready, random.random() < 0.5)
            ctx.set(dut.write.data.ready, left > 0 and random.random() < 0.7)
            for port in (dut.sbuf, dut.psum):
                ctx.set(port.req.ready, random.random() < 0.6)
            due = bool(answers) and answers[0][0] <= cycle
            ctx.set(dut.write.done.valid, due)
            if due:
                ctx.set(dut.write.done.payload.error, answers[0][2])
            if ctx.get(dut.error_valid):
                assert answers[0][2]
                assert ctx.get(dut.error_row) == answers[0][1]
                errors += 1
            if due and ctx.get(dut.write.done.ready):
                answers.popleft()
            if ctx.get(dut.write.data.valid) and ctx.get(dut.write.data.ready):
                got = (ctx.get(dut.write.data.payload.data), ctx.get(dut.write.data.payload.strb))
                assert got == want["memory"].popleft()
                left -= 1
                if left == 0:
                    answers.append((cycle + random.choice([1, 15]), current[2], current[3]))
            if ctx.get(dut.write.req.valid) and ctx.get(dut.write.req.ready):
                current = bursts_wanted.popleft()
                assert (ctx.get(dut.write.req.payload.addr), ctx.get(dut.write.req.payload.beats)) == current[
                    :2
                ]
                left = current[1]
            for name, port in (("sbuf", dut.sbuf), ("psum", dut.psum)):
                if ctx.get(port.req.valid) and ctx.get(port.req.ready):
                    p = port.req.payload
                    assert (ctx.get(p.addr), ctx.get(p.part), ctx.get(p.data), ctx.get(p.strb)) == want[
                        name
                    ].popleft()
            if offer and ctx.get(dut.beat.ready):
                beats.popleft()
            if chunks and ctx.get(dut.chunk.ready):
                chunks.popleft()
            pending = bool(chunks or beats or answers or left)
            if pending:
                assert not ctx.get(dut.quiet) or not (answers or left)
            await ctx.tick()
            if not pending and ctx.get(dut.quiet):
                break
        assert not any(want.values())
        assert ctx.get(dut.quiet)

    simulate(dut, bench)
