"""Control flow: a sequencer's registers, branches and dynamic addresses."""

from models import isa
from models.isa import Cond, Opcode, RegOp

MASK = 0xFFFFFFFF
DYNAMIC = {name: f"dyn_{name}" for name in ("dst", "src0", "src1")}
"""Operands, and the fields that hold the registers added to their addresses."""


class FieldError(ValueError):
    """A field of an instruction's header or of a control instruction that its opcode does not allow."""


def signed(value: int) -> int:
    """A 32-bit register as a two's-complement number."""
    return value - (1 << 32) if value >> 31 else value


def alu(op: RegOp, a: int, b: int) -> int:
    """The 32-bit result of `op` on two 32-bit registers."""
    match op:
        case RegOp.MOVE:
            return b
        case RegOp.ADD:
            return (a + b) & MASK
        case RegOp.SUB:
            return (a - b) & MASK
        case RegOp.MUL:
            return (a * b) & MASK
        case RegOp.AND:
            return a & b
        case RegOp.OR:
            return a | b
        case RegOp.XOR:
            return a ^ b
        case RegOp.SHL:
            return (a << (b & 31)) & MASK
        case RegOp.SHR:
            return a >> (b & 31)
        case RegOp.SRA:
            return (signed(a) >> (b & 31)) & MASK
        case RegOp.MIN:
            return a if signed(a) < signed(b) else b
        case RegOp.MAX:
            return b if signed(a) < signed(b) else a


def taken(cond: Cond, a: int, b: int) -> bool:
    """Whether a branch on two 32-bit registers is taken."""
    match cond:
        case Cond.ALWAYS:
            return True
        case Cond.EQ:
            return a == b
        case Cond.NE:
            return a != b
        case Cond.LT:
            return signed(a) < signed(b)
        case Cond.GE:
            return signed(a) >= signed(b)
        case Cond.LTU:
            return a < b
        case Cond.GEU:
            return a >= b


def check(opcode: Opcode, raw: dict[str, int]) -> None:
    """What a sequencer checks beyond the semaphores. Raises FieldError."""

    allowed = isa.dynamic_operands(opcode)
    ok = all(not raw[key] or (name in allowed and raw[key] < isa.REGISTERS) for name, key in DYNAMIC.items())
    if opcode in (Opcode.REGISTER, Opcode.BRANCH):
        ok = ok and raw["ra"] < isa.REGISTERS and raw["rb"] < isa.REGISTERS and raw["use_imm"] <= 1
    if opcode == Opcode.REGISTER:
        ok = ok and raw["reg_op"] <= max(RegOp) and 1 <= raw["rd"] < isa.REGISTERS
    if opcode == Opcode.BRANCH:
        ok = ok and raw["cond"] <= max(Cond)
    if not ok:
        raise FieldError(opcode.name)


def control(opcode: Opcode, raw: dict[str, int], registers: list[int]) -> int | None:
    """Do a checked control instruction on `registers`; the index to go on with when that is not the next one's."""
    if opcode not in (Opcode.REGISTER, Opcode.BRANCH):
        return None
    a = registers[raw["ra"]]
    b = raw["imm"] & MASK if raw["use_imm"] else registers[raw["rb"]]
    if opcode == Opcode.REGISTER:
        registers[raw["rd"]] = alu(RegOp(raw["reg_op"]), a, b)
        return None
    return raw["target"] if taken(Cond(raw["cond"]), a, b) else None


def indexed(
    opcode: Opcode, word: bytes, raw: dict[str, int], registers: list[int]
) -> tuple[bytes, dict[str, int]]:
    """The instruction with registers added to the addresses of its operands: 32 bits unsigned, or DMA's 64 bits signed."""
    if not any(raw[key] for key in DYNAMIC.values()):
        return word, raw
    if opcode == Opcode.DMA:
        moved = {
            key: (raw[key] + signed(registers[raw[f"dyn_{name}"]])) % (1 << 64)
            for key, name in (("dst", "dst"), ("src", "src0"))
        }
        return word, raw | moved
    out = bytearray(word)
    for name in isa.OPS[opcode].aps:
        at = isa.AP_OFFSETS[name]
        address = int.from_bytes(word[at : at + 4], "little") + registers[raw[f"dyn_{name}"]]
        out[at : at + 4] = (address & MASK).to_bytes(4, "little")
    return bytes(out), raw
