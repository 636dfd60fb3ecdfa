"""Control unit: three streams from memory, engines that take their time, semaphores between them, errors, clear, run again."""

from collections import deque

import pytest

from models import encoding, isa, registers
from models.addressing import memory_address
from models.config import find
from models.encoding import Instruction, encode
from models.fault import Fault
from models.isa import INSTR_BYTES, Engine, ErrorCode, Opcode, UpdateMode, WaitMode
from models.machine import Core, ErrorRecord, Machine
from models.registers import CORE
from rtl.control.fetch import BEATS
from rtl.control.registers import COUNTERS, counter_offsets
from rtl.control.unit import BLOCKS, ControlUnit
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CONFIG = find("nano")
OWN = {
    Engine.TENSOR: Opcode.MATMUL,
    Engine.VECTOR: Opcode.TENSOR_COPY,
    Engine.SCALAR: Opcode.ACTIVATE,
    Engine.GPSIMD: Opcode.IOTA,
}
NOPS = 20
OWN_MIXED, DMA_MIXED = 24, 32
"""First of a semaphore an engine that its own instructions and NOPs, or its DMAs, change in every mode: the order of updates shows."""
FAULT_ADDR = 0x0001_0203_0405_0600


class World:
    """Memory with programs, engines and DMA as queues with delays, and the host."""

    def __init__(self, ctx, dut, random):
        self.ctx, self.dut, self.random = ctx, dut, random
        self.programs: dict[Engine, list[bytes]] = {}
        self.bases = {e: 0x1000 * (1 + e) for e in Engine}
        self.bad_words: set[tuple[Engine, int]] = set()  # whose fetch the bus answers with an error
        self.bursts = {e: deque() for e in Engine}
        self.jobs = {b: deque() for b in BLOCKS}
        self.issued: list[tuple[str, int, int]] = []
        self.updated: dict[int, int] = {}  # updates that engines and DMA gave to each semaphore
        self.host: deque = deque()
        self.answers: list[tuple[int, int]] = []
        self.asking = False
        self.driven: dict[str, tuple] = {}
        self.cycle = 0
        self.faulty: tuple[str, int] | None = None
        self.delays = [1, 5, 25]
        self.dead: set[str] = set()
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.ran = False

    def _memory(self, e):
        ctx, read, random = self.ctx, getattr(self.dut, f"fetch{e.value}"), self.random
        grant = random.random() < 0.6
        bursts = self.bursts[e]
        due = bool(bursts) and bursts[0][0] <= self.cycle
        ctx.set(read.req.ready, grant)
        ctx.set(read.rsp.valid, due)
        if due:
            _, addr, beat = bursts[0]
            n = (addr - self.bases[e]) // INSTR_BYTES
            words = self.programs[e]
            word = words[n] if n < len(words) else bytes(INSTR_BYTES)
            ctx.set(read.rsp.payload.data, int.from_bytes(word[16 * beat : 16 * beat + 16], "little"))
            ctx.set(read.rsp.payload.last, beat == BEATS - 1)
            ctx.set(read.rsp.payload.error, (e, n) in self.bad_words and beat == n % BEATS)
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
            ctx.set(block.error.addr, FAULT_ADDR + head[2])
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
            sem = head[3]["update_sem"]
            self.updated[sem] = self.updated.get(sem, 0) + 1
            jobs.popleft()
        if ready and ctx.get(block.issue.valid):
            payload = block.issue.payload
            engine, index = Engine(ctx.get(payload.engine)), ctx.get(payload.index)
            word = ctx.get(payload.instr.as_value()).to_bytes(INSTR_BYTES, "little")
            assert word == self.programs[engine][index], f"{engine.name}[{index}]"
            self.issued.append((name, int(engine), index))
            raw = encoding.raw_fields(word)
            self._check_wait(raw)
            jobs.append((self.cycle + random.choice(self.delays), engine.name.lower(), index, raw))

    def _check_wait(self, raw):
        if raw["wait_mode"] == WaitMode.GE:
            assert self.updated.get(raw["wait_sem"], 0) >= raw["wait_value"]

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
        columns = bool(self.ctx.get(self.dut.control.running)) and self.random.random() < 0.3
        self.ctx.set(self.dut.columns, columns)
        self._count(columns)
        for name in BLOCKS:
            self._observe(name)
        await self.ctx.tick()
        self.cycle += 1

    def _count(self, columns):
        counts, busy = self.counts, {name: bool(self.jobs[name]) for name in BLOCKS}
        runs = self.ctx.get(self.dut.control.running)
        if runs:
            counts["CYCLES"] = counts["CYCLES"] + 1 if self.ran else 1
        self.ran = bool(runs)
        counts["COLUMNS"] += columns
        counts["DMA_BUSY"] += busy["dma"]
        counts["BUSY_TENSOR"] += busy["tensor"]
        counts["BUSY_VECTOR"] += busy["vector"]
        counts["BUSY_SCALAR"] += busy["scalar"]
        counts["BUSY_GPSIMD"] += busy["gpsimd"]
        counts["BUSY_SYNC"] += any(job[1] == "sync" for job in self.jobs["dma"])

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
        self.issued, self.updated = [], {}
        for e in Engine:
            address = memory_address(self.bases[e])
            await self.ask(1, CORE[f"PROGRAM_LO_{e.name}"], address & 0xFFFFFFFF)
            await self.ask(1, CORE[f"PROGRAM_HI_{e.name}"], address >> 32)
        await self.ask(1, CORE["DOORBELL"], (1 << len(Engine)) - 1)

    async def run(self, most=6000):
        """Until the core stands still."""
        for _ in range(most):
            if not self.ctx.get(self.dut.control.running):
                return
            await self.step()
        state = {e.name: (await self.ask(0, CORE[f"INDEX_{e.name}"]), len(self.programs[e])) for e in Engine}
        raise AssertionError(f"does not end: {state}, status {await self.ask(0, CORE['STATUS']):#x}")

    async def errors(self):
        """The error as the host reads it, like models.machine.ErrorRecord."""
        code, engine, index, low, high = [
            await self.ask(0, CORE[f"ERR_{n}"]) for n in ("CODE", "ENGINE", "INDEX", "ADDR_LO", "ADDR_HI")
        ]
        return ErrorRecord(ErrorCode(code), Engine(engine), index, high << 32 | low)

    async def semaphore(self, number):
        value = await self.ask(0, registers.SEM_READ + 4 * number)
        return value - (value >> 31 << 32)


