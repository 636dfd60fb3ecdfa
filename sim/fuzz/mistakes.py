"""Illegal programs: one instruction of a legal one changed so that it must end in an error."""

import random
from collections.abc import Callable

from models import addressing, isa
from models.config import ChipConfig
from models.encoding import raw_ap, raw_fields
from models.formats import DType, dtype_bytes
from models.gpsimd import GPSIMD_OPS
from models.image import Image
from models.isa import INSTR_BYTES, Engine, ErrorCode, Field, Opcode

_FIELDS = {f.name: f for f in (*isa.HEADER, *isa.SMALL)}
_DMA = {f.name: f for f in isa.DMA_FIELDS}
_AP = {f.name: f for f in isa.AP_FIELDS}
_CONTROL = {f.name: f for f in isa.CONTROL_FIELDS}
Change = tuple[int, Field, int]
"""(offset of the field's group, field, new value)."""


def _put(word: bytes, change: Change) -> bytes:
    base, field, value = change
    start = base + field.offset
    return word[:start] + value.to_bytes(field.size, "little") + word[start + field.size :]


def _header(rng: random.Random, config: ChipConfig, engine: Engine, word: bytes) -> list[Change]:
    foreign = [o.value for o, info in isa.OPS.items() if engine not in info.engines]
    unknown = [code for code in range(256) if code not in list(Opcode)]
    wrong = rng.choice([[0], foreign, unknown])
    semaphore = rng.randint(config.core.semaphores, 255)
    return rng.choice(
        [
            [(0, _FIELDS["opcode"], rng.choice(wrong))],
            [(0, _FIELDS["wait_mode"], rng.randint(2, 255))],
            [(0, _FIELDS["update_mode"], rng.randint(4, 255))],
            [(0, _FIELDS["wait_mode"], 1), (0, _FIELDS["wait_sem"], semaphore)],
            [(0, _FIELDS["update_mode"], 1), (0, _FIELDS["update_sem"], semaphore)],
        ]
    )


def _never(rng: random.Random, config: ChipConfig, engine: Engine, word: bytes) -> list[Change]:
    """A wait that cannot end: its semaphore is one that the program does not use."""
    sem = config.core.semaphores - 1
    return [
        (0, _FIELDS["wait_mode"], 1),
        (0, _FIELDS["wait_sem"], sem),
        (0, _FIELDS["wait_value"], rng.randint(1, 1000)),
    ]


def _small(rng: random.Random, config: ChipConfig, engine: Engine, word: bytes) -> list[Change]:
    used = isa.OPS[Opcode(word[0])].fields
    values = {
        "parts": rng.choice([0, config.partitions + 1, 255]),
        "cols": rng.choice([0, config.partitions + 1, 255]),
        "op0": rng.randint(100, 255),
        # LOAD_STATIONARY knows no flag but DOUBLE_ROW, and a MATMUL's is that of its load
        "flags": 2 if word[0] == Opcode.LOAD_STATIONARY else raw_fields(word)["flags"] ^ 128,
        "axes": rng.choice([0, 5, 255]),
    }
    options = [(0, _FIELDS[n], v) for n, v in values.items() if n in used]
    return [rng.choice(options)] if options else []


def _operand(rng: random.Random, config: ChipConfig, engine: Engine, word: bytes) -> list[Change]:
    aps = [n for n in isa.OPS[Opcode(word[0])].aps if n != "src1"]
    if not aps:
        return []
    name = rng.choice(aps)
    raw = raw_ap(word, name)
    values = {"dtype": rng.randint(100, 255), "space": rng.randint(2, 255), "part": 1}
    if word[0] in GPSIMD_OPS:  # whose operands lie in SBUF
        values["space"] = rng.choice([1, values["space"]])
    far = rng.randint(1 << 20, 1 << 24) * 4
    values["addr"] = rng.choice([far, raw["addr"] | 1]) if dtype_bytes(DType(raw["dtype"])) > 1 else far
    field = rng.choice(list(values))
    return [(isa.AP_OFFSETS[name], _AP[field], values[field])]


