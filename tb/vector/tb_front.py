"""VectorFront: its verdict on legal, slightly wrong and very large instructions is the functional model's."""

import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from models import encoding, isa
from models.elements import COPIES, DIVIDES, NO_SOURCE, PAIRS, VECTOR_OPS
from models.formats import INTS, DType
from models.fp import PARTIALS
from models.isa import AluOp, Engine, Flag, Opcode, StateOp
from models.moments import MOMENTS
from models.ranking import GIVEN, LISTED, MOST_RANKED, RANKS
from models.xorwow import RANDOMS
from rtl.access.size import LATENCY as SIZE_LATENCY
from sim.runner import params
from tb.vector.instructions import Judge, is_legal, new_core, random_instruction, used_aps
from tb.vector.mistakes import mutated, put_ap, put_small
from tb.vector.operands import CONFIG

ISSUE_BITS = 8 * isa.INSTR_BYTES + 40


class Front:
    """Sends instructions one by one and checks what comes out."""

    def __init__(self, dut: Any):
        self.dut, self.core, self.index = dut, new_core(Judge), 0
        self.verdicts = {True: 0, False: 0}

    async def start(self) -> None:
        Clock(self.dut.clk, 10, unit="ns", impl="gpi").start()
        for pin in (self.dut.issue__valid, self.dut.checked__ready, self.dut.clear):
            pin.value = 0
        self.dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def check(self, word: bytes, *, hasty: bool = False) -> None:
        dut = self.dut
        self.index = random.getrandbits(32)
        issue = int.from_bytes(word, "little") | self.index << 1024 | int(Engine.VECTOR) << 1056
        await FallingEdge(dut.clk)
        dut.issue__payload.value, dut.issue__valid.value = issue, 1
        await ReadOnly()
        assert int(dut.idle.value) == 1
        assert int(dut.issue__ready.value) == 1
        cycles = 0
        while True:
            await FallingEdge(dut.clk)
            dut.issue__valid.value = 0
            dut.issue__payload.value = random.getrandbits(ISSUE_BITS)
            dut.checked__ready.value = int(hasty or random.random() < 0.5)
            await ReadOnly()
            cycles += 1
            assert int(dut.idle.value) == 0
            assert int(dut.issue__ready.value) == 0
            if int(dut.checked__valid.value):
                self._compare(word, issue, int(dut.checked__payload.value))
                if int(dut.checked__ready.value):
                    break
            assert cycles < 100
        if hasty:
            assert cycles == SIZE_LATENCY + 1
        await FallingEdge(dut.clk)
        dut.checked__ready.value = 0

    def _compare(self, word: bytes, issue: int, item: int) -> None:
        legal = is_legal(self.core, word)
        self.verdicts[legal] += 1
        raw = encoding.raw_fields(word)
        assert item & (1 << ISSUE_BITS) - 1 == issue
        flags = item >> ISSUE_BITS
        assert flags & 1 == legal, (
            f"legal is {flags & 1}: {raw}, {[encoding.raw_ap(word, n) for n in used_aps(word)]}"
        )
        if legal:
            same = encoding.raw_ap(word, "dst")["dtype"] == encoding.raw_ap(word, "src0")["dtype"]
            op, given = raw["opcode"], raw["flags"]
            span, recall = op == Opcode.RANGE_SELECT, op == Opcode.READ_ACCUMULATOR
            reduce, fill = op in (Opcode.TENSOR_REDUCE, Opcode.READ_ACCUMULATOR), op in NO_SOURCE
            state = op == Opcode.RANDOM_STATE
            load = state and raw["op0"] == StateOp.LOAD
            fill |= state and not load
            want = {
                "legal": True,
                "copy": ((op in COPIES or op == Opcode.DROPOUT) and same)
                or (op == Opcode.RANDOM and encoding.raw_ap(word, "dst")["dtype"] in INTS)
                or state,
                "pair": op in (*PAIRS, Opcode.MX_CAST),
                "second": op in (Opcode.SCALAR_TENSOR_TENSOR, Opcode.TENSOR_TENSOR_SCAN),
                "scalar": span
                or (op in (Opcode.TENSOR_SCALAR, Opcode.EXPONENTIAL) and given & Flag.SRC1_SCALAR),
                "reduce": reduce,
                "fill": fill,
                "choose": op == Opcode.TENSOR_COPY_PREDICATED,
                "scan": op == Opcode.TENSOR_TENSOR_SCAN,
                "exponential": op == Opcode.EXPONENTIAL,
                "divide": op in DIVIDES and raw["op0"] == AluOp.DIVIDE,
                "select": op == Opcode.SELECT,
                "span": span,
                "accumulate": given & Flag.ACCUMULATE,
                "recall": recall,
                "scale": op == Opcode.MX_SCALE,
                "pack": op == Opcode.MX_CAST,
                "rank": op in RANKS,
                "given": op in GIVEN,
                "listed": op in LISTED,
                "shuffle": op == Opcode.STREAM_SHUFFLE,
                "transpose": op == Opcode.LANE_TRANSPOSE,
                "moments": op in MOMENTS,
                "triples": op == Opcode.BN_AGGR,
                "random": op == Opcode.RANDOM or (state and not load),
                "draws": op in (Opcode.RANDOM, Opcode.DROPOUT),
                "drop": op == Opcode.DROPOUT,
                "load": load,
                "seed": state and raw["op0"] == StateOp.SEED,
            }
            got = {name: flags >> n & 1 for n, name in enumerate(want)}
            assert got == {name: int(bool(value)) for name, value in want.items()}
            sizes = flags >> len(want)
            if reduce:
                source = encoding.ap_from_raw(encoding.raw_ap(word, "src0"))
                assert sizes & 0xFFFFFFFF == (PARTIALS if recall else source.inner(raw["axes"]))
            if op in MOMENTS:
                assert sizes & 0xFFFFFFFF == encoding.ap_from_raw(encoding.raw_ap(word, "src0")).size
            if fill:
                dst = encoding.ap_from_raw(encoding.raw_ap(word, "dst"))
                assert sizes >> 32 == (PARTIALS if recall else dst.size)


