"""Control unit: three streams from memory, engines that take their time, semaphores between them, errors, clear, run again."""

from collections import deque

import pytest

from models import encoding, registers
from models.config import find
from models.encoding import Instruction, encode
from models.isa import INSTR_BYTES, Engine, ErrorCode, Opcode, UpdateMode, WaitMode, memory_address
from models.registers import CORE
from rtl.control.fetch import BEATS
from rtl.control.unit import BLOCKS, ControlUnit
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = find("nano")
OWN = {Engine.TENSOR: Opcode.MATMUL, Engine.VECTOR: Opcode.TENSOR_COPY}
NOPS = 20
BASES = {e: 0x1000 * (1 + e) for e in Engine}


class World:
    """Memory with programs, engines and DMA as queues with delays, and the host."""

    def __init__(self, ctx, dut, random):
        self.ctx, self.dut, self.random = ctx, dut, random
        self.programs: dict[Engine, list[bytes]] = {}
        self.bursts = {e: deque() for e in Engine}
        self.jobs = {b: deque() for b in BLOCKS}
        self.issued: list[tuple[str, int, int]] = []
        self.updated: list[tuple[int, int]] = []
        self.host: deque = deque()
        self.answers: list[tuple[int, int]] = []
        self.asking = False
        self.driven: dict[str, tuple] = {}
        self.cycle = 0
        self.faulty: tuple[str, int] | None = None
        self.dead: set[str] = set()
        self.cleared = 0

    def _memory(self, e):
        ctx, read, random = self.ctx, getattr(self.dut, f"fetch{e.value}"), self.random
        grant = random.random() < 0.6
        bursts = self.bursts[e]
        due = bool(bursts) and bursts[0][0] <= self.cycle
        ctx.set(read.req.ready, grant)
        ctx.set(read.rsp.valid, due)
        if due:
            _, addr, beat = bursts[0]
            n = (addr - BASES[e]) // INSTR_BYTES
            words = self.programs[e]
            word = words[n] if n < len(words) else bytes(INSTR_BYTES)
            ctx.set(read.rsp.payload.data, int.from_bytes(word[16 * beat : 16 * beat + 16], "little"))
            ctx.set(read.rsp.payload.last, beat == BEATS - 1)
        if grant and ctx.get(read.req.valid):
            bursts.append((self.cycle + 3, ctx.get(read.req.payload.addr), 0))
        if due and ctx.get(read.rsp.ready):
            when, addr, beat = bursts.popleft()
            if beat + 1 < BEATS:
                bursts.appendleft((when, addr, beat + 1))

    def _drive(self, name):
        """An engine's or the DMA's outputs of this cycle; what it sees is looked at when everybody has driven."""
        ctx, block, random = self.ctx, getattr(self.dut, name), self.random
        jobs = self.jobs[name]
        ready = random.random() < 0.5 and len(jobs) < 4 and name not in self.dead
        ctx.set(block.issue.ready, ready)
        head = jobs[0] if jobs else None
        fault = head is not None and self.faulty == (head[1], head[2]) and head[0] <= self.cycle
        done = head is not None and head[0] <= self.cycle and not fault
        ctx.set(block.update.valid, done)
        ctx.set(block.error_valid, fault)
        ctx.set(block.busy, bool(jobs))
        if head:
            raw = head[3]
            for n in ("mode", "sem", "value"):
                ctx.set(getattr(block.update.payload, n), raw[f"update_{n}"])
            ctx.set(block.error.code, int(ErrorCode.SBUF_RANGE))
            ctx.set(block.error.engine, int(Engine[head[1].upper()]))
            ctx.set(block.error.index, head[2])
        self.driven[name] = ready, fault, done, head

    def _observe(self, name):
        ctx, block, random = self.ctx, getattr(self.dut, name), self.random
        jobs = self.jobs[name]
        ready, fault, done, head = self.driven[name]
        if ctx.get(block.clear):
            jobs.clear()
            self.dead.discard(name)
            return
        if fault:
            self.dead.add(name)
            jobs.clear()
        elif done and ctx.get(block.update.ready):
            self.updated.append((int(Engine[head[1].upper()]), head[2]))
            jobs.popleft()
        if ready and ctx.get(block.issue.valid):
            payload = block.issue.payload
            engine, index = Engine(ctx.get(payload.engine)), ctx.get(payload.index)
            word = ctx.get(payload.instr.as_value()).to_bytes(INSTR_BYTES, "little")
            assert word == self.programs[engine][index], f"{engine.name}[{index}]"
            self.issued.append((name, int(engine), index))
            raw = encoding.raw_fields(word)
            self._check_wait(raw)
            jobs.append((self.cycle + random.choice([1, 5, 25]), engine.name.lower(), index, raw))

    def _check_wait(self, raw):
        if raw["wait_mode"] == WaitMode.GE:
            assert sum(1 for e, _ in self.updated if e == raw["wait_sem"]) >= raw["wait_value"]

    def _host(self):
        ctx, control = self.ctx, self.dut.control
        ctx.set(control.req.valid, bool(self.host) and not self.asking)
        if self.host:
            write, addr, value = self.host[0]
            for n, v in (("write", write), ("addr", addr), ("data", value), ("strb", 15)):
                ctx.set(getattr(control.req.payload, n), v)
        ctx.set(control.rsp.ready, 1)
        if self.asking and ctx.get(control.rsp.valid):
            self.answers.append((ctx.get(control.rsp.payload.data), ctx.get(control.rsp.payload.error)))
            self.asking = False
            self.host.popleft()
        elif self.host and not self.asking and ctx.get(control.req.ready):
            self.asking = True

    async def step(self):
        for e in Engine:
            self._memory(e)
        for name in BLOCKS:
            self._drive(name)
        self._host()
        for name in BLOCKS:
            self._observe(name)
        await self.ctx.tick()
        self.cycle += 1

    async def ask(self, write, addr, value=0):
        """One access of the host."""
        self.host.append((write, addr, value))
        count = len(self.answers)
        for _ in range(400):
            if len(self.answers) > count:
                assert self.answers[-1][1] == 0
                return self.answers[-1][0]
            await self.step()
        raise AssertionError("the host got no answer")

    async def start(self, programs):
        self.programs = programs
        self.issued, self.updated = [], []
        for e in Engine:
            address = memory_address(BASES[e])
            await self.ask(1, CORE[f"PROGRAM_LO_{e.name}"], address & 0xFFFFFFFF)
            await self.ask(1, CORE[f"PROGRAM_HI_{e.name}"], address >> 32)
        await self.ask(1, CORE["DOORBELL"], 7)

    async def run(self, most=6000):
        """Until the core stands still."""
        for _ in range(most):
            if not self.ctx.get(self.dut.control.running):
                return
            await self.step()
        state = {e.name: (await self.ask(0, CORE[f"INDEX_{e.name}"]), len(self.programs[e])) for e in Engine}
        raise AssertionError(f"does not end: {state}, status {await self.ask(0, CORE['STATUS']):#x}")

    async def semaphore(self, number):
        value = await self.ask(0, registers.SEM_READ + 4 * number)
        return value - (value >> 31 << 32)


