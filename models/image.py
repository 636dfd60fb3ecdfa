"""Memory images: what a chip is started with and what it leaves behind.

Layout, little-endian: header (HEADER), `entries` (core u32, engine u32, address u64), `outputs` (address u64, length u64),
`segments` (address u64, length u64), the segments' bytes in order, CRC-32 of all that precedes. Addresses are byte offsets in the
chip's memory space. The same file goes in and, with its output regions as segments, comes out.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from models.config import ChipConfig
from models.isa import INSTR_BYTES, Engine
from models.program import Program

MAGIC = b"TESELAIM"
IMAGE_VERSION = 1
HEADER = struct.Struct("<8sIIQIII")
"""magic, version, configuration hash, memory bytes, numbers of entries, outputs, segments."""


class ImageError(ValueError):
    """A file that is not an image, is damaged, or does not fit the chip; the text says which and where."""


@dataclass(slots=True)
class Image:
    """Memory contents and how to start: `entries` (core, engine, address), `outputs` (address, length) to bring back."""

    config_hash: int
    memory_bytes: int
    entries: list[tuple[int, Engine, int]] = field(default_factory=list)
    outputs: list[tuple[int, int]] = field(default_factory=list)
    segments: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def empty(cls, config: ChipConfig) -> "Image":
        """An image for `config` that holds nothing yet."""
        return cls(int(config.digest()[:8], 16), config.memory.bytes)

    def add(self, address: int, data: bytes) -> None:
        """Put `data` at byte `address`. Raises ImageError when it does not fit or overlaps an earlier segment."""
        if address < 0 or address + len(data) > self.memory_bytes:
            raise ImageError(
                f"segment {address:#x} to {address + len(data):#x} leaves the memory of {self.memory_bytes:#x} bytes"
            )
        for start, other in self.segments:
            if start < address + len(data) and address < start + len(other):
                raise ImageError(f"segment at {address:#x} overlaps the one at {start:#x}")
        self.segments.append((address, bytes(data)))

    def add_program(self, core: int, program: Program, address: int) -> int:
        """Put a core's streams at `address` (a multiple of 128) one after the other; returns the first free address."""
        if address % INSTR_BYTES:
            raise ImageError(f"program address must be a multiple of {INSTR_BYTES}, not {address:#x}")
        for engine, stream in program.streams.items():
            words = stream.encode()
            self.add(address, words)
            self.entries.append((core, engine, address))
            address += len(words)
        return address

    def add_output(self, address: int, length: int) -> None:
        """Ask for `length` bytes from `address` in the resulting image. Raises ImageError outside memory."""
        if address < 0 or length < 0 or address + length > self.memory_bytes:
            raise ImageError(
                f"output {address:#x} to {address + length:#x} leaves the memory of {self.memory_bytes:#x} bytes"
            )
        self.outputs.append((address, length))

    def read(self, address: int, length: int) -> bytes:
        """Bytes of one segment. Raises ImageError when no single segment holds them all."""
        for start, data in self.segments:
            if start <= address and address + length <= start + len(data):
                return data[address - start : address - start + length]
        raise ImageError(f"no segment holds bytes {address:#x} to {address + length:#x}")

    def to_bytes(self) -> bytes:
        """The file's bytes; equal images give equal bytes."""
        out = bytearray(
            HEADER.pack(
                MAGIC,
                IMAGE_VERSION,
                self.config_hash,
                self.memory_bytes,
                len(self.entries),
                len(self.outputs),
                len(self.segments),
            )
        )
        for core, engine, address in self.entries:
            out += struct.pack("<IIQ", core, engine, address)
        for pairs in (self.outputs, [(a, len(d)) for a, d in self.segments]):
            for pair in pairs:
                out += struct.pack("<QQ", *pair)
        for _, data in self.segments:
            out += data
        return bytes(out) + struct.pack("<I", zlib.crc32(out))

    def save(self, path: Path) -> None:
        """Write the file, and the folders above it. Raises ImageError when it cannot be written."""
        raw = self.to_bytes()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
        except OSError as e:
            raise ImageError(f"cannot write image {str(path)!r}: {e.strerror}") from None


def from_bytes(raw: bytes, name: str = "image") -> Image:
    """Read an image. Raises ImageError when it is foreign, of another version, truncated or damaged."""
    if len(raw) < HEADER.size or raw[:8] != MAGIC:
        raise ImageError(f"{name}: not a Tesela image (it must start with {MAGIC!r})")
    _, version, config_hash, memory_bytes, n_entries, n_outputs, n_segments = HEADER.unpack_from(raw)
    if version != IMAGE_VERSION:
        raise ImageError(f"{name}: image version must be {IMAGE_VERSION}, not {version}")
    tables = HEADER.size + 16 * (n_entries + n_outputs + n_segments)
    if len(raw) < tables + 4:
        raise ImageError(f"{name}: truncated: {len(raw)} bytes, its tables alone take {tables + 4}")
    rows = [
        struct.unpack_from("<QQ", raw, HEADER.size + 16 * i)
        for i in range(n_entries + n_outputs + n_segments)
    ]
    lengths: Iterable[tuple[int, int]] = rows[n_entries + n_outputs :]
    total = tables + sum(length for _, length in lengths) + 4
    if len(raw) != total:
        raise ImageError(
            f"{name}: {'truncated' if len(raw) < total else 'too long'}: {len(raw)} bytes, its tables say {total}"
        )
    if zlib.crc32(raw[:-4]) != struct.unpack("<I", raw[-4:])[0]:
        raise ImageError(f"{name}: damaged: the checksum does not match")
    image = Image(config_hash, memory_bytes)
    for who, address in rows[:n_entries]:
        core, engine = who & 0xFFFFFFFF, who >> 32
        if engine not in list(Engine):
            raise ImageError(
                f"{name}: entry for engine {engine}; engines are {', '.join(f'{e.value} {e.name}' for e in Engine)}"
            )
        image.entries.append((core, Engine(engine), address))
    for address, length in rows[n_entries : n_entries + n_outputs]:
        image.add_output(address, length)
    at = tables
    for address, length in rows[n_entries + n_outputs :]:
        image.add(address, raw[at : at + length])
        at += length
    return image


def load(path: Path) -> Image:
    """Read an image file. Raises ImageError, also when the file cannot be read."""
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise ImageError(f"cannot read image {str(path)!r}: {e.strerror}") from None
    return from_bytes(raw, path.name)


def check_fits(image: Image, config: ChipConfig) -> None:
    """Raise ImageError unless the image was made for this configuration."""
    if image.config_hash != int(config.digest()[:8], 16):
        raise ImageError(
            f"the image was made for configuration {image.config_hash:08x}, this chip is {config.digest()[:8]} ({config.name})"
        )
    if image.memory_bytes != config.memory.bytes:
        raise ImageError(
            f"the image's memory is {image.memory_bytes:#x} bytes, the chip's is {config.memory.bytes:#x}"
        )
    for core, _, address in image.entries:
        if not 0 <= core < config.cores:
            raise ImageError(f"the image starts core {core}; {config.name} has cores 0 to {config.cores - 1}")
        if address % INSTR_BYTES or not 0 <= address <= config.memory.bytes - INSTR_BYTES:
            raise ImageError(f"entry address {address:#x} must be a multiple of {INSTR_BYTES} within memory")
