"""Program builder: what it emits, and what it refuses before the hardware would."""

import re
from pathlib import Path

import numpy as np
import pytest

from models import config, encoding
from models.access import AccessPattern, row
from models.formats import DType
from models.image import load
from models.isa import INSTR_BYTES, AluOp, Opcode, Space
from models.machine import Machine
from models.program import Program, ProgramError

NANO = config.find("nano")
W = row(0, DType.BF16, 8)
X = row(64, DType.BF16, 32)
PS = row(0, DType.FP32, 32, space=Space.PSUM)


def test_streams_encode_and_decode():
    p = Program(NANO)
    s = p.semaphore("s")
    assert p.semaphore("s") is s
    p.sync.dma(1 << 40, 16 << 40, row_bytes=16, rows=2, src_stride=-16, update=s.add())
    p.tensor.label("start")
    p.tensor.load_stationary(W, k=8, m=8, wait=s.ge(1))
    p.tensor.matmul(PS, X, k=8, m=8, accumulate=True, update=s.set(-3))
    p.vector.tensor_scalar(row(0, DType.BF16, 32), PS, AluOp.ADD, 1.5, AluOp.MAX, 0.0, parts=8, saturate=True)
    p.finish()
    assert p.tensor.labels == {"start": 0}
    for stream in p.streams.values():
        words = stream.encode()
        again = [encoding.decode(words[i : i + INSTR_BYTES]) for i in range(0, len(words), INSTR_BYTES)]
        assert [i.opcode for i in again] == [i.opcode for i in stream.instructions]
        assert b"".join(map(encoding.encode, again)) == words
        assert stream.instructions[-1].opcode == Opcode.HALT
    p.finish()
    assert len(p.sync.instructions) == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda p: p.vector.load_stationary(W, k=8, m=8),
            r"vector\[0\] LOAD_STATIONARY: not an instruction of this engine",
        ),
        (lambda p: p.tensor.load_stationary(W, k=9, m=8), r"parts must be from 1 to 8, not 9"),
        (lambda p: p.tensor.load_stationary(W, k=8, m=4), r"src0 must have 4 elements, not 8"),
        (
            lambda p: p.tensor.load_stationary(row(0, DType.FP16, 8), k=8, m=8),
            r"src0.dtype must be one of BF16.*not FP16",
        ),
        (lambda p: p.tensor.load_stationary(row(0, DType.E4M3X4, 8), k=8, m=8), r"E4M3X4 needs scales"),
        (
            lambda p: p.tensor.load_stationary(row(1, DType.BF16, 8), k=8, m=8),
            r"addr must be a multiple of 2 for BF16, not 0x1",
        ),
        (
            lambda p: p.tensor.load_stationary(row(32766, DType.BF16, 8), k=8, m=8),
            r"spans bytes 32766 to 32781 of SBUF, which has 32768",
        ),
        (
            lambda p: p.tensor.load_stationary(row(0, DType.BF16, 8, stride=-1), k=8, m=8),
            r"spans bytes -14 to 1 of SBUF",
        ),
        (
            lambda p: p.tensor.load_stationary(row(0, DType.BF16, 8, part=1), k=4, m=8),
            r"part must be a multiple of 2, not 1",
        ),
        (
            lambda p: p.tensor.load_stationary(row(0, DType.BF16, 8, part=4), k=8, m=8),
            r"partitions 4 to 11 must be below 8",
        ),
        (lambda p: p.tensor.matmul(PS, X, k=8, m=8), r"needs a LOAD_STATIONARY before it"),
        (
            lambda p: p.tensor.nop(wait=p.semaphore("a").ge(1 << 40)),
            r"wait_value must be from -2147483648 to 2147483647",
        ),
        (
            lambda p: p.vector.tensor_copy(row(0, DType.E4M3X4, 4), row(0, DType.BF16, 4), parts=1),
            r"dst.dtype must be a float or integer",
        ),
        (
            lambda p: p.vector.tensor_copy(row(0, DType.BF16, 4), row(0, DType.BF16, 5), parts=1),
            r"src0 must have dst's 4 elements, not 5",
        ),
        (
            lambda p: p.vector.tensor_scalar(
                row(0, DType.BF16, 4), row(0, DType.BF16, 4), AluOp.ADD, row(0, DType.FP32, 2), parts=1
            ),
            r"src1 must be one element a partition, not 2",
        ),
    ],
)
def test_refusals(build, message):
    with pytest.raises(ProgramError, match=message):
        build(Program(NANO))


def test_matmul_must_match_the_load():
    p = Program(NANO)
    p.tensor.load_stationary(W, k=8, m=8)
    with pytest.raises(ProgramError, match=r"K, M must be the loaded \(8, 8\), not \(8, 7\)"):
        p.tensor.matmul(PS, X, k=8, m=7)
    with pytest.raises(ProgramError, match=r"E4M3 does not go with stationary BF16"):
        p.tensor.matmul(PS, row(0, DType.E4M3, 32), k=8, m=8)
    with pytest.raises(ProgramError, match=r"at most 256"):
        p.tensor.matmul(row(0, DType.FP32, 257, space=Space.PSUM), row(0, DType.BF16, 257), k=8, m=8)


