"""From operations to an image: semaphores make every program mean what its operations mean one after the other."""

import random

from models import addressing
from models.config import ChipConfig
from models.image import Image
from models.isa import Cond, Engine, Opcode, RegOp, Space
from models.program import Program, Semaphore, Stream, Wait
from sim.fuzz.contents import contents
from sim.fuzz.operands import (
    MEMORY_SLOTS,
    PSUM_SLOTS,
    SBUF_SLOTS,
    SCRATCH,
    SLOT_BYTES,
    Op,
    Part,
    Slot,
    memory_slot,
)

PROGRAM_BASE = 0x400000
LOAD_BASE, STORE_BASE = 0x100000, 0x200000
"""Where the slots' first contents come from and where their last ones go."""
COUNTER = SCRATCH + 1
"""Register that counts a loop's turns; SCRATCH holds how far its addresses have moved."""
Unit = tuple[Engine, bool]
"""An engine, or the DMA on its behalf."""


class Schedule:
    """Emits operations in order, each with waits for what it depends on."""

    def __init__(self, config: ChipConfig):
        self.config = config
        self.program = Program(config)
        self.done: dict[Unit, Semaphore] = {
            (engine, dma): self.program.semaphore(f"{engine.name.lower()}{'_dma' * dma}")
            for engine in Engine
            for dma in (False, True)
        }
        self.issued: dict[Unit, int] = dict.fromkeys(self.done, 0)
        self.written: dict[Slot, tuple[Unit, int]] = {}
        self.read: dict[Slot, dict[Unit, int]] = {}

    def emit(self, op: Op) -> None:
        """Append `op` to its engine's stream."""
        stream = self.program.streams[op.engine]
        unit = (op.engine, op.is_dma)
        if op.is_control:
            self._control(stream, op)
            return
        needs: dict[Unit, int] = {}
        for slot in op.reads | op.writes:
            if slot in self.written:
                before, count = self.written[slot]
                needs[before] = max(needs.get(before, 0), count)
        for slot in op.writes:
            for before, count in self.read.get(slot, {}).items():
                needs[before] = max(needs.get(before, 0), count)
        for before, count in sorted(needs.items()):
            # An engine does its own instructions in order; of DMAs only those are sure to be done that have all been waited for.
            if before != unit or op.is_dma:
                most = self.issued[before] if before[1] else count
                stream.nop(wait=self.done[before].ge(most))
        self.issued[unit] += 1
        self._instructions(stream, op, self.done[unit])
        for slot in op.writes:
            self.written[slot] = (unit, self.issued[unit])
            self.read[slot] = {}
        for slot in op.reads - op.writes:
            self.read.setdefault(slot, {})[unit] = self.issued[unit]

    def _instructions(self, stream: Stream, op: Op, done: Semaphore) -> None:
        if op.turns == 1:
            for part in op.parts:
                update = done.add() if part is op.parts[-1] else None
                stream.emit(part.opcode, part.fields, part.aps, update=update)
            return
        self._set(stream, SCRATCH, 0)
        first = self._loop_start(stream, op)
        for part in op.parts:
            moved = {n: SCRATCH for n in ("dst", "src0") if n in part.aps}
            fields = part.fields | {f"dyn_{n}": r for n, r in moved.items()}
            stream.emit(part.opcode, fields, part.aps)
        self._add(stream, SCRATCH, op.step)
        self._loop_end(stream, first)
        stream.nop(update=done.add())

    def _control(self, stream: Stream, op: Op) -> None:
        first = self._loop_start(stream, op) if op.turns > 1 else 0
        for part in op.parts:
            fields = dict(part.fields)
            if part.opcode == Opcode.BRANCH:
                fields["target"] = len(stream.instructions) + len(op.parts)
            stream.emit(part.opcode, fields)
        if op.turns > 1:
            self._loop_end(stream, first)

    def _loop_start(self, stream: Stream, op: Op) -> int:
        self._set(stream, COUNTER, op.turns)
        return len(stream.instructions)

    def _loop_end(self, stream: Stream, first: int) -> None:
        self._add(stream, COUNTER, -1)
        stream.emit(Opcode.BRANCH, {"cond": Cond.NE, "ra": COUNTER, "use_imm": 1, "imm": 0, "target": first})

    @staticmethod
    def _set(stream: Stream, register: int, value: int) -> None:
        stream.emit(Opcode.REGISTER, {"reg_op": RegOp.MOVE, "rd": register, "use_imm": 1, "imm": value})

    @staticmethod
    def _add(stream: Stream, register: int, value: int) -> None:
        fields = {"reg_op": RegOp.ADD, "rd": register, "ra": register, "use_imm": 1, "imm": value}
        stream.emit(Opcode.REGISTER, fields)

    def wait_for_all(self, stream: Stream) -> None:
        """Until every operation so far is done."""
        for unit, count in self.issued.items():
            stream.nop(wait=Wait(self.done[unit].index, count))


def _slots() -> list[tuple[Slot, Space]]:
    sbuf: list[tuple[Slot, Space]] = [(("sbuf", n), Space.SBUF) for n in range(SBUF_SLOTS)]
    psum: list[tuple[Slot, Space]] = [(("psum", n), Space.PSUM) for n in range(PSUM_SLOTS)]
    return sbuf + psum


def _transfer(config: ChipConfig, slot: Slot, space: Space, address: int, *, out: bool) -> Op:
    """A whole slot from or to memory."""
    stride = addressing.SBUF_PARTITION_STRIDE if space == Space.SBUF else addressing.PSUM_PARTITION_STRIDE
    ends = {
        "src": (addressing.memory_address(address), SLOT_BYTES),
        "dst": (addressing.core_address(0, space, 0, slot[1] * SLOT_BYTES), stride),
    }
    if out:
        ends = {"src": ends["dst"], "dst": ends["src"]}
    fields = {"rows": config.partitions, "row_bytes": SLOT_BYTES}
    for name, (start, step) in ends.items():
        fields |= {name: start, f"{name}_stride": step}
    empty: frozenset[Slot] = frozenset()
    one = frozenset({slot})
    return Op(Engine.SYNC, (Part(Opcode.DMA, fields),), one if out else empty, empty if out else one)


def build(config: ChipConfig, ops: list[Op], seed: int) -> Image:
    """An image that loads all slots with numbers made from `seed`, does `ops`, and stores all slots; its outputs are those and the memory slots."""
    rng = random.Random(seed)
    image, schedule = Image.empty(config), Schedule(config)
    size = config.partitions * SLOT_BYTES
    for n, (slot, space) in enumerate(_slots()):
        image.add(LOAD_BASE + n * size, contents(rng, size // 4))
        schedule.emit(_transfer(config, slot, space, LOAD_BASE + n * size, out=False))
    for n in range(MEMORY_SLOTS):
        image.add(memory_slot(config, n), contents(rng, size // 4))
        image.add_output(memory_slot(config, n), size)
    for op in ops:
        schedule.emit(op)
    schedule.wait_for_all(schedule.program.sync)
    for n, (slot, space) in enumerate(_slots()):
        schedule.emit(_transfer(config, slot, space, STORE_BASE + n * size, out=True))
        image.add_output(STORE_BASE + n * size, size)
    schedule.program.finish()
    image.add_program(0, schedule.program, PROGRAM_BASE)
    return image
