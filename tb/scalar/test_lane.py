"""ScalarLane's timing and slots: programs of single steps, slots that do not see each other. (Functions: test_sequencer.)"""

import numpy as np

from models import wide
from models.formats import DType
from models.microcode import OPERANDS, REGISTERS, Op, constant
from models.wide import from_fp32
from rtl.scalar.lane import LATENCY, SLOTS, ScalarLane, ScalarLaneConfig
from rtl.scalar.wide import wide_bits
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate
from tb.scalar.wides import bits


def test_registers_belong_to_slots_and_operands_are_changed_as_told():
    r = rng()
    file = [[wide.from_fp32(np.zeros(1, dtype=np.uint32)) for _ in range(REGISTERS)] for _ in range(SLOTS)]
    steps = []
    for i in range(60 * SLOTS):
        slot = i % SLOTS
        if i < REGISTERS * SLOTS:  # first every register is loaded
            steps.append(("load", slot, i // SLOTS, int(np.float32(r.gauss(0, 4)).view(np.uint32))))
        else:
            sources = [
                (r.random() < 0.3, r.randrange(REGISTERS), r.getrandbits(1), r.getrandbits(1))
                for _ in OPERANDS
            ]
            steps.append(("fma", slot, r.randrange(REGISTERS), sources))
    fixed = [from_fp32(np.array([np.float32(v).view(np.uint32)])) for v in (1.5, -0.75, 3.0)]

    def operand(slot, k, source):
        is_constant, index, negate, absolute = source
        value = fixed[k] if is_constant else file[slot][index]
        value = wide.absolute(value) if absolute else value
        return wide.negate(value) if negate else value

    want = []
    for kind, slot, target, what in steps:
        if kind == "load":
            result = from_fp32(np.array([what], dtype=np.uint32))
        else:
            result = wide.fma(*(operand(slot, k, s) for k, s in enumerate(what)))
        file[slot][target] = result
        want.append(int(wide.to_fp32(result)[0]))

    async def bench(ctx):
        ctx.set(dut.scale.as_value(), wide_bits(constant(1)))
        ctx.set(dut.bias, 0x80000000)
        ctx.set(dut.dtype, DType.FP32.value)
        ctx.set(dut.o_dtype, DType.FP32.value)
        for k, name in enumerate(OPERANDS):
            ctx.set(getattr(dut, f"constant_{name}").as_value(), bits(fixed[k], 0))
        for time in range(len(steps) + LATENCY + 2):
            # an element comes one cycle before its step
            if time < len(steps) and steps[time][0] == "load":
                ctx.set(dut.raw, steps[time][3])
            at = time - 1
            if 0 <= at < len(steps):
                kind, slot, target, what = steps[at]
                ctx.set(dut.step.valid, 1)
                ctx.set(dut.step.load, int(kind == "load"))
                ctx.set(dut.step.op, Op.FMA.value)
                ctx.set(dut.step.slot, slot)
                ctx.set(dut.step.target, target)
                if kind == "fma":
                    for name, (is_constant, index, negate, absolute) in zip(OPERANDS, what, strict=True):
                        port = getattr(dut.step, name)
                        ctx.set(port.constant, int(is_constant))
                        ctx.set(port.index, index)
                        ctx.set(port.negate, negate)
                        ctx.set(port.absolute, absolute)
            done = time - 1 - LATENCY
            if 0 <= done < len(steps):
                assert ctx.get(dut.o) == want[done], f"step {done} {steps[done]}"
            await ctx.tick()

    dut = ScalarLane(ScalarLaneConfig(), tiles=TileLibrary(inline=True))
    simulate(dut, bench)