def _index(rng: random.Random, config: ChipConfig, engine: Engine, word: bytes) -> list[Change]:
    """A gather from a source without elements: any index is beyond it."""
    if word[0] != Opcode.LOCAL_GATHER:
        return []
    return [(isa.AP_OFFSETS["src0"], _AP[f"count{rng.randrange(isa.AP_DIMS)}"], 0)]


def _dma(rng: random.Random, config: ChipConfig, engine: Engine, word: bytes) -> list[Change]:
    if word[0] != Opcode.DMA:
        return []
    beyond = addressing.memory_address(
        config.memory.bytes - rng.choice([0, 1]) * (raw_fields(word)["row_bytes"] - 1)
    )
    no_unit = addressing.memory_address(0) | 0x7F << addressing.UNIT_SHIFT
    no_chip = 5 << addressing.CHIP_SHIFT | addressing.UNIT_MEMORY << addressing.UNIT_SHIFT
    field = _DMA[rng.choice(["src", "dst"])]
    return [(0, field, rng.choice([beyond, no_unit, no_chip]))]


def _register(rng: random.Random, config: ChipConfig, engine: Engine, word: bytes) -> list[Change]:
    if word[0] == Opcode.REGISTER:
        name = rng.choice(["reg_op", "rd", "ra"])
        return [(0, _CONTROL[name], rng.randint(16, 255))]
    if word[0] == Opcode.BRANCH:
        return [(0, _CONTROL[rng.choice(["cond", "ra"])], rng.randint(16, 255))]
    return []


KINDS: dict[str, Callable[[random.Random, ChipConfig, Engine, bytes], list[Change]]] = {
    "header": _header,
    "never": _never,
    "small": _small,
    "operand": _operand,
    "index": _index,
    "dma": _dma,
    "register": _register,
}
CODES = {
    "header": {ErrorCode.ILLEGAL_OPCODE, ErrorCode.ILLEGAL_FIELD},
    "never": {ErrorCode.WATCHDOG},
    "small": {ErrorCode.ILLEGAL_FIELD},
    "operand": {ErrorCode.ILLEGAL_FIELD, ErrorCode.SBUF_RANGE, ErrorCode.PSUM_RANGE},
    "index": {ErrorCode.INDEX_RANGE},
    "dma": {ErrorCode.DMA_RANGE},
    "register": {ErrorCode.ILLEGAL_FIELD},
}
"""The errors that each kind can end in."""


def spoil(config: ChipConfig, image: Image, rng: random.Random) -> tuple[Image, str]:
    """`image` with one instruction spoilt, and the kind of mistake. The instruction is reached: every one before it is legal.

    Kinds come equally often, but for programs that have no instruction that one could be made in.
    """
    kinds = list(KINDS)
    rng.shuffle(kinds)
    for kind in kinds:
        places = [(n, i) for n in range(len(image.entries)) for i in range(_length(image, n))]
        rng.shuffle(places)
        for n, index in places:
            _, engine, _ = image.entries[n]
            at, words = _stream(image, n)
            start = index * INSTR_BYTES
            word = words[start : start + INSTR_BYTES]
            changes = [] if _skipped(words, index) else KINDS[kind](rng, config, engine, word)
            if not changes:
                continue
            for change in changes:
                word = _put(word, change)
            out = Image(image.config_hash, image.memory_bytes, list(image.entries), list(image.outputs))
            out.segments = list(image.segments)
            out.segments[at] = (image.segments[at][0], words[:start] + word + words[start + INSTR_BYTES :])
            return out, kind
    raise ValueError("the image has no instruction that could be spoilt")


def _stream(image: Image, entry: int) -> tuple[int, bytes]:
    """Number of the segment that holds an entry's stream, and its words."""
    address = image.entries[entry][2]
    return next((i, data) for i, (start, data) in enumerate(image.segments) if start == address)


def _length(image: Image, entry: int) -> int:
    return len(_stream(image, entry)[1]) // INSTR_BYTES


def _skipped(words: bytes, index: int) -> bool:
    """Whether a branch before instruction `index` may go past it."""
    for i in range(index):
        raw = raw_fields(words[i * INSTR_BYTES : (i + 1) * INSTR_BYTES])
        if raw["opcode"] == Opcode.BRANCH and raw["target"] > index:
            return True
    return False