def _programs(random, steps):
    """Streams that cannot deadlock: an instruction waits at most for updates that instructions before it, in one order of all, give.

    Semaphore e counts engine e's updates, semaphore NOPS those of all NOPs.
    """
    programs = {e: [] for e in Engine}
    given = dict.fromkeys(Engine, 0)
    nops = 0
    for _ in range(steps):
        e = random.choice(list(Engine))
        opcode = random.choice([Opcode.NOP, Opcode.DMA, OWN.get(e, Opcode.DMA), OWN.get(e, Opcode.NOP)])
        other = random.choice(list(Engine))
        # a NOP's update is not seen from outside, so that it has a semaphore of its own
        counted = opcode != Opcode.NOP
        fields = {"update_mode": UpdateMode.ADD, "update_sem": int(e) if counted else NOPS, "update_value": 1}
        if random.random() < 0.5 and given[other]:
            fields |= {
                "wait_mode": WaitMode.GE,
                "wait_sem": int(other),
                "wait_value": random.randint(1, given[other]),
            }
        programs[e].append(encode(Instruction(opcode, fields)))
        given[e] += counted
        nops += not counted
    for e in Engine:
        programs[e].append(encode(Instruction(Opcode.HALT)))
    return programs, given | {NOPS: nops}


def _world(bench):
    dut = ControlUnit(CONFIG, tiles=TileLibrary(inline=True))
    random = rng()

    async def testbench(ctx):
        await bench(World(ctx, dut, random), random)

    simulate(dut, testbench)


