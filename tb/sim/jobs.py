"""Runs that go wrong on their way from the chip to a job of `make sim`."""

from types import ModuleType

import pytest

from sim import job


def spoil(
    monkeypatch: pytest.MonkeyPatch, segment: int, *, byte: int = -4, bit: int = 0, module: ModuleType = job
) -> None:
    """One bit of an output region changes: bit number `bit` (0 the lowest) of byte number `byte` (negative: from the end)."""
    real = module.run_image

    def spoiled(*args, **kwargs):
        result = real(*args, **kwargs)
        address, data = result.outputs.segments[segment]
        changed = bytearray(data)
        changed[byte] ^= 1 << bit
        result.outputs.segments[segment] = (address, bytes(changed))
        return result

    monkeypatch.setattr(module, "run_image", spoiled)


def stop(monkeypatch: pytest.MonkeyPatch, cycles: int) -> None:
    """The chip is stopped after so many cycles."""
    real = job.run_image
    monkeypatch.setattr(job, "run_image", lambda *a, **k: real(*a, **k, limit=cycles))
