"""Cost of an instruction: the rules of models.cost are what the simulated chip takes."""

import itertools
from dataclasses import replace

import pytest

from models import cost
from models.access import AccessPattern, row
from models.config import TensorConfig, find
from models.formats import DType
from models.functions import SLOPED, ActFunc
from models.gpsimd import GPSIMD_OPS
from models.image import Image
from models.isa import CONTROL, AluOp, Engine, Opcode, Space
from models.program import Program
from sim.run import run_image
from tb.lib.simulate import rng

FP32, BF16 = DType.FP32, DType.BF16
E8M0 = DType.E8M0


QUIET = 50
"""NOPs of the sync engine in which all other streams but one come to their end."""


def busy(config, engine, fill):
    """(cycles that the engine was busy with a program, its instructions).

    It starts when the other streams have ended: their fetches and updates would cost it cycles.
    """
    program = Program(config)
    quiet = program.semaphore("quiet")
    for _ in range(QUIET):
        program.sync.nop()
    program.sync.nop(update=quiet.add())
    program.streams[engine].nop(wait=quiet.ge(1))
    fill(program)
    program.finish()
    image = Image.empty(config)
    image.add_program(0, program, 0x1000)
    done = run_image(config, image)
    assert done.cores[0].error is None
    instructions = [i for i in program.streams[engine].instructions if i.opcode not in CONTROL]
    return done.cores[0].counters[f"BUSY_{engine.name}"], instructions


def fills(n, group, parts, function):
    """A way to emit each vector, scalar and gpsimd instruction, with results of n elements."""
    dst, a, b = row(4096, FP32, n), row(0, FP32, n), row(0, FP32, n, space=Space.PSUM)
    grouped = AccessPattern(0, FP32, ((group, n), (1, group)))
    one = row(1024, FP32, 1)
    four, scales = row(0, FP32, 4 * n, space=Space.PSUM), row(2048, E8M0, n)
    many, eight = row(0, FP32, n + 7), row(1024, FP32, 8)
    kwargs = {"parts": parts}
    return {
        Opcode.TENSOR_COPY: lambda p: p.vector.tensor_copy(dst, a, **kwargs),
        Opcode.TENSOR_TENSOR: lambda p: p.vector.tensor_tensor(dst, a, b, AluOp.ADD, **kwargs),
        Opcode.TENSOR_SCALAR: lambda p: p.vector.tensor_scalar(dst, a, AluOp.MUL, 2.0, **kwargs),
        "per partition": lambda p: p.vector.tensor_scalar(dst, a, AluOp.MUL, one, **kwargs),
        Opcode.SCALAR_TENSOR_TENSOR: lambda p: p.vector.scalar_tensor_tensor(
            dst, a, AluOp.MUL, 2.0, AluOp.ADD, b, **kwargs
        ),
        Opcode.TENSOR_REDUCE: lambda p: p.vector.tensor_reduce(dst, grouped, AluOp.MAX, **kwargs),
        Opcode.MEMSET: lambda p: p.vector.memset(dst, 1.0, **kwargs),
        Opcode.TENSOR_COPY_PREDICATED: lambda p: p.vector.tensor_copy_predicated(dst, a, b, **kwargs),
        Opcode.TENSOR_TENSOR_SCAN: lambda p: p.vector.tensor_tensor_scan(
            dst, a, b, AluOp.MUL, AluOp.ADD, **kwargs
        ),
        "divide": lambda p: p.vector.tensor_tensor(dst, a, b, AluOp.DIVIDE, **kwargs),
        "reciprocal": lambda p: p.vector.reciprocal(dst, a, **kwargs),
        "divide per partition": lambda p: p.vector.tensor_scalar(dst, a, AluOp.DIVIDE, one, **kwargs),
        "accumulate": lambda p: p.vector.tensor_scalar(
            dst, a, AluOp.MUL, one, accumulate=AluOp.ADD, **kwargs
        ),
        Opcode.READ_ACCUMULATOR: lambda p: p.vector.read_accumulator(row(4096, FP32, 1), AluOp.ADD, **kwargs),
        Opcode.EXPONENTIAL: lambda p: p.vector.exponential(dst, a, **kwargs),
        "exponential per partition": lambda p: p.vector.exponential(dst, a, AluOp.SUB, one, **kwargs),
        Opcode.SELECT: lambda p: p.vector.select(dst, a, b, 0.0, **kwargs),
        Opcode.RANGE_SELECT: lambda p: p.vector.range_select(
            dst, a, row(1024, FP32, 2), AluOp.IS_GE, AluOp.IS_LT, 0.0, **kwargs
        ),
        Opcode.MAX8: lambda p: p.vector.max8(row(4096, FP32, 8), many, **kwargs),
        Opcode.FIND_INDEX8: lambda p: p.vector.find_index8(row(4096, DType.INT32, 8), many, eight, **kwargs),
        Opcode.MATCH_REPLACE8: lambda p: p.vector.match_replace8(
            row(4096, FP32, n + 7), many, eight, 0.0, **kwargs
        ),
        Opcode.MX_SCALE: lambda p: p.vector.mx_scale(row(4096, E8M0, n), four, DType.E4M3X4, parts=8),
        Opcode.MX_CAST: lambda p: p.vector.mx_cast(row(4096, DType.E4M3X4, n), four, scales, parts=8),
        Opcode.ACTIVATE: lambda p: p.scalar.activate(
            dst, a, function, accumulate=n % 2 == 0, slope=0.5 if function in SLOPED else None, **kwargs
        ),
        "scalar accumulators": lambda p: p.scalar.read_accumulator(row(4096, FP32, 1), **kwargs),
        Opcode.IOTA: lambda p: p.gpsimd.iota(dst, ((1, n),), multiplier=7, **kwargs),
        Opcode.AFFINE_SELECT: lambda p: p.gpsimd.affine_select(
            dst, a, AluOp.IS_GE, ((-1, n),), -1e9, multiplier=1, **kwargs
        ),
        # memory starts as zeros: every index is the first element
        Opcode.LOCAL_GATHER: lambda p: p.gpsimd.local_gather(
            dst, row(0, FP32, group), row(1024, DType.UINT16, n), **kwargs
        ),
        Opcode.PARTITION_REDUCE: lambda p: p.gpsimd.partition_reduce(dst, a, AluOp.ADD, **kwargs),
    }


