"""Instruction words: fields to 128 bytes and back, from the table in `models.isa`."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from models import isa
from models.access import AccessPattern
from models.formats import DType
from models.isa import Field, Opcode, Space

_PLAIN: dict[str, Field] = {f.name: f for f in isa.FIELDS}


class EncodingError(ValueError):
    """A field that does not fit or does not belong to the opcode; the text names it, its value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: `fields` by name (header and small fields that are not zero), `aps` by operand name."""

    opcode: Opcode
    fields: dict[str, int] = field(default_factory=dict)
    aps: dict[str, AccessPattern] = field(default_factory=dict)


def _put(word: bytearray, f: Field, base: int, value: int) -> None:
    low, high = (
        (-(1 << (8 * f.size - 1)), (1 << (8 * f.size - 1)) - 1) if f.signed else (0, (1 << (8 * f.size)) - 1)
    )
    if not low <= value <= high:
        raise EncodingError(f"{f.name} must be from {low} to {high}, not {value!r}")
    word[base + f.offset : base + f.offset + f.size] = int(value).to_bytes(f.size, "little", signed=f.signed)


class _Layout:
    """Fields that do not overlap, read in one go."""

    def __init__(self, fields: Iterable[Field]):
        ordered = sorted(fields, key=lambda f: f.offset)
        self.names = [f.name for f in ordered]
        code, at = "<", 0
        for f in ordered:
            letter = {1: "b", 2: "h", 4: "i", 8: "q"}[f.size]
            code += f"{f.offset - at}x" + (letter if f.signed else letter.upper())
            at = f.offset + f.size
        self.struct = Struct(code)

    def read(self, word: bytes, base: int = 0) -> dict[str, int]:
        """The fields of `word` from byte `base` on."""
        return dict(zip(self.names, self.struct.unpack_from(word, base), strict=True))


_HEAD = _Layout((*isa.HEADER, *isa.SMALL))
_BODIES = (
    _Layout(isa.DMA_FIELDS),
    _Layout(f for f in isa.CONTROL_FIELDS if f.name != "cond"),
    _Layout(f for f in isa.CONTROL_FIELDS if f.name == "cond"),
)
_PATTERN = _Layout(isa.AP_FIELDS)


def encode(instr: Instruction) -> bytes:
    """The 128-byte word. Raises EncodingError for a field the opcode does not have or a value that does not fit."""
    info = isa.OPS[instr.opcode]
    header = {f.name for f in isa.HEADER}
    word = bytearray(isa.INSTR_BYTES)
    _put(word, _PLAIN["opcode"], 0, instr.opcode)
    for name, value in instr.fields.items():
        if name not in header and name not in info.fields:
            raise EncodingError(
                f"{instr.opcode.name} has no field {name!r}; it has {', '.join(info.fields) or 'none'}"
            )
        _put(word, _PLAIN[name], 0, value)
    for name, ap in instr.aps.items():
        if name not in info.aps:
            raise EncodingError(
                f"{instr.opcode.name} has no operand {name!r}; it has {', '.join(info.aps) or 'none'}"
            )
        values: dict[str, int] = {"addr": ap.addr, "space": ap.space, "dtype": ap.dtype, "part": ap.part}
        for i, (stride, count) in enumerate(ap.padded()):
            values[f"stride{i}"], values[f"count{i}"] = stride, count
        for f in isa.AP_FIELDS:
            _put(word, f, isa.AP_OFFSETS[name], values[f.name])
    return bytes(word)


def raw_fields(word: bytes) -> dict[str, int]:
    """Every field of a word but those of access patterns, whatever its opcode."""
    out = _HEAD.read(word)
    for layout in _BODIES:
        out |= layout.read(word)
    for f in isa.MASK_FIELDS:
        out[f.name] = int.from_bytes(word[f.offset : f.offset + f.size], "little")
    return out


def raw_ap(word: bytes, name: str) -> dict[str, int]:
    """The fields of one access pattern of a word, unchecked."""
    return _PATTERN.read(word, isa.AP_OFFSETS[name])


def ap_from_raw(raw: dict[str, int]) -> AccessPattern:
    """An AccessPattern from raw fields. Raises ValueError when the type or space code is unknown."""
    dims = tuple((raw[f"stride{i}"], raw[f"count{i}"]) for i in range(isa.AP_DIMS))
    return AccessPattern(raw["addr"], DType(raw["dtype"]), dims, Space(raw["space"]), raw["part"])


def decode(word: bytes) -> Instruction:
    """The instruction in a 128-byte word. Raises EncodingError when it has no legal reading."""
    if len(word) != isa.INSTR_BYTES:
        raise EncodingError(f"an instruction is {isa.INSTR_BYTES} bytes, not {len(word)}")
    raw = raw_fields(word)
    try:
        opcode = Opcode(raw["opcode"])
    except ValueError:
        raise EncodingError(
            f"opcode must be one of {', '.join(f'{o:#04x} {o.name}' for o in Opcode)}, not {raw['opcode']:#04x}"
        ) from None
    info = isa.OPS[opcode]
    names: list[str] = [f.name for f in isa.HEADER[1:]] + list(info.fields)
    fields = {n: raw[n] for n in names if raw[n] != 0}
    aps: dict[str, Any] = {}
    for name in info.aps:
        ap_bytes = word[isa.AP_OFFSETS[name] : isa.AP_OFFSETS[name] + isa.AP_BYTES]
        if any(ap_bytes):
            try:
                aps[name] = ap_from_raw(raw_ap(word, name))
            except ValueError as e:
                raise EncodingError(f"{opcode.name} {name}: {e}") from None
    instr = Instruction(opcode, fields, aps)
    rebuilt = encode(instr)
    for i, (a, b) in enumerate(zip(word, rebuilt, strict=True)):
        if a != b:
            raise EncodingError(
                f"{opcode.name}: byte {i} must be {b:#04x}, not {a:#04x} (unused bytes are zero)"
            )
    return instr