async def _started(dut: Any) -> Front:
    front = Front(dut)
    await front.start()
    return front


@cocotb.test()
async def random_mistakes(dut: Any) -> None:
    """Legal instructions, and the same with one or two fields changed."""
    front = await _started(dut)
    for _ in range(params()["instructions"]):
        word = random_instruction()
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            word = mutated(word)
        await front.check(word, hasty=random.random() < 0.3)
    assert min(front.verdicts.values()) > params()["instructions"] // 10, front.verdicts


@cocotb.test()
async def every_value_of_every_code(dut: Any) -> None:
    """All 256 values of each one-byte field, from a legal instruction of each kind."""
    front = await _started(dut)
    step = 1 if params()["instructions"] > 1000 else 37
    for opcode in VECTOR_OPS:
        word = random_instruction()
        while encoding.raw_fields(word)["opcode"] != opcode:
            word = random_instruction()
        for value in range(0, 256, step):
            for name in ("parts", "op0", "op1", "flags"):
                await front.check(put_small(word, name, value), hasty=True)
            for ap in used_aps(word):
                for name in ("space", "dtype", "part"):
                    await front.check(put_ap(word, ap, name, value), hasty=True)


@cocotb.test()
async def large_sizes(dut: Any) -> None:
    """Sizes up to 65535**4 are compared exactly: equal ones in another order, and ones that differ by a factor, or by 2**32 or more."""
    front = await _started(dut)
    tricky = [
        ((0x8000, 0x8000, 4, 1), (0x8000, 0x8000, 8, 1)),
        ((0x8000, 0x8000, 0x8000, 2), (0x8000, 0x8000, 0x8000, 4)),
        ((0x100, 0x100, 0x100, 0x100), (0x100, 0x100, 0x100, 0)),
        ((0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF), (0xFFFF, 0xFFFF, 0xFFFF, 0xFFFE)),
        ((0xFFFF, 0xFFFF, 0xFFFF, 0), (0, 1, 1, 1)),
        ((0xFFFF, 0x101, 1, 1), (0xFF, 0x101, 0x101, 1)),
        ((0xFFFF, 3, 0xFFFF, 5), (0xFFFF, 0xFFFF, 5, 3)),
        ((0x1000, 0x1000, 0x1000, 0x1000), (1, 1, 1, 1)),
        ((0x1000, 0x1000, 0x1000, 0x1000), (0x1000, 0x1000, 0x1000, 0x1001)),
    ]
    for _ in range(60):
        word = random_instruction()
        counts = random.choice(tricky)
        for ap in used_aps(word):
            scalar = ap == "src1" and encoding.raw_fields(word)["flags"] & Flag.SRC1_SCALAR
            chosen = random.choice([(1, 1, 1, 1), counts[0], counts[1]]) if scalar else random.choice(counts)
            for d, count in enumerate(chosen):
                word = put_ap(word, ap, f"count{d}", count)
        await front.check(word)


