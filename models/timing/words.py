"""Instruction words as the timing model needs them: what the sequencer looks at, and the rest decoded once for all equal ones."""

import struct
from dataclasses import dataclass

from models import cost, encoding, flow, isa
from models.config import ChipConfig
from models.encoding import Instruction
from models.isa import CONTROL, Engine, Opcode, WaitMode
from models.timing.clock import TimingError

_HEAD = struct.Struct("<BBBBiiBBBB")
"""The fields of isa.HEADER, in order."""
assert _HEAD.size == sum(f.size for f in isa.HEADER)
assert [f.offset for f in isa.HEADER] == [0, 1, 2, 3, 4, 8, 12, 13, 14, 15]
_Head = tuple[Opcode, tuple[int, int] | None, tuple[int, int, int], bool]


@dataclass(frozen=True, slots=True)
class Word:
    """`wait` (semaphore, value) or None; `update` mode, semaphore, value; `raw` fields of control instructions and DMAs.

    Of others `instr`, and its cycles alone, of models.cost.
    """

    opcode: Opcode
    wait: tuple[int, int] | None
    update: tuple[int, int, int]
    raw: dict[str, int]
    instr: Instruction | None = None
    cycles: int = 0


NO_RESULTS = (Opcode.LOAD_STATIONARY, Opcode.RANDOM_STATE)
"""Opcodes that may do something although they write nothing."""


class Words:
    """Decodes words, each different one once."""

    def __init__(self, config: ChipConfig):
        self.config, self.semaphores = config, config.core.semaphores
        self._heads: dict[bytes, _Head] = {}
        self._bodies: dict[tuple[Engine, Opcode, bytes], tuple[Instruction, int]] = {}
        self._raws: dict[bytes, dict[str, int]] = {}

    def word(self, engine: Engine, raw_word: bytes, registers: list[int]) -> Word:
        """The word as `engine` runs it. Raises TimingError, without saying where, for one that would stop a core."""
        head = raw_word[:16]
        found = self._heads.get(head)
        if found is None:
            found = self._heads[head] = self._head(head)
        opcode, wait, update, moved = found
        if engine not in isa.OPS[opcode].engines:
            raise TimingError(f"{opcode.name} is not an instruction of this engine")
        if opcode in CONTROL or opcode == Opcode.DMA:
            raw = self._raws.get(raw_word)
            if raw is None:
                raw = self._raws[raw_word] = encoding.raw_fields(raw_word)
                _checked(opcode, raw)
            if moved:
                _, raw = flow.indexed(opcode, raw_word, raw, registers)
            return Word(opcode, wait, update, raw)
        body = raw_word[16:]
        if moved:
            raw = encoding.raw_fields(raw_word)
            _checked(opcode, raw)
            body = flow.indexed(opcode, raw_word, raw, registers)[0][16:]
        known = self._bodies.get((engine, opcode, body))
        if known is None:
            known = self._bodies[engine, opcode, body] = self._body(engine, opcode, body)
        return Word(opcode, wait, update, {}, *known)

    def _body(self, engine: Engine, opcode: Opcode, body: bytes) -> tuple[Instruction, int]:
        """An engine's instruction without its header, and its cycles."""
        try:
            instr = encoding.decode(bytes([opcode]) + bytes(15) + body)
            if opcode == Opcode.MATMUL and instr.aps["src0"].size > self.config.psum.bank_bytes // 4:
                raise ValueError(f"MATMUL has {instr.aps['src0'].size} columns, more than a PSUM bank")
            if opcode not in NO_RESULTS and instr.aps["dst"].size == 0:
                return instr, cost.EMPTY
            return instr, cost.alone(self.config, instr, engine)
        except KeyError as e:
            raise TimingError(f"{opcode.name} has no {e.args[0]}") from None
        except ValueError as e:
            raise TimingError(str(e)) from None

    def _head(self, head: bytes) -> _Head:
        code, wait_mode, wait_sem, update_mode, wait_value, update_value, update_sem, *moved = _HEAD.unpack(
            head
        )
        if code not in list(Opcode):
            raise TimingError(f"opcode {code:#04x} is unknown")
        if wait_mode > max(WaitMode) or update_mode > max(isa.UpdateMode):
            raise TimingError(f"wait_mode {wait_mode} or update_mode {update_mode} is unknown")
        for mode, sem in ((wait_mode, wait_sem), (update_mode, update_sem)):
            if mode and sem >= self.semaphores:
                raise TimingError(f"semaphore must be below {self.semaphores}, not {sem}")
        wait = (wait_sem, wait_value) if wait_mode == WaitMode.GE else None
        return Opcode(code), wait, (update_mode, update_sem, update_value), any(moved)


def _checked(opcode: Opcode, raw: dict[str, int]) -> None:
    try:
        flow.check(opcode, raw)
    except flow.FieldError:
        raise TimingError(f"{opcode.name} has a register or a code that it may not have") from None
