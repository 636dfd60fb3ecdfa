"""RegisterFile against models.flow: every operation, every condition, every operand's address."""

from models import encoding, flow, isa
from models.isa import OPS, Cond, Opcode, RegOp
from rtl.control.register_file import RegisterFile
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate

CORNERS = (0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 31, 32)
FIELDS = {f.name: f for f in isa.FIELDS}


def _word(opcode, values, random):
    """Random bits, with the header's and the control fields as given."""
    word = bytearray(random.randbytes(isa.INSTR_BYTES))
    for name, value in {"opcode": opcode, **values}.items():
        f = FIELDS[name]
        word[f.offset : f.offset + f.size] = int(value).to_bytes(f.size, "little", signed=f.signed)
    return bytes(word)


def test_against_the_model():
    dut = RegisterFile(None, tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        registers = [0] * isa.REGISTERS

        async def show(word):
            ctx.set(dut.instr.as_value(), int.from_bytes(word, "little"))
            await ctx.tick()

        async def register(values):
            word = _word(Opcode.REGISTER, values, random)
            await show(word)
            ctx.set(dut.write, 1)
            await ctx.tick()
            ctx.set(dut.write, 0)
            flow.control(Opcode.REGISTER, encoding.raw_fields(word), registers)

        for n in range(1, isa.REGISTERS):
            value = flow.signed(random.choice([*CORNERS, random.getrandbits(32)]))
            await register({"reg_op": 0, "rd": n, "ra": 0, "rb": 0, "use_imm": 1, "imm": value})
        for n in range(900):
            pick = {"ra": random.randrange(16), "rb": random.randrange(16), "use_imm": random.randrange(2)}
            pick["imm"] = flow.signed(random.choice([*CORNERS, random.getrandbits(32)]))
            if n % 3 == 0:
                op = list(RegOp)[n // 3 % len(RegOp)]
                await register({"reg_op": op, "rd": random.randrange(1, 16), **pick})
            elif n % 3 == 1:
                word = _word(Opcode.BRANCH, {"cond": list(Cond)[n // 3 % len(Cond)], **pick}, random)
                await show(word)
                jump = flow.control(Opcode.BRANCH, encoding.raw_fields(word), registers)
                assert ctx.get(dut.taken) == (jump is not None)
            else:
                opcode = random.choice([op for op in OPS if isa.dynamic_operands(op)])
                able = isa.dynamic_operands(opcode)
                numbers = {f"dyn_{d}": random.randrange(16) if d in able else 0 for d in flow.DYNAMIC}
                word = _word(opcode, numbers, random)
                await show(word)
                _check_addresses(ctx, dut, opcode, word, registers)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for n in range(16):
            word = _word(Opcode.BRANCH, {"cond": Cond.EQ, "ra": n, "rb": 0, "use_imm": 1, "imm": 0}, random)
            await show(word)
            assert ctx.get(dut.taken)

    simulate(dut, bench)


def _check_addresses(ctx, dut, opcode, word, registers):
    got = ctx.get(dut.indexed).to_bytes(isa.INSTR_BYTES, "little")
    raw = encoding.raw_fields(word)
    want, fields = flow.indexed(opcode, word, raw, registers)
    if opcode == Opcode.DMA:
        after = encoding.raw_fields(got)
        assert (after["src"], after["dst"]) == (fields["src"], fields["dst"])
        assert got[:32] == word[:32]
        assert got[40:48] == word[40:48]
        assert got[56:] == word[56:]
    else:
        assert got == want
