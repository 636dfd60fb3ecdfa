"""Instruction words with something wrong: a field that is not legal, or an access out of range."""

import random
from typing import Any

from models import encoding, isa
from models.formats import dtype_bytes
from models.isa import Opcode
from tb.vector.instructions import range_faults, used_aps
from tb.vector.operands import CONFIG

_FIELDS = {f.name: f for f in isa.SMALL}
_AP_FIELDS = {f.name: f for f in isa.AP_FIELDS}


def put(word: bytes, base: int, field: isa.Field, value: int) -> bytes:
    """The word with one field changed, whatever is legal."""
    start, bits = base + field.offset, 8 * field.size
    return word[:start] + (value % (1 << bits)).to_bytes(field.size, "little") + word[start + field.size :]


def put_small(word: bytes, name: str, value: int) -> bytes:
    """The word with a small field changed."""
    return put(word, 0, _FIELDS[name], value)


def put_ap(word: bytes, ap: str, name: str, value: int) -> bytes:
    """The word with a field of an access pattern changed."""
    return put(word, isa.AP_OFFSETS[ap], _AP_FIELDS[name], value)


def mutated(word: bytes) -> bytes:
    """One field changed to a value near what is legal, or to anything."""
    p = CONFIG.partitions
    if encoding.raw_fields(word)["opcode"] == Opcode.STREAM_SHUFFLE and random.random() < 0.5:
        entry = isa.Field("entry", random.randrange(CONFIG.quadrant), 1)
        return put(word, isa.MASK_FIELDS[0].offset, entry, random.choice([p, p + 1, 127, 254, p - 1]))
    any_byte = random.choice([*range(20), 1 << random.randrange(8), 255, random.getrandbits(8)])
    kind = random.choice(["small", "small", "ap", "ap", "ap"])
    if kind == "small":
        name = random.choice(["parts", "op0", "op1", "flags", "axes"])
        return put_small(
            word, name, random.choice([0, p, p + 1, p + p // 4, any_byte]) if name == "parts" else any_byte
        )
    ap = random.choice(used_aps(word))
    name = random.choice(["addr", "space", "dtype", "part", "count"])
    values: dict[str, Any] = {
        "addr": encoding.raw_ap(word, ap)["addr"] + random.choice([1, 2, 3, 4]),
        "space": random.choice([0, 1, 2, 3, any_byte]),
        "dtype": random.choice([*range(18), any_byte, *(16 * d for d in range(3))]),
        "part": random.choice([0, 1, 2, 4, 6, 8, any_byte]),
        "count": random.choice([0, 1, 2, 0xFFFF, random.randrange(6)]),
    }
    return put_ap(word, ap, name if name != "count" else f"count{random.randrange(4)}", values[name])


def out_of_range(word: bytes) -> bytes:
    """A used pattern moved so that some element leaves its memory; the word as it is where it has no elements."""
    for _ in range(200):
        ap = random.choice(used_aps(word))
        raw = encoding.raw_ap(word, ap)
        pattern = encoding.ap_from_raw(raw)
        width = dtype_bytes(pattern.dtype)
        if random.random() < 0.5:
            far = [random.randrange(3000), 1024 - width, 512 - width, 1024, 512, (1 << 32) - width]
            new = put_ap(word, ap, "addr", random.choice(far) // width * width)
        else:
            stride = random.choice([-300, 300, -(1 << 31), (1 << 31) - 1, 1 << 30, 1 << 29])
            new = put_ap(word, ap, f"stride{random.randrange(4)}", stride)
        if range_faults(new):
            return new
    return word
