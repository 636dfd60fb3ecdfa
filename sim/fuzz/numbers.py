"""Random operations of the vector engine's generators of random numbers."""

from models.access import AccessPattern
from models.elements import ALU_OPS
from models.formats import INTS, DType
from models.isa import AluOp, Engine, Flag, Opcode, StateOp
from models.xorwow import ALL, FRACTION, RANDOMS, STATE_TYPES, WORDS
from sim.fuzz.operands import Op, Operands, Slot


class RandomNumbers(Operands):
    """RANDOM, RANDOM_STATE and DROPOUT."""

    def _random(self) -> Op:
        rng = self.rng
        opcode = rng.choice(RANDOMS)
        parts, room = rng.randint(1, self.config.partitions), rng.choice([0, 0, 32])
        fields = {"parts": parts, "flags": rng.getrandbits(1) * int(Flag.SATURATE), "imm1": self._imm()}
        used: dict[str, AccessPattern] = {}
        reads: set[Slot] = set()
        size, (d_type, s_type) = self._size(), self._types()
        written = True
        if opcode == Opcode.RANDOM_STATE:
            op = rng.choice(list(StateOp))
            size, written, room = WORDS, op == StateOp.STORE, room if op == StateOp.STORE else 0
            d_type, s_type = rng.choice(STATE_TYPES), rng.choice(STATE_TYPES)
            fields |= {"op0": int(op), "imm0": rng.getrandbits(32)}
        elif opcode == Opcode.DROPOUT:
            fields["imm0"] = rng.choice([0, ALL, rng.randrange(ALL), 0x3F000000, 0x3DCCCCCD])
        else:
            d_type = rng.choice([d_type, DType.UINT32, DType.INT8])
            fields["imm0"] = rng.choice([self._imm(), 0x33800000])
            if d_type not in INTS:
                fields |= {"op0": int(rng.choice([AluOp.MUL, *ALU_OPS])), "op1": int(rng.choice(ALU_OPS))}
                fields["axes"] = rng.randint(0, FRACTION)
        if opcode == Opcode.DROPOUT or (fields.get("op0") == StateOp.LOAD and opcode == Opcode.RANDOM_STATE):
            source = self._slot()
            used["src0"] = self._pattern(source, size, s_type, self._part(parts), room=room)
            reads.add(source)
        if not written:
            return self._looped(Engine.VECTOR, opcode, fields, used, frozenset(reads), None, room)
        target = self._slot(apart=frozenset(reads))
        used["dst"] = self._pattern(target, size, d_type, self._part(parts), room=room)
        return self._looped(Engine.VECTOR, opcode, fields, used, frozenset(reads), target, room)
