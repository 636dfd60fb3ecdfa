"""Sequencer: order, waits, updates, HALT, errors, stop."""

from collections import deque

import pytest

from models import encoding, flow
from models.config import find
from models.encoding import Instruction, encode
from models.fault import Fault
from models.isa import OPS, Cond, Engine, ErrorCode, Opcode, RegOp, UpdateMode, WaitMode
from models.machine import Core, Machine
from rtl.control.sequencer import Sequencer, SequencerConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

SEMAPHORES = 64
BASE = 0xFFFF << 48 | 1 << 40 | 0x4000


def _random_word(random, engine, *, last=False):
    apart = (Opcode.HALT, Opcode.REGISTER, Opcode.BRANCH)
    mine = [op for op, info in OPS.items() if engine in info.engines and op not in apart]
    opcode = Opcode.HALT if last else random.choice(mine)
    fields = {
        "wait_mode": random.choice(list(WaitMode)),
        "wait_sem": random.randrange(SEMAPHORES),
        "wait_value": random.choice([0, 1, 2, -3]),
        "update_mode": random.choice(list(UpdateMode)),
        "update_sem": random.randrange(SEMAPHORES),
        "update_value": random.randrange(-9, 9),
    }
    return encode(Instruction(opcode, fields))


class World:
    """Everything around a sequencer: instructions, engine, DMA, semaphores that rise by themselves."""

    def __init__(self, ctx, dut, random, engine):
        self.ctx, self.dut, self.random, self.engine = ctx, dut, random, engine
        self.stream: deque[tuple[bytes, int]] = deque()
        self.values = [random.randrange(-4, 1) for _ in range(SEMAPHORES)]
        self.engine_jobs: deque[int] = deque()
        self.dma_jobs: deque[int] = deque()
        self.log: list[tuple[str, int]] = []
        self.error = None
        self.halted = False
        self.cycle = 0
        self.program: list[bytes] = []
        """What a jump goes on in."""

    async def step(self, *, start=False, stop=False):
        ctx, dut, random = self.ctx, self.dut, self.random
        ctx.set(dut.start, start)
        ctx.set(dut.stop, stop)
        # PROGRAM may change under a running stream: only its value at the start counts
        ctx.set(dut.address, BASE if start else random.getrandbits(64))
        offer = bool(self.stream) and random.random() < 0.7
        ctx.set(dut.fetched.valid, offer)
        if offer:
            ctx.set(dut.fetched.payload.instr.as_value(), int.from_bytes(self.stream[0][0], "little"))
            ctx.set(dut.fetched.payload.error, self.stream[0][1])
        ctx.set(dut.wait_value, self.values[ctx.get(dut.wait_sem)])
        for name in ("engine", "dma", "update"):
            ctx.set(getattr(dut, name).ready, random.random() < 0.5)
        engine_done = bool(self.engine_jobs) and self.engine_jobs[0] <= self.cycle
        dma_done = bool(self.dma_jobs) and self.dma_jobs[0] <= self.cycle
        ctx.set(dut.engine_done, engine_done)
        ctx.set(dut.dma_done, dma_done)
        index = ctx.get(dut.index)
        for name in ("engine", "dma", "update"):
            port = getattr(dut, name)
            if ctx.get(port.valid) and ctx.get(port.ready):
                self.log.append((name, index))
                if name != "update":
                    assert ctx.get(port.payload.index) == index
                    assert ctx.get(port.payload.engine) == self.engine
                    jobs = self.engine_jobs if name == "engine" else self.dma_jobs
                    jobs.append(self.cycle + random.choice([2, 30]))
                else:
                    assert not self.engine_jobs, "an update before the engine's instructions were done"
        if ctx.get(dut.halted):
            assert not self.engine_jobs
            assert not self.dma_jobs
            self.halted = True
        if ctx.get(dut.error_valid):
            assert self.error is None
            self.error = tuple(ctx.get(getattr(dut.error, n)) for n in ("code", "engine", "index", "addr"))
        if engine_done:
            self.engine_jobs.popleft()
        if dma_done:
            self.dma_jobs.popleft()
        if offer and ctx.get(dut.fetched.ready):
            self.stream.popleft()
        if ctx.get(dut.jump):
            self.stream = deque((w, 0) for w in self.program[ctx.get(dut.jump_to) :])
        if random.random() < 0.3:
            self.values[random.randrange(SEMAPHORES)] += 1
        await ctx.tick()
        self.cycle += 1