def test_double_rows_must_fit():
    p, x, w = Program(NANO), row(64, DType.E4M3, 32), row(0, DType.E4M3, 8)
    load, mul = p.tensor.load_stationary, p.tensor.matmul
    wrong = [
        (W, row(8, DType.BF16, 8), r"double_row goes with E4M3 in this configuration, not with BF16"),
        (w, row(8, DType.E4M3, 7), r"double_row must have 8 elements of E4M3, not 7 of E4M3"),
        (w, row(8, DType.UINT8, 8), r"double_row must have 8 elements of E4M3, not 8 of UINT8"),
        (w, row(8, DType.E4M3, 8, space=Space.PSUM), r"double_row must lie in SBUF, not PSUM"),
        (w, row(8, DType.E4M3, 8, part=1), r"double_row.part must be a multiple of 2, not 1"),
        (w, row(1 << 15, DType.E4M3, 8), r"double_row spans bytes 32768 to 32775 of SBUF, which has 32768"),
    ]
    for src, second, message in wrong:
        with pytest.raises(ProgramError, match=message):
            load(src, double_row=second, k=8, m=8)
    packed, scale = row(0, DType.E4M3X4, 8), row(64, DType.E8M0, 8)
    with pytest.raises(ProgramError, match=r"double_row goes with E4M3 in .*, not with E4M3X4"):
        load(packed, scale=scale, double_row=packed, k=8, m=8)
    load(w, double_row=w, k=8, m=8)
    with pytest.raises(ProgramError, match=r"double_row must be given, as of the LOAD_STATIONARY before it"):
        mul(PS, x, k=8, m=8)
    mul(PS, x, double_row=x, k=8, m=8, accumulate=True)
    load(w, k=8, m=8)
    with pytest.raises(ProgramError, match=r"double_row must be left out, as of the LOAD"):
        mul(PS, x, double_row=x, k=8, m=8)
    assert [i.fields.get("flags", 0) for i in p.tensor.instructions] == [128, 129, 0]
    with pytest.raises(TypeError, match="double_row"):
        p.tensor.transpose(row(0, DType.E4M3, 8, space=Space.PSUM), w, double_row=w, k=8, m=8)
    plain = config.from_dict(NANO.to_dict() | {"tensor": {"formats": ["bf16", "e4m3"]}})
    with pytest.raises(ProgramError, match=r"this configuration has no double row \(tensor.double_row\)"):
        Program(plain).tensor.load_stationary(w, double_row=w, k=8, m=8)


def test_transpose_refuses_and_uses_up_the_weights():
    p = Program(NANO)
    dst = row(0, DType.INT16, 3, space=Space.PSUM)
    for args, message in (
        ((dst, W, 3, 7), r"src0 must have 7 elements and dst 3, not 8 and 3"),
        ((row(0, DType.FP32, 3, space=Space.PSUM), W, 3, 8), r"dst must be as wide as src0's BF16, not FP32"),
        ((row(0, DType.BF16, 3), W, 3, 8), r"dst must lie in PSUM, not SBUF"),
        ((dst, W, 9, 8), r"parts must be from 1 to 8, not 9"),
    ):
        with pytest.raises(ProgramError, match=message):
            p.tensor.transpose(args[0], args[1], k=args[2], m=args[3])
    p.tensor.load_stationary(W, k=8, m=8)
    p.tensor.transpose(dst, W, k=3, m=8)
    with pytest.raises(ProgramError, match="needs a LOAD_STATIONARY before it"):
        p.tensor.matmul(PS, X, k=8, m=8)


def test_labels_and_semaphores_run_out():
    p = Program(NANO)
    p.sync.label("a")
    with pytest.raises(ProgramError, match="label 'a' is already at index 0"):
        p.sync.label("a")
    for i in range(64):
        p.semaphore(str(i))
    with pytest.raises(ProgramError, match="all 64 are in use"):
        p.semaphore("one more")


def test_patterns_check_their_fields():
    with pytest.raises(ValueError, match="count must be from 0 to 65535, not 65536"):
        row(0, DType.BF16, 65536)
    with pytest.raises(ValueError, match="dims must be 1 to 4"):
        AccessPattern(0, DType.BF16, ((1, 1),) * 5)
    ap = AccessPattern(8, DType.FP32, ((-1, 2), (0, 2), (3, 2)))
    assert ap.addresses().tolist() == [8, 20, 8, 20, 4, 16, 4, 16]


PAGE = Path(__file__).parent.parent.parent / "docs" / "programming.md"


def test_the_example_in_the_docs_runs(tmp_path):
    text = PAGE.read_text()
    code = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))
    assert "image.save" in code
    numbers = np.arange(16, dtype="<f4")
    code = re.sub(
        r'image\.save\("double\.img"\)',
        f"image.save(__import__('pathlib').Path({str(tmp_path / 'double.img')!r}))",
        code,
    )
    exec(compile(code, "docs/programming.md", "exec"), {"numbers": numbers.tobytes()})
    image, machine = load(tmp_path / "double.img"), Machine(NANO)
    machine.load(image)
    machine.run()
    assert machine.cores[0].error is None
    out = np.frombuffer(machine.outputs(image).read(0x2000, 64), dtype="<f4")
    assert np.array_equal(out, 2 * numbers)
