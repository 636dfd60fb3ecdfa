"""Assembly text: one instruction a line, from and to instruction words. `assemble` and `disassemble` are inverses.

    .engine tensor
    start:
      MATMUL parts=16 cols=16 flags=1 dst=psum:0:fp32:0[1x512] src0=sbuf:0x40:bf16:0[1x512] wait=3>=2 update=4+1

An access pattern is `space:addr:dtype:part[stride x count, ...]`, outermost dimension first. `wait=S>=V`; `update=S+V`, `S-V` or
`S:=V`. `dyn_src0=R` adds register R to src0's address. A BRANCH's `target` is a label of its stream or an index. `#` starts a comment.
"""

import enum
import re

from models import isa
from models.access import AccessPattern
from models.encoding import EncodingError, Instruction, decode, encode, raw_fields
from models.formats import dtype_by_name
from models.isa import INSTR_BYTES, AluOp, Cond, Engine, Opcode, RegOp, Space, UpdateMode, WaitMode

_UPDATE_SIGN = {UpdateMode.ADD: "+", UpdateMode.SUB: "-", UpdateMode.SET: ":="}
_AP = re.compile(r"(?P<space>\w+):(?P<addr>\w+):(?P<dtype>\w+):(?P<part>\w+)\[(?P<dims>[^\]]*)\]")
_HEX = ("src", "dst", "imm0", "imm1")
_NAMED: dict[str, type[enum.IntEnum]] = {"op0": AluOp, "op1": AluOp, "reg_op": RegOp, "cond": Cond}
_DYNAMIC = ("dyn_dst", "dyn_src0", "dyn_src1")


class AssemblyError(ValueError):
    """A line that is not an instruction; the text gives the line number and what is wrong."""


def format_ap(ap: AccessPattern) -> str:
    """The pattern as text; outer dimensions of (0, 1) are left out."""
    dims = list(ap.dims)
    while len(dims) > 1 and dims[0] == (0, 1):
        dims.pop(0)
    shape = ",".join(f"{s}x{c}" for s, c in dims)
    return f"{ap.space.name.lower()}:{ap.addr:#x}:{ap.dtype.name.lower()}:{ap.part}[{shape}]"


def format_instruction(instr: Instruction) -> str:
    """One line of assembly."""
    f = instr.fields
    out = [instr.opcode.name]
    for name in isa.OPS[instr.opcode].fields:
        if name in f:
            names = _NAMED.get(name)
            value = names(f[name]).name.lower() if names and f[name] in list(names) else None
            out.append(f"{name}={value or (hex(f[name]) if name in _HEX else f[name])}")
    out += [f"{name}={format_ap(ap)}" for name, ap in instr.aps.items()]
    out += [f"{name}={f[name]}" for name in _DYNAMIC if name in f]
    if f.get("wait_mode"):
        out.append(f"wait={f.get('wait_sem', 0)}>={f.get('wait_value', 0)}")
    if f.get("update_mode"):
        out.append(
            f"update={f.get('update_sem', 0)}{_UPDATE_SIGN[UpdateMode(f['update_mode'])]}{f.get('update_value', 0)}"
        )
    return " ".join(out)