def _programs(random, steps, *, mixed=False):
    """Streams that cannot deadlock: an instruction waits at most for updates that instructions before it, in one order of all, give.

    Semaphore e counts engine e's updates, semaphore NOPS those of all NOPs. `mixed`: some update one of the mixed semaphores instead.
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
        if mixed and random.random() < 0.5:
            counted = None
            fields = {
                "update_mode": random.choice(list(UpdateMode)),
                "update_sem": (DMA_MIXED if opcode == Opcode.DMA else OWN_MIXED) + e,
                "update_value": random.choice([1, -7, (1 << 31) - 1, -(1 << 31)]),
            }
        if random.random() < 0.5 and given[other]:
            fields |= {
                "wait_mode": WaitMode.GE,
                "wait_sem": int(other),
                "wait_value": random.randint(1, given[other]),
            }
        programs[e].append(encode(Instruction(opcode, fields)))
        given[e] += counted is True
        nops += counted is False
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
            victim = random.choice(list(OWN) if kind == "engine" else list(Engine))
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
            record = await world.errors()
            assert record.code == want[kind]
            # behind a wait that never ends others may wait as well; the lowest one is named
            if kind != "watchdog":
                addr = FAULT_ADDR + at if kind in ("engine", "dma") else 0
                assert record == ErrorRecord(want[kind], victim, at, addr)
            counts = [await world.ask(0, counter_offsets(name)[0]) for name in COUNTERS]
            assert await world.ask(0, CORE["STATUS"]) == 1 << 16
            issued = len(world.issued)
            await world.ask(1, CORE["DOORBELL"], (1 << len(Engine)) - 1)
            for _ in range(100):
                await world.step()
            assert len(world.issued) == issued, "runs on after an error"
            again = [await world.ask(0, counter_offsets(name)[0]) for name in COUNTERS]
            assert counts == again, "counts on after an error"
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


class Headers(Core):
    """The functional model of a core with instructions that do nothing but wait and update, and words that the bus refuses."""

    def __init__(self, world):
        super().__init__(Machine(CONFIG), 0)
        self.world = world
        for e in Engine:
            base, words = world.bases[e], b"".join(world.programs[e])
            self.chip.memory[base : base + len(words)] = list(words)
            self.engines[e].base, self.engines[e].running = base, True

    def _action(self, engine, opcode, word, raw):
        return lambda: None

    def _fetch(self, state):
        engine = next(e for e in Engine if self.engines[e] is state)
        if (engine, state.index) in self.world.bad_words:
            raise Fault(ErrorCode.FETCH_ERROR, memory_address(state.base + state.index * INSTR_BYTES))
        return super()._fetch(state)

    def run(self):
        """The core's error, or None; as models.machine.Machine.run."""
        while any([self.step(e) for e in Engine]):
            pass
        stuck = [e for e in Engine if self.engines[e].running]
        if stuck and self.error is None:
            self.error = ErrorRecord(ErrorCode.WATCHDOG, stuck[0], self.engines[stuck[0]].index, 0)
        return self.error


