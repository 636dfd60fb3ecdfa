"""The worked example of docs/programming.md."""

import re
from pathlib import Path

import numpy as np

from models.config import find
from models.image import load
from models.machine import Machine

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
    image, machine = load(tmp_path / "double.img"), Machine(find("nano"))
    machine.load(image)
    machine.run()
    assert machine.cores[0].error is None
    out = np.frombuffer(machine.outputs(image).read(0x2000, 64), dtype="<f4")
    assert np.array_equal(out, 2 * numbers)
