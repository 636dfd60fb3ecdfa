"""Locks between processes."""

import subprocess
import sys
import time
from pathlib import Path

from sim.locks import exclusive

ROOT = Path(__file__).parent.parent.parent
HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom sim.locks import exclusive\n"
    "with exclusive(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(0.5)\n    Path(sys.argv[1]).write_text('done')\n"
)


def test_the_second_waits_for_the_first(tmp_path):
    target = tmp_path / "deep" / "thing"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(target)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout.readline() == "held\n"
        started = time.monotonic()
        with exclusive(target):
            assert target.read_text() == "done", "the other has finished"
        assert time.monotonic() - started > 0.2
        assert other.wait() == 0


def test_released_after_an_error(tmp_path):
    target = tmp_path / "thing"
    try:
        with exclusive(target):
            raise ValueError
    except ValueError:
        pass
    with exclusive(target):
        pass