def test_updates_are_those_of_the_functional_model():
    """Every update mode, in an order that shows in the result: a NOP's after those of its engine's instructions, DMAs' among themselves."""

    async def bench(world, random):
        for _ in range(6):
            programs, _ = _programs(random, 45, mixed=True)
            # nothing may come of what is fetched behind a HALT
            world.bad_words = {(e, len(programs[e])) for e in Engine if random.random() < 0.5}
            await world.start(programs)
            await world.run()
            model = Headers(world)
            assert model.run() is None
            for n, value in enumerate(model.semaphores):
                assert await world.semaphore(n) == value, n
            for e in Engine:
                assert await world.ask(0, CORE[f"INDEX_{e.name}"]) == model.engines[e].index
                mine = [word[0] for word in programs[e]]
                want = [n for n, op in enumerate(mine) if op not in (Opcode.NOP, Opcode.HALT)]
                assert [n for _, engine, n in world.issued if engine == e] == want
            await world.ask(1, CORE["CLEAR"], 4)

    _world(bench)


@pytest.mark.parametrize("kind", ["opcode", "field", "bus", "end", "place", "watchdog"])
def test_error_records_are_those_of_the_functional_model(kind):
    """Errors that the control unit finds by itself, one in a run: cause, engine, index and address."""

    async def bench(world, random):
        for _ in range(4):
            programs, _ = _programs(random, 30)
            victim = random.choice(list(Engine))
            at = random.randrange(len(programs[victim]))
            fields = {"wait_mode": WaitMode.GE, "wait_sem": 40, "wait_value": 1} if kind == "watchdog" else {}
            word = bytearray(encode(Instruction(Opcode.NOP, fields)))
            if kind == "opcode":
                allowed = {op for op, info in isa.OPS.items() if victim in info.engines}
                word[0] = random.choice([n for n in range(256) if n not in allowed])
            elif kind == "field":
                position, value = random.choice(
                    [(1, 2), (3, 4), (13, 1), (14, 2), (15, 128), (12, 64), (2, 64)]
                )
                word[1], word[3], word[position] = WaitMode.GE, UpdateMode.SET, value
                word[7] |= 0x80  # a threshold below every value
            programs[victim].insert(at, bytes(word))
            bases = dict(world.bases)
            world.bad_words = {(victim, at)} if kind == "bus" else set()
            if kind == "end":
                del programs[victim][at + 1 :]
                world.bases[victim] = CONFIG.memory.bytes - len(programs[victim]) * INSTR_BYTES
            elif kind == "place":
                world.bases[victim] = random.choice([0x8040, 0x8001, CONFIG.memory.bytes])
                programs[victim] = []
            await world.ask(1, CORE["WATCHDOG"], 300)
            await world.start(programs)
            await world.ask(1, CORE[f"PROGRAM_LO_{victim.name}"], 0x4000)  # for the next start, not this one
            await world.run()
            want = Headers(world).run()
            assert want is not None
            assert await world.errors() == want
            assert await world.ask(0, CORE["STATUS"]) == 1 << 16
            world.bases, world.bad_words = bases, set()
            await world.ask(1, CORE["CLEAR"], 0b111)

    _world(bench)


def test_counters_count_what_they_say():
    async def bench(world, random):
        seen = dict.fromkeys(COUNTERS, 0)
        for _ in range(3):
            programs, _ = _programs(random, 40)
            await world.ask(1, CORE["CLEAR"], 0b110)
            world.counts = dict.fromkeys(COUNTERS, 0)
            await world.start(programs)
            await world.run()
            for name in COUNTERS:
                got = await world.ask(0, counter_offsets(name)[0])
                assert got == world.counts[name], name
                seen[name] += got
        # one round may have nothing to do for an engine
        assert all(seen.values()), seen

    _world(bench)


def test_watchdog_is_patient_with_work():
    """Instructions that take longer than WATCHDOG are progress, however many streams wait for them."""

    async def bench(world, random):
        world.delays = [1, 150]
        await world.ask(1, CORE["WATCHDOG"], 40)
        for _ in range(3):
            programs, given = _programs(random, 30)
            await world.start(programs)
            await world.run()
            assert await world.ask(0, CORE["STATUS"]) == 1 << 17
            assert [await world.semaphore(int(e)) for e in Engine] == [given[e] for e in Engine]
            await world.ask(1, CORE["CLEAR"], 4)

    _world(bench)