def disassemble(words: bytes, *, labels: dict[str, int] | None = None) -> str:
    """Assembly text of a stream. Words without a legal reading become `# index N: reason` lines.

    Raises EncodingError when the length is not a multiple of 128.
    """
    if len(words) % INSTR_BYTES:
        raise EncodingError(f"a stream must be a multiple of {INSTR_BYTES} bytes, not {len(words)}")
    at = {i: n for n, i in (labels or {}).items()}
    lines = []
    for index in range(len(words) // INSTR_BYTES):
        if index in at:
            lines.append(f"{at[index]}:")
        word = words[index * INSTR_BYTES : (index + 1) * INSTR_BYTES]
        try:
            lines.append(f"  {format_instruction(decode(word))}")
        except ValueError as e:
            lines.append(f"  # index {index}: {e}")
    return "\n".join(lines) + "\n"


def extent(words: bytes) -> int:
    """Instructions of the stream that `words` begin with: up to the first HALT that no branch before it goes past."""
    last = 0
    for index in range(len(words) // INSTR_BYTES):
        raw = raw_fields(words[index * INSTR_BYTES : (index + 1) * INSTR_BYTES])
        if raw["opcode"] == Opcode.BRANCH:
            last = max(last, raw["target"])
        if raw["opcode"] == Opcode.HALT and index >= last:
            return index + 1
    return len(words) // INSTR_BYTES


def parse_ap(text: str) -> AccessPattern:
    """A pattern from text. Raises ValueError."""
    m = _AP.fullmatch(text.replace(" ", ""))
    if m is None:
        raise ValueError(f"access pattern must look like sbuf:0x40:bf16:0[1x512], not {text!r}")
    try:
        space = Space[m["space"].upper()]
    except KeyError:
        raise ValueError(f"space must be sbuf or psum, not {m['space']!r}") from None
    dims = []
    for pair in m["dims"].split(","):
        d = re.fullmatch(r"(-?\d+)x(\d+)", pair)
        if d is None:
            raise ValueError(f"dimension must look like 1x512 (stride x count), not {pair!r}")
        dims.append((int(d[1]), int(d[2])))
    return AccessPattern(int(m["addr"], 0), dtype_by_name(m["dtype"]), tuple(dims), space, int(m["part"], 0))


def _parse_sync(key: str, value: str, fields: dict[str, int]) -> None:
    pattern = r"(\d+)(>=)(-?\d+)" if key == "wait" else r"(\d+)(\+|-|:=)(-?\d+)"
    m = re.fullmatch(pattern, value)
    if m is None:
        raise ValueError(
            f"{key} must look like {'3>=1' if key == 'wait' else '3+1, 3-1 or 3:=1'}, not {value!r}"
        )
    fields[f"{key}_sem"], fields[f"{key}_value"] = int(m[1]), int(m[3])
    fields[f"{key}_mode"] = (
        int(WaitMode.GE) if key == "wait" else int({v: k for k, v in _UPDATE_SIGN.items()}[m[2]])
    )


def _names(key: str, labels: dict[str, int] | None) -> str:
    """What else a field may be called by."""
    if key in _NAMED:
        return f" or one of {', '.join(n.lower() for n in _NAMED[key].__members__)}"
    if key == "target" and labels is not None:
        return f" or one of the labels {', '.join(labels) or '(none)'}"
    return ""


def parse_instruction(line: str, labels: dict[str, int] | None = None) -> Instruction:
    """An instruction from one line; `labels` are what a branch's target may name. Raises ValueError."""
    name, *items = line.split()
    try:
        opcode = Opcode[name.upper()]
    except KeyError:
        raise ValueError(
            f"instruction must be one of {', '.join(o.name for o in Opcode)}, not {name!r}"
        ) from None
    fields: dict[str, int] = {}
    aps: dict[str, AccessPattern] = {}
    for item in items:
        key, eq, value = item.partition("=")
        if not eq or key in fields or key in aps:
            raise ValueError(f"expected key=value once each, not {item!r}")
        if key in ("wait", "update"):
            _parse_sync(key, value, fields)
        elif key in isa.OPS[opcode].aps:
            aps[key] = parse_ap(value)
        elif key in _NAMED and value.upper() in _NAMED[key].__members__:
            fields[key] = int(_NAMED[key][value.upper()])
        elif key == "target" and value in (labels or {}):
            fields[key] = (labels or {})[value]
        else:
            try:
                fields[key] = int(value, 0)
            except ValueError:
                raise ValueError(f"{key} must be a number{_names(key, labels)}, not {value!r}") from None
    instr = Instruction(
        opcode, {k: v for k, v in fields.items() if v}, {n: aps[n] for n in isa.OPS[opcode].aps if n in aps}
    )
    encode(instr)
    return instr


def assemble(text: str) -> tuple[dict[Engine, bytes], dict[Engine, dict[str, int]]]:
    """Streams and labels of an assembly text. Raises AssemblyError with the line's number."""
    lines: dict[Engine, list[tuple[int, str]]] = {}
    labels: dict[Engine, dict[str, int]] = {}
    engine: Engine | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        try:
            if line.startswith(".engine"):
                name = line.removeprefix(".engine").strip()
                if name.upper() not in Engine.__members__:
                    raise ValueError(
                        f".engine must be one of {', '.join(e.name.lower() for e in Engine)}, not {name!r}"
                    )
                engine = Engine[name.upper()]
                lines.setdefault(engine, [])
                labels.setdefault(engine, {})
            elif engine is None:
                raise ValueError("an .engine line must come first")
            elif re.fullmatch(r"[A-Za-z_]\w*:", line):
                if line[:-1] in labels[engine]:
                    raise ValueError(f"label {line[:-1]!r} is defined twice")
                labels[engine][line[:-1]] = len(lines[engine])
            else:
                lines[engine].append((number, line))
        except ValueError as e:
            raise AssemblyError(f"line {number}: {e}") from None
    if not lines:
        raise AssemblyError("no instructions: an .engine line must come first")
    for owner, body in lines.items():
        if not body:
            raise AssemblyError(
                f"no instructions for the {owner.name.lower()} engine: a stream must end with HALT"
            )
    return {owner: _words(owner, body, labels[owner]) for owner, body in lines.items()}, labels


def _words(engine: Engine, body: list[tuple[int, str]], labels: dict[str, int]) -> bytes:
    words = bytearray()
    for number, line in body:
        try:
            instr = parse_instruction(line, labels)
            if engine not in isa.OPS[instr.opcode].engines:
                raise ValueError(
                    f"{instr.opcode.name} is not an instruction of the {engine.name.lower()} engine"
                )
            words += encode(instr)
        except ValueError as e:
            raise AssemblyError(f"line {number}: {e}") from None
    return bytes(words)
