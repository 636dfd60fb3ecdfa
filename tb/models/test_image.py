"""Image files: round trip, and every way in which a file can be wrong."""

import struct
import zlib

import pytest

from models import config, image
from models.image import Image, ImageError
from models.isa import Engine
from models.program import Program

NANO = config.find("nano")


def small() -> Image:
    made = Image.empty(NANO)
    p = Program(NANO)
    p.finish()
    end = made.add_program(0, p, 0x1000)
    made.add(end, b"abc")
    made.add_output(0x2000, 7)
    return made


def test_round_trip():
    made = small()
    raw = made.to_bytes()
    again = image.from_bytes(raw)
    assert again == made
    assert again.to_bytes() == raw
    assert [e for _, e, _ in again.entries] == list(Engine)
    assert again.read(0x1000 + len(Engine) * 128 + 1, 2) == b"bc"
    image.check_fits(again, NANO)


def resealed(raw: bytes) -> bytes:
    return raw[:-4] + struct.pack("<I", zlib.crc32(raw[:-4]))


def test_damage_is_named():
    raw = small().to_bytes()
    for bad, message in (
        (b"", "not a Tesela image"),
        (b"\x7fELF" + raw[4:], "not a Tesela image"),
        (raw[:60], "truncated: 60 bytes"),
        (raw[:-1], "truncated"),
        (raw + b"x", "too long"),
        (raw[:200] + bytes([raw[200] ^ 1]) + raw[201:], "damaged: the checksum does not match"),
        (resealed(raw[:8] + struct.pack("<I", 9) + raw[12:]), "image version must be 1, not 9"),
        (
            resealed(raw[: image.HEADER.size + 4] + struct.pack("<I", 77) + raw[image.HEADER.size + 8 :]),
            "entry for engine 77",
        ),
    ):
        with pytest.raises(ImageError, match=message):
            image.from_bytes(bad)


def test_every_truncation_is_refused():
    raw = small().to_bytes()
    for n in range(len(raw)):
        with pytest.raises(ImageError):
            image.from_bytes(raw[:n])


def test_foreign_chip_and_bad_places():
    made = small()
    with pytest.raises(ImageError, match=r"made for configuration .*, this chip is .* \(mini\)"):
        image.check_fits(made, config.find("mini"))
    with pytest.raises(ImageError, match="overlaps the one at 0x1000"):
        made.add(0x1010, b"x")
    with pytest.raises(ImageError, match="leaves the memory"):
        made.add(NANO.memory.bytes, b"x")
    with pytest.raises(ImageError, match="leaves the memory"):
        made.add_output(NANO.memory.bytes - 1, 2)
    with pytest.raises(ImageError, match="must be a multiple of 128"):
        made.add_program(0, Program(NANO), 0x3001)
    made.entries.append((5, Engine.SYNC, 0))
    with pytest.raises(ImageError, match="starts core 5; nano has cores 0 to 0"):
        image.check_fits(made, NANO)


def test_missing_file(tmp_path):
    with pytest.raises(ImageError, match="cannot read image"):
        image.load(tmp_path / "none.img")