@cocotb.test()
async def how_many_are_ranked(dut: Any) -> None:
    """Both ends of the number of elements that a list may come from, and of what it gives and is given."""
    front = await _started(dut)
    sizes = ((0, 1), (1, 7), (1, 8), (3, 3), (2, 8), (2, MOST_RANKED // 2), (1, MOST_RANKED + 1), (1, 0xFFFF))
    for opcode in RANKS:
        for size in sizes:
            for same, given in ((True, (1, 8)), (False, (2, 4)), (True, (1, 7)), (False, (9, 1))):
                word = random_instruction()
                while encoding.raw_fields(word)["opcode"] != opcode:
                    word = random_instruction()
                dst = size if opcode not in LISTED or not same else (4, 2)
                for ap, counts in (("src0", size), ("dst", dst), ("src1", given)):
                    if ap in used_aps(word):
                        for d, count in enumerate((1, *counts, 1)):
                            word = put_ap(word, ap, f"count{d}", count)
                await front.check(word, hasty=True)


@cocotb.test()
async def every_entry_of_a_mask(dut: Any) -> None:
    """Each byte of a shuffle's mask with every value; those that no partition has do not count."""
    front = await _started(dut)
    word = random_instruction()
    while encoding.raw_fields(word)["opcode"] != Opcode.STREAM_SHUFFLE:
        word = random_instruction()
    edges = {0, 1, CONFIG.quadrant - 1, CONFIG.quadrant, CONFIG.quadrant + 1, 127, 128, 254, 255}
    for entry in range(isa.MASK_FIELDS[0].size):
        for value in edges | {random.getrandbits(8) for _ in range(8)}:
            at = isa.MASK_FIELDS[0].offset + entry
            await front.check(word[:at] + bytes([value]) + word[at + 1 :], hasty=True)
    assert min(front.verdicts.values()) > 20


@cocotb.test()
async def whole_blocks_are_transposed(dut: Any) -> None:
    """Every number of elements and of partitions around some blocks."""
    front = await _started(dut)
    word = random_instruction()
    while encoding.raw_fields(word)["opcode"] != Opcode.LANE_TRANSPOSE:
        word = random_instruction()
    for count in (*range(3 * CONFIG.quadrant + 1), 0xFFF8, 0xFFFF):
        changed = word
        for ap in ("dst", "src0"):
            for d, part in enumerate((1, count, 1, 1)):
                changed = put_ap(changed, ap, f"count{d}", part)
        await front.check(changed, hasty=True)
        await front.check(put_small(changed, "parts", random.randint(0, CONFIG.partitions)), hasty=True)


@cocotb.test()
async def how_many_have_moments(dut: Any) -> None:
    """Every number of elements near both ends and where it is a multiple of three, and the number of results."""
    front = await _started(dut)
    sizes = (*range(20), 511, 512, 513, 1024, *range(1530, 1542), 2047, 2048, 3 * 2048, 0xFFFF)
    for opcode, results in MOMENTS.items():
        word = random_instruction()
        while encoding.raw_fields(word)["opcode"] != opcode:
            word = random_instruction()
        for size in (*sizes, *random.sample(range(1540), 30)):
            for written in (results, results, 3, 0):
                for ap, count in (("src0", size), ("dst", written)):
                    counts = (1, 1, count, 1)
                    for d, value in enumerate(counts):
                        word = put_ap(word, ap, f"count{d}", value)
                await front.check(word, hasty=True)


@cocotb.test()
async def random_fields(dut: Any) -> None:
    """Every value of what RANDOM's, RANDOM_STATE's and DROPOUT's fields allow."""
    front = await _started(dut)
    for opcode in RANDOMS:
        for _ in range(8):
            word = random_instruction()
            while encoding.raw_fields(word)["opcode"] != opcode:
                word = random_instruction()
            for value in (*range(40), 255):
                for name in ("axes", "op0", "op1"):
                    await front.check(put_small(word, name, value), hasty=True)
            for value in (
                0,
                1,
                0x3F7FFFFF,
                0x3F800000,
                0x3F800001,
                0x7F800000,
                0x7FC00000,
                0x80000000,
                0xBF800000,
            ):
                await front.check(put_small(word, "imm0", value), hasty=True)
            for ap in used_aps(word):
                for value in DType:
                    await front.check(put_ap(word, ap, "dtype", value), hasty=True)
                for value in range(9):
                    await front.check(put_ap(word, ap, "count3", value), hasty=True)


@cocotb.test()
async def clear_forgets(dut: Any) -> None:
    """A clear at any moment: idle from the next cycle on, nothing comes out, nothing goes in meanwhile."""
    front = await _started(dut)
    for delay in (*range(10), *range(10)):
        await FallingEdge(dut.clk)
        dut.issue__payload.value = int.from_bytes(random_instruction(), "little")
        dut.issue__valid.value = 1
        await FallingEdge(dut.clk)
        dut.issue__valid.value = 0
        for _ in range(delay):
            await FallingEdge(dut.clk)
        dut.clear.value, dut.issue__valid.value = 1, 1
        await ReadOnly()
        assert int(dut.checked__valid.value) == 0
        assert int(dut.issue__ready.value) == 0
        await FallingEdge(dut.clk)
        dut.clear.value, dut.issue__valid.value = 0, 0
        await ReadOnly()
        assert int(dut.idle.value) == 1
        await front.check(random_instruction())


@cocotb.test()
async def packed_types(dut: Any) -> None:
    """x4 types may be copied to the same type, and nothing else."""
    front = await _started(dut)
    for src in (DType.E4M3X4, DType.E2M1X4, DType.E8M0, DType.FP32):
        for dst in (DType.E5M2X4, DType.E2M1X4, DType.E4M3X4, DType.E8M0, DType.FP32):
            word = random_instruction()
            for ap, dtype in (("src0", src), ("dst", dst)):
                word = put_ap(
                    put_ap(word, ap, "dtype", dtype), ap, "addr", 4 * random.randrange(CONFIG.partitions)
                )
            await front.check(word, hasty=True)