OTHER_ENGINES = {
    Opcode.ACTIVATE: Engine.SCALAR,
    "scalar accumulators": Engine.SCALAR,
    **dict.fromkeys(GPSIMD_OPS, Engine.GPSIMD),
}
KINDS = list(fills(1, 1, 1, ActFunc.RELU))


@pytest.mark.parametrize("name", ["nano", "mini"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: getattr(k, "name", k))
def test_elements(kind, name):
    config, random = find(name), rng()
    for n in (1, random.randint(2, 9), random.randint(10, 120)):
        fill = fills(
            n, random.randint(1, 6), random.randint(1, config.partitions), random.choice(list(ActFunc))
        )[kind]
        engine = OTHER_ENGINES.get(kind, Engine.VECTOR)
        cycles, (instr,) = busy(config, engine, fill)
        assert cycles == cost.alone(config, instr, engine), f"{n} elements"


@pytest.mark.parametrize("name", ["nano", "mini"])
def test_matmul(name):
    config, random = find(name), rng()
    for _ in range(3):
        k, m, n = (
            random.randint(1, config.partitions),
            random.randint(1, config.partitions),
            random.randint(1, 100),
        )

        def fill(p, k=k, m=m, n=n):
            p.tensor.load_stationary(row(0, BF16, m), k=k, m=m)
            # one after the other: behind a load that runs, the matmul's fields would be checked meanwhile
            p.tensor.nop(update=p.semaphore("loaded").add())
            p.tensor.matmul(row(0, FP32, n, space=Space.PSUM), row(512, BF16, n), k=k, m=m)

        cycles, instructions = busy(config, Engine.TENSOR, fill)
        late = cycles - sum(cost.alone(config, i) for i in instructions)
        # the first moving word may find its bank taken by the last stationary one
        assert late in (0, 1), (k, m, n)


@pytest.mark.parametrize("name", ["nano", "mini"])
def test_double_rows_take_no_longer(name):
    """Twice the products in the cycles of single rows, loads included; a cycle more where both rows' first words share a bank."""
    config = find(name)
    p, n, e4m3 = config.partitions, 96, DType.E4M3

    def taken(count, apart=None):
        """Cycles of `count` loads and matmuls; second rows begin `apart` banks from the first ones, None: there are none."""

        def second(at, size):
            return {"double_row": row(at + 4 * apart, e4m3, size)} if apart is not None else {}

        def fill(program):
            for i in range(count):
                program.tensor.load_stationary(row(0, e4m3, p), k=p, m=p, **second(1024, p))
                if count == 1:
                    program.tensor.nop(update=program.semaphore("loaded").add())
                dst = row(0, FP32, n, space=Space.PSUM)
                moving = row(512, e4m3, n)
                program.tensor.matmul(dst, moving, k=p, m=p, accumulate=i > 0, **second(2048, n))

        return busy(config, Engine.TENSOR, fill)

    for count in (1, 4):
        single, _ = taken(count)
        double, instructions = taken(count, apart=1)
        assert double == single
        assert taken(count, apart=0)[0] - single in range(1, 2 * count + 1)
        if count == 1:
            assert double - sum(cost.alone(config, i) for i in instructions) in (0, 1)
    assert taken(5, apart=1)[0] - double == cost.FURTHER_MATMUL.cycles(config, instructions[-1])


@pytest.mark.parametrize("name", ["nano", "mini"])
@pytest.mark.parametrize("dtype", [DType.UINT8, BF16, FP32], ids=lambda d: d.name)
def test_transpose(name, dtype):
    config, random = find(name), rng()
    p = config.partitions
    for k, m in [(p, p), (random.randint(1, p), random.randint(1, p))]:
        fill = lambda prog, k=k, m=m: prog.tensor.transpose(  # noqa: E731
            row(0, dtype, k, space=Space.PSUM), row(512, dtype, m), k=k, m=m
        )
        cycles, (instr,) = busy(config, Engine.TENSOR, fill)
        assert cycles == cost.alone(config, instr), (k, m)


@pytest.mark.parametrize("name", ["nano", "mini"])
def test_further_transposes(name):
    config = find(name)
    p, taken = config.partitions, []
    for count in (3, 4, 5):

        def fill(program, count=count):
            for i in range(count):
                program.tensor.transpose(
                    row(4 * p * i, FP32, p, space=Space.PSUM), row(512, FP32, p), k=p, m=p
                )

        cycles, instructions = busy(config, Engine.TENSOR, fill)
        taken.append(cycles)
    most = cost.FURTHER_TRANSPOSE.cycles(config, instructions[-1])
    assert all(p < b - a <= most for a, b in itertools.pairwise(taken))


def test_fp32_matmul():
    nano = find("nano")
    config = replace(nano, tensor=TensorConfig(formats=(*nano.tensor.formats, FP32)))
    taken = []
    for n, count in ((1, 1), (37, 1), (40, 3), (40, 4)):

        def fill(p, n=n, count=count):
            p.tensor.load_stationary(row(0, FP32, 8), k=8, m=8)
            p.tensor.nop(update=p.semaphore("loaded").add())
            for _ in range(count):
                p.tensor.matmul(row(0, FP32, n, space=Space.PSUM), row(512, FP32, n), k=8, m=8)

        cycles, instructions = busy(config, Engine.TENSOR, fill)
        taken.append(cycles)
        if count == 1:
            assert cycles - sum(cost.alone(config, i) for i in instructions) in (0, 1), n
    assert taken[3] - taken[2] == cost.FURTHER_MATMUL.cycles(config, instructions[-1])


@pytest.mark.parametrize("loads", [False, True], ids=["one load", "a load each"])
@pytest.mark.parametrize("name", ["nano", "mini"])
def test_further_matmuls(name, loads):
    config, random = find(name), rng()
    p = config.partitions
    for n in (cost.ENOUGH_COLUMNS, random.randint(cost.ENOUGH_COLUMNS, 120)):
        taken = []
        for count in (3, 4, 5):

            def fill(program, count=count, n=n):
                for i in range(count):
                    if loads or i == 0:
                        program.tensor.load_stationary(row(0, BF16, p), k=p, m=p)
                    program.tensor.matmul(row(0, FP32, n, space=Space.PSUM), row(512, BF16, n), k=p, m=p)

            cycles, instructions = busy(config, Engine.TENSOR, fill)
            taken.append(cycles)
        added = [b - a for a, b in itertools.pairwise(taken)]
        assert added == [cost.FURTHER_MATMUL.cycles(config, instructions[-1])] * 2, n


def test_control_instructions():
    config, cycles = find("nano"), {}
    for count in (20, 60):
        program = Program(config)
        for n in range(count):
            if n % 2:
                program.vector.nop()
            else:
                program.vector.set(program.vector.register("a"), n)
        program.finish()
        image = Image.empty(config)
        image.add_program(0, program, 0x1000)
        cycles[count] = run_image(config, image).cores[0].counters["CYCLES"]
    assert cycles[60] - cycles[20] == 40 * cost.CONTROL


def test_every_engine_instruction_has_a_rule():
    others = {Opcode.NOP, Opcode.HALT, Opcode.REGISTER, Opcode.BRANCH, Opcode.DMA}
    assert set(cost.COSTS) == set(Opcode) - others


def test_what_has_no_rule():
    program = Program(find("nano"))
    program.vector.nop()
    with pytest.raises(ValueError, match="not NOP"):
        cost.alone(program.config, program.vector.instructions[0])
