"""VectorEngine against the functional model: memory after every instruction, updates, faults, clears, speed."""

import random
from typing import Any

import cocotb
import numpy as np

from models import encoding
from models.access import AccessPattern
from models.formats import DType
from models.isa import AluOp, ErrorCode, Flag, Opcode, Space
from models.moves import mask_field
from sim.runner import params
from tb.vector.harness import MAX_OVERHEAD, Harness
from tb.vector.instructions import (
    Judge,
    is_legal,
    new_core,
    random_instruction,
    range_faults,
)
from tb.vector.mistakes import mutated, out_of_range
from tb.vector.operands import CONFIG, random_update


async def _started(dut: Any) -> Harness:
    bench = Harness(dut)
    await bench.start()
    return bench


def word_of(opcode: Opcode, fields: dict[str, int], **aps: AccessPattern) -> bytes:
    """An instruction word with a random update."""
    return encoding.encode(encoding.Instruction(opcode, fields | random_update(), aps))


@cocotb.test()
async def random_instructions(dut: Any) -> None:
    """Batches of legal instructions back to back under changing weather; the whole memory is compared at each update."""
    bench = await _started(dut)
    left = params()["instructions"]
    while left > 0:
        batch = min(left, random.choice([1, 4, 10]))
        left -= batch
        bench.weather()
        if random.random() < 0.3:
            bench.fill()
        bench.queue.extend(random_instruction() for _ in range(batch))
        await bench.finish()
        assert not bench.dead
        for _ in range(3):
            await bench.cycle()
        assert not bench.faults
    assert len(bench.updates) == params()["instructions"]