def test_streams_that_wait_for_each_other():
    async def bench(world, random):
        for _ in range(3):
            programs, given = _programs(random, 40)
            await world.start(programs)
            await world.run()
            for e in Engine:
                assert await world.semaphore(int(e)) == given[e]
                assert await world.semaphore(NOPS) == given[NOPS]
                assert await world.ask(0, CORE[f"INDEX_{e.name}"]) == len(programs[e])
                mine = [n for block, engine, n in world.issued if engine == e]
                assert mine == sorted(mine), "in order"
            assert await world.ask(0, CORE["STATUS"]) == 1 << 17
            await world.ask(1, CORE["CLEAR"], 4)

    _world(bench)


@pytest.mark.parametrize("kind", ["engine", "dma", "opcode", "watchdog"])
def test_errors_and_on_again(kind):
    async def bench(world, random):
        for _ in range(3):
            programs, _ = _programs(random, 30)
            victim = random.choice([Engine.TENSOR, Engine.VECTOR] if kind == "engine" else list(Engine))
            at = len(programs[victim]) // 2
            fields = {"wait_mode": WaitMode.GE, "wait_sem": 40, "wait_value": 1} if kind == "watchdog" else {}
            opcode = {"engine": OWN.get(victim), "dma": Opcode.DMA}.get(kind, Opcode.NOP)
            word = bytearray(encode(Instruction(opcode or Opcode.NOP, fields)))
            if kind == "opcode":
                word[0] = 0
            programs[victim].insert(at, bytes(word))
            world.faulty = (victim.name.lower(), at) if kind in ("engine", "dma") else None
            await world.ask(1, CORE["WATCHDOG"], 200)
            await world.start(programs)
            await world.run()
            assert world.ctx.get(world.dut.control.error)
            want = {
                "engine": ErrorCode.SBUF_RANGE,
                "dma": ErrorCode.SBUF_RANGE,
                "opcode": ErrorCode.ILLEGAL_OPCODE,
                "watchdog": ErrorCode.WATCHDOG,
            }
            assert await world.ask(0, CORE["ERR_CODE"]) == want[kind]
            # behind a wait that never ends others may wait as well; the lowest one is named
            if kind != "watchdog":
                assert await world.ask(0, CORE["ERR_ENGINE"]) == victim
                assert await world.ask(0, CORE["ERR_INDEX"]) == at
            assert await world.ask(0, CORE["STATUS"]) == 1 << 16
            issued = len(world.issued)
            await world.ask(1, CORE["DOORBELL"], 7)
            for _ in range(100):
                await world.step()
            assert len(world.issued) == issued, "runs on after an error"
            world.faulty = None
            await world.ask(1, CORE["CLEAR"], 0b111)
            assert await world.ask(0, CORE["ERR_CODE"]) == 0
            programs, given = _programs(random, 20)
            await world.start(programs)
            await world.run()
            assert [await world.semaphore(int(e)) for e in Engine] == [given[e] for e in Engine]
            await world.ask(1, CORE["CLEAR"], 0b111)

    _world(bench)


def test_clear_at_any_moment():
    async def bench(world, random):
        for _ in range(8):
            programs, given = _programs(random, 25)
            await world.start(programs)
            for _ in range(random.randrange(250)):
                await world.step()
            await world.ask(1, CORE["CLEAR"], 0b101)
            await world.run(100)
            await world.start(programs)
            await world.run()
            assert [await world.semaphore(int(e)) for e in Engine] == [given[e] for e in Engine]
            await world.ask(1, CORE["CLEAR"], 0b101)

    _world(bench)


def test_host_signals_a_stream():
    async def bench(world, random):
        wait = {"wait_mode": WaitMode.GE, "wait_sem": 9, "wait_value": 3}
        programs = {
            e: [encode(Instruction(Opcode.NOP, wait)), encode(Instruction(Opcode.HALT))] for e in Engine
        }
        await world.start(programs)
        for _ in range(3):
            for _ in range(40):
                await world.step()
            assert world.ctx.get(world.dut.control.running)
            await world.ask(1, registers.SEM_ADD + 4 * 9, 1)
        await world.run()
        assert await world.semaphore(9) == 3

    _world(bench)