@pytest.mark.parametrize("engine", list(Engine), ids=lambda e: e.name.lower())
def test_streams(engine):
    dut = Sequencer(SequencerConfig(engine=engine, semaphores=SEMAPHORES), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        for _ in range(6):
            world = World(ctx, dut, random, engine)
            words = [_random_word(random, engine) for _ in range(25)] + [
                _random_word(random, engine, last=True)
            ]
            world.stream.extend((w, 0) for w in words)
            await world.step(start=True)
            assert ctx.get(dut.running)
            for _ in range(9000):
                if world.halted:
                    break
                raw = encoding.raw_fields(words[min(ctx.get(dut.index), 25)])
                if ctx.get(dut.waiting):
                    assert raw["wait_mode"] == WaitMode.GE
                await world.step()
            assert world.halted
            assert world.error is None
            assert not ctx.get(dut.running)
            want = []
            for n, word in enumerate(words):
                raw = encoding.raw_fields(word)
                opcode = Opcode(raw["opcode"])
                if opcode == Opcode.DMA:
                    want.append(("dma", n))
                elif opcode == Opcode.HALT or (
                    opcode == Opcode.NOP and raw["update_mode"] != UpdateMode.NONE
                ):
                    want.append(("update", n))
                elif opcode != Opcode.NOP:
                    want.append(("engine", n))
            assert world.log == want
            await world.step()
            assert ctx.get(dut.index) == len(words)

    simulate(dut, bench)


def _model_fault(engine, word):
    """What the functional model says about a word's header."""
    core = Core(Machine(find("nano")), 0)
    try:
        core._decode(engine, encoding.raw_fields(word))
    except Fault as fault:
        return fault.code
    except flow.FieldError:
        return ErrorCode.ILLEGAL_FIELD
    return None


@pytest.mark.parametrize("engine", list(Engine), ids=lambda e: e.name.lower())
def test_errors(engine):
    dut = Sequencer(SequencerConfig(engine=engine, semaphores=SEMAPHORES), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        seen = set()
        for n in range(60):
            world = World(ctx, dut, random, engine)
            before = random.randrange(3)
            words = [encode(Instruction(Opcode.NOP)) for _ in range(before)]
            bad, fetch = bytearray(_random_word(random, engine)), n % 6 == 0
            bad[1] = 0
            if not fetch:
                at, value = random.choice(
                    [
                        (0, 0),
                        (0, random.randrange(256)),
                        (1, 2),
                        (1, 255),
                        (3, 4),
                        (13, 1),
                        (15, 128),
                        (12, 64),
                    ]
                )
                bad[at] = value
                if at == 12:
                    bad[3] = 1
                if at == 0 and value and random.random() < 0.5:
                    bad[1], bad[2] = 1, 200
            code = ErrorCode.FETCH_ERROR if fetch else _model_fault(engine, bytes(bad))
            world.stream.extend([*((w, 0) for w in words), (bytes(bad), int(fetch))])
            await world.step(start=True)
            for _ in range(120):
                await world.step()
            if code is None:
                assert world.error is None
            else:
                address = BASE + 128 * before if fetch else 0
                assert world.error == (int(code), int(engine), before, address)
                assert not ctx.get(dut.running)
                seen.add(code)
                issued = len(world.log)
                world.stream.append((_random_word(random, engine), 0))
                for _ in range(20):
                    await world.step()
                assert len(world.log) == issued, "something after an error"
            world.values = [1 << 20] * SEMAPHORES
            await world.step(stop=True)
            assert not ctx.get(dut.running)
        assert seen == {ErrorCode.FETCH_ERROR, ErrorCode.ILLEGAL_FIELD, ErrorCode.ILLEGAL_OPCODE}

    simulate(dut, bench)


def _flow_program(random):
    """Random control instructions with DMAs between them; branches go forward, but for one loop at the end."""
    words, length = [], 24
    for n in range(length):
        b = {"use_imm": 1, "imm": random.choice([0, 1, -1, 5, 1 << 30, -(1 << 31)])}
        if random.random() < 0.5:
            b = {"rb": random.randrange(16)}
        kind = random.random()
        if kind < 0.55:
            fields = {"reg_op": random.choice(list(RegOp)), "rd": random.randrange(1, 15)}
            if fields["reg_op"] != RegOp.MOVE:
                fields["ra"] = random.randrange(16)
            words.append(Instruction(Opcode.REGISTER, fields | b))
        elif kind < 0.75:
            fields = {"cond": random.choice(list(Cond)), "ra": random.randrange(16)}
            fields["target"] = random.randrange(n + 1, length + 1)
            words.append(Instruction(Opcode.BRANCH, fields | b))
        else:
            fields = {"src": random.getrandbits(64), "dst": random.getrandbits(64)}
            fields |= {"dyn_src0": random.randrange(16), "dyn_dst": random.randrange(16)}
            words.append(Instruction(Opcode.DMA, fields))
    words += [
        Instruction(Opcode.REGISTER, {"reg_op": RegOp.ADD, "rd": 15, "ra": 15, "use_imm": 1, "imm": 1}),
        Instruction(Opcode.BRANCH, {"cond": Cond.LT, "ra": 15, "use_imm": 1, "imm": 3}),
        Instruction(Opcode.HALT),
    ]
    return [encode(w) for w in words]


def _flow_log(words):
    """(index, source, target) of every DMA, by the model."""
    registers, index, log = [0] * 16, 0, []
    while True:
        raw = encoding.raw_fields(words[index])
        opcode = Opcode(raw["opcode"])
        if opcode == Opcode.HALT:
            return log
        if opcode == Opcode.DMA:
            raw = flow.indexed(opcode, words[index], raw, registers)[1]
            log.append((index, raw["src"], raw["dst"]))
            jump = None
        else:
            jump = flow.control(opcode, raw, registers)
        index = index + 1 if jump is None else jump


def test_flow():
    engine = Engine.SYNC
    dut = Sequencer(SequencerConfig(engine=engine, semaphores=SEMAPHORES), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        jumps = 0
        for _ in range(12):
            world = World(ctx, dut, random, engine)
            world.program = _flow_program(random)
            want = _flow_log(world.program)
            world.stream.extend((w, 0) for w in world.program)
            got = []
            await world.step(start=True)
            for _ in range(9000):
                if world.halted:
                    break
                seen = len(world.log)
                addresses = [ctx.get(getattr(dut.dma.payload.instr, n)) for n in ("dma_src", "dma_dst")]
                jump = ctx.get(dut.jump)
                jumps += jump
                await world.step()
                assert not jump or ctx.get(dut.spinning)
                if len(world.log) > seen and world.log[-1][0] == "dma":
                    got.append((world.log[-1][1], *addresses))
            assert world.halted
            assert got == want
            await world.step()
        assert jumps > 20

    simulate(dut, bench)