@cocotb.test()
async def faults(dut: Any) -> None:
    """Illegal fields and accesses out of range among legal instructions: one fault, nothing after it, then a clear and on again."""
    bench = await _started(dut)
    judge = new_core(Judge)
    for n in range(params()["instructions"] // 4):
        bench.weather()
        bench.fill()
        wrong = random_instruction()
        if n % 2:
            while is_legal(judge, wrong):
                wrong = mutated(random_instruction())
        else:
            while not range_faults(wrong):
                wrong = out_of_range(random_instruction(random.choice([1, 2, 5, 12, 24, 40])))
        before = [random_instruction() for _ in range(random.randint(0, 2))]
        bench.queue.extend([*before, wrong, random_instruction(), random_instruction()])
        done = len(bench.updates)
        await bench.finish()
        assert bench.dead, "no fault"
        assert len(bench.updates) == done + len(before)
        await bench.drain()
        assert (bench.faults[-1] == ErrorCode.ILLEGAL_FIELD) == (n % 2 == 1)
        if n % 2:
            bench.compare(wrong)
        else:
            bench.left_by_prefix(wrong)
        bench.adopt()
        await bench.clear()
        bench.queue.append(random_instruction())
        await bench.finish()
        assert not bench.dead
    assert len({*bench.faults}) == 3 or params()["instructions"] < 100


@cocotb.test()
async def clears(dut: Any) -> None:
    """A clear at any moment leaves a part of the running instruction's writes, and the next instruction is not disturbed."""
    bench = await _started(dut)
    partly = 0
    for _ in range(params()["instructions"] // 4):
        bench.weather()
        bench.fill()
        bench.queue.extend(random_instruction(random.choice([5, 16, 36, 64])) for _ in range(3))
        for _ in range(random.choice([random.randint(0, 8), random.randint(0, 40), random.randint(0, 200)])):
            await bench.cycle()
        running = bench.sent[0][0] if bench.sent and bench.update_refused is None else None
        updates = len(bench.updates)
        # what happens in the cycle of the clear itself still counts
        await bench.cycle(clear=True)
        gone = len(bench.updates) > updates
        bench.sent.clear()
        bench.queue.clear()
        bench.offered = None
        # the next instruction comes at once, but does not start before what waits has been written
        last = random_instruction()
        bench.queue.append(last)
        while not all(port.quiet for port in bench.ports.writes):
            await bench.cycle()
        if running is not None and not gone:
            partly += bench.left_by_prefix(running, cleared=True) > 0
        bench.adopt()
        await bench.finish()
        assert not bench.dead
    assert partly > 0 or params()["instructions"] < 100


@cocotb.test()
async def clear_while_a_write_waits(dut: Any) -> None:
    """The write is still made, and the next instruction, which reads that very word, waits for it."""
    bench = await _started(dut)
    for space in Space:
        first = AccessPattern(64, DType.FP32, ((1, 20),), space)
        source = AccessPattern(256, DType.FP32, ((1, 20),), space)
        away = AccessPattern(256, DType.FP32, ((1, 20),), Space(1 - space))
        bench.ports.weather(1.0)
        for port in bench.ports.writes:
            port.rate = 0.0
        word = word_of(Opcode.TENSOR_COPY, {"parts": 8}, dst=first, src0=source)
        bench.queue.append(word)
        for _ in range(40):
            await bench.cycle()
        assert any(port.refused is not None for port in bench.ports.writes)
        await bench.clear()
        bench.queue.append(word_of(Opcode.TENSOR_COPY, {"parts": 8}, dst=away, src0=first))
        for _ in range(40):
            await bench.cycle()
        for port in bench.ports.writes:
            port.rate = 1.0
        await bench.cycle()
        assert bench.left_by_prefix(word) == 1
        bench.adopt()
        await bench.finish()
        assert not bench.dead
        bench.fill()


@cocotb.test()
async def two_bad_patterns(dut: Any) -> None:
    """Both source and destination out of range from the first element on: one fault, of one of them."""
    bench = await _started(dut)
    for space in Space:
        dst = AccessPattern(CONFIG.sbuf.bytes_per_partition, DType.FP32, ((1, 4),), space)
        src = AccessPattern(2 * CONFIG.sbuf.bytes_per_partition, DType.FP32, ((1, 4),), Space(1 - space))
        bench.queue.append(word_of(Opcode.TENSOR_COPY, {"parts": 8}, dst=dst, src0=src))
        await bench.finish()
        assert bench.dead
        await bench.drain()
        await bench.clear()


@cocotb.test()
async def narrowing_in_place(dut: Any) -> None:
    """FP32 to BF16 from the same address on: writes stay behind reads."""
    bench = await _started(dut)
    for _ in range(3):
        bench.weather()
        src = AccessPattern(64, DType.FP32, ((1, 100),))
        dst = AccessPattern(64, DType.BF16, ((1, 100),))
        bench.queue.append(word_of(Opcode.TENSOR_COPY, {"parts": 8}, dst=dst, src0=src))
        await bench.finish()
        bench.fill()


@cocotb.test()
async def transposed_over_itself(dut: Any) -> None:
    """Each block's results lie where the block was, whatever the memories refuse, and the next instruction turns them back."""
    bench = await _started(dut)
    for dtype, count in ((DType.FP32, 8), (DType.BF16, 64), (DType.UINT8, 120), (DType.E4M3X4, 32)):
        bench.weather()
        block = AccessPattern(64, dtype, ((1, count),), random.choice(list(Space)))
        before = bench.sbuf.data.copy(), bench.psum.data.copy()
        bench.queue.append(word_of(Opcode.LANE_TRANSPOSE, {"parts": 8}, dst=block, src0=block))
        await bench.finish()
        assert not all(
            np.array_equal(a, b.data) for a, b in zip(before, (bench.sbuf, bench.psum), strict=True)
        )
        bench.queue.append(word_of(Opcode.LANE_TRANSPOSE, {"parts": 8}, dst=block, src0=block))
        await bench.finish()
        assert all(np.array_equal(a, b.data) for a, b in zip(before, (bench.sbuf, bench.psum), strict=True))
        bench.fill()


@cocotb.test()
async def one_element_a_cycle(dut: Any) -> None:
    """With a memory that never refuses, an instruction takes its number of elements and MAX_OVERHEAD cycles at the most."""
    bench = await _started(dut)
    n = 120
    for width, (a, b, o) in {
        4: (DType.FP32, DType.FP32, DType.FP32),
        2: (DType.BF16, DType.FP16, DType.BF16),
        1: (DType.E4M3, DType.INT8, DType.E5M2),
    }.items():
        for stride in (1, -1, 0):
            addr = 0 if stride >= 0 else (n - 1) * width
            src0 = AccessPattern(addr, a, ((stride, n),))
            src1 = AccessPattern(addr, b, ((stride, n),), Space.PSUM)
            dst = AccessPattern(512, o, ((1, n),))
            one = AccessPattern(4, b, ((1, 1),), Space.PSUM, 0)
            scalar = {"op0": int(AluOp.MUL), "op1": int(AluOp.ADD), "flags": int(Flag.SRC1_SCALAR), "imm1": 1}
            bench.queue.extend(
                [
                    word_of(Opcode.TENSOR_COPY, {"parts": 8}, dst=dst, src0=src0),
                    word_of(Opcode.TENSOR_TENSOR, {"parts": 8, "op0": 1}, dst=dst, src0=src0, src1=src1),
                    word_of(Opcode.TENSOR_SCALAR, {"parts": 8} | scalar, dst=dst, src0=src0, src1=one),
                ]
            )
    for group in (4, 24, 120):
        src = AccessPattern(0, DType.FP32, ((group, n // group), (1, group)))
        dst = AccessPattern(512, DType.FP32, ((1, n // group),))
        fields = {"parts": 8, "op0": int(AluOp.ADD), "axes": 1}
        bench.queue.append(word_of(Opcode.TENSOR_REDUCE, fields, dst=dst, src0=src))
    bench.queue.append(word_of(Opcode.MEMSET, {"parts": 8}, dst=AccessPattern(512, DType.FP32, ((1, n),))))
    src, dst = (AccessPattern(addr, DType.FP32, ((1, n),)) for addr in (0, 512))
    moves = {Opcode.STREAM_SHUFFLE: {"mask": mask_field([*range(7, -1, -1)])}, Opcode.LANE_TRANSPOSE: {}}
    bench.queue.extend(word_of(op, {"parts": 8} | mask, dst=dst, src0=src) for op, mask in moves.items())
    for _ in range(6):
        empty = AccessPattern(0, DType.FP32, ((1, 0),))
        bench.queue.append(word_of(Opcode.TENSOR_COPY, {"parts": 1}, dst=empty, src0=empty))
    start = bench.cycle_count
    await bench.finish()
    ends = [start, *bench.updates]
    taken = [b - a for a, b in zip(ends, bench.updates, strict=False)]
    assert len(taken) == 39
    assert max(taken[:32]) <= n + MAX_OVERHEAD, taken
    # a transposition gives nothing before it has a block
    assert taken[32] <= n + CONFIG.quadrant + MAX_OVERHEAD, taken
    assert max(taken[33:]) <= MAX_OVERHEAD, taken
    cocotb.log.info("cycles beside one an element: at most %d", max(taken[:32]) - n)
