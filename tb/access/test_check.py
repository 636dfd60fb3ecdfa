"""Pattern rules in hardware against the functional model's."""

import random as module_random

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models.fault import Fault
from models.formats import DType
from models.gpsimd import INDICES
from models.isa import AP_BYTES, AP_OFFSETS, Space
from rtl.access.check import one_of, pattern_ok
from rtl.interfaces import ApLayout
from tb.gpsimd.instructions import random_instruction
from tb.lib.simulate import rng, simulate
from tb.vector.instructions import new_core
from tb.vector.mistakes import put_ap
from tb.vector.operands import CONFIG


class Checked(wiring.Component):
    """pattern_ok of index types in SBUF, and one_of of the type."""

    def __init__(self) -> None:
        super().__init__({"ap": In(ApLayout()), "parts": In(8), "ok": Out(1), "known": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rules = {"partitions": CONFIG.partitions, "dtypes": INDICES, "spaces": (Space.SBUF,)}
        m.d.comb += [
            self.ok.eq(pattern_ok(m, "pattern", self.ap, self.parts, **rules)),
            self.known.eq(one_of(self.ap.dtype, DType)),
        ]
        return m


def allowed(core, word, parts):
    try:
        ap = core._pattern(word, "dst", parts)
    except Fault:
        return False
    return ap.space == Space.SBUF and ap.dtype in INDICES


def test_as_the_model_says():
    module_random.seed(rng().getrandbits(32))
    dut, core, seen = Checked(), new_core(), set()
    fields = {
        "addr": [0, 1, 2, 3, 4, 6, 0xFFFFFFFC],
        "space": [0, 0, 0, 1, 2, 255],
        "dtype": [*INDICES, *range(16), 64, 255],
        "part": [0, 0, 2, 4, 6, 1, 7, 8, 255],
    }

    async def bench(ctx):
        for _ in range(1500):
            word, parts = random_instruction(), module_random.choice([1, 1, 2, 4, 8, 3, 9, 255])
            for name, values in fields.items():
                word = put_ap(word, "dst", name, module_random.choice(values))
            at = AP_OFFSETS["dst"]
            ctx.set(dut.ap.as_value(), int.from_bytes(word[at : at + AP_BYTES], "little"))
            ctx.set(dut.parts, parts)
            assert ctx.get(dut.ok) == allowed(core, word, parts), word.hex()
            assert ctx.get(dut.known) == (word[at + 5] in list(DType))
            seen.add(ctx.get(dut.ok))

    simulate(dut, bench)
    assert seen == {0, 1}
