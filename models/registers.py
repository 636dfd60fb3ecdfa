"""The register map of the host port (AXI4-Lite, 32-bit): one table for RTL, models, drivers and docs.

The chip block is at 0; core c's block is at CORE_BASE + c * CORE_SIZE. 64-bit counters are two words, low first;
reading the low word latches the high one. Reading an address without a register gives 0 and SLVERR; writing it gives SLVERR.
"""

from dataclasses import dataclass

from models.isa import Engine

CHIP_MAGIC = 0x41534554  # "TESA", little-endian
VERSION = 0x00010000
CORE_BASE = 0x1_0000
CORE_SIZE = 0x1_0000


@dataclass(frozen=True, slots=True)
class Register:
    """A register: byte `offset` in its block, `access` "ro", "rw", "wo" (reads 0) or "w1c", and its meaning."""

    name: str
    offset: int
    access: str
    doc: str


CHIP_REGISTERS = (
    Register("MAGIC", 0x00, "ro", "reads 0x41534554"),
    Register("VERSION", 0x04, "ro", "register map version, 16.16"),
    Register("CONFIG_HASH", 0x08, "ro", "first 32 bits of the configuration's SHA-256"),
    Register("SHAPE", 0x0C, "ro", "[7:0] cores, [23:8] partitions, [31:24] memory channels"),
    Register("STATUS", 0x10, "ro", "bit c: core c is running; bit 16 + c: core c has an error"),
    Register("START", 0x14, "wo", "bit c: start every engine of core c at its PROGRAM address"),
)

CORE_REGISTERS = (
    Register(
        "DOORBELL", 0x00, "wo", "bit e: start engine e at its PROGRAM address; a running engine ignores it"
    ),
    Register(
        "STATUS",
        0x04,
        "ro",
        "bit e: engine e runs; bit 8: DMA busy; bit 16: error; bit 17: done (started, all halted, idle)",
    ),
    Register(
        "CLEAR",
        0x08,
        "wo",
        "bit 0: clear the error, stop and flush all engines; bit 1: zero the counters; bit 2: zero the semaphores",
    ),
    Register("WATCHDOG", 0x0C, "rw", "cycles without progress before a waiting engine is an error; 0: off"),
    Register("ERR_CODE", 0x10, "ro", "first error's cause (models.isa.ErrorCode)"),
    Register("ERR_ENGINE", 0x14, "ro", "engine of the first error"),
    Register("ERR_INDEX", 0x18, "ro", "index of the instruction in its stream"),
    Register("ERR_ADDR_LO", 0x1C, "ro", "address of the first error, where there is one"),
    Register("ERR_ADDR_HI", 0x20, "ro", ""),
    Register("CYCLES_LO", 0x28, "ro", "cycles since the core last went from idle to running, while running"),
    Register("CYCLES_HI", 0x2C, "ro", ""),
    Register("COLUMNS_LO", 0x30, "ro", "moving columns that entered the tensor array"),
    Register("COLUMNS_HI", 0x34, "ro", ""),
    Register("DMA_BUSY_LO", 0x38, "ro", "cycles in which DMA was busy"),
    Register("DMA_BUSY_HI", 0x3C, "ro", ""),
    *(
        r
        for e in Engine
        for r in (
            Register(
                f"PROGRAM_LO_{e.name}",
                0x40 + 8 * e,
                "rw",
                f"address of {e.name.lower()}'s stream, a multiple of 128",
            ),
            Register(f"PROGRAM_HI_{e.name}", 0x44 + 8 * e, "rw", ""),
            Register(f"INDEX_{e.name}", 0x80 + 4 * e, "ro", "index of the instruction to issue next"),
            Register(
                f"BUSY_LO_{e.name}",
                0xC0 + 8 * e,
                "ro",
                f"cycles in which {e.name.lower()} executed an instruction",
            ),
            Register(f"BUSY_HI_{e.name}", 0xC4 + 8 * e, "ro", ""),
        )
    ),
)

SEM_READ, SEM_SET, SEM_ADD, SEM_SUB = 0x1000, 0x2000, 0x3000, 0x4000
"""Semaphore windows of a core block: word s at window + 4 * s. Reads are allowed in every window, writes act."""

CHIP = {r.name: r.offset for r in CHIP_REGISTERS}
CORE = {r.name: r.offset for r in CORE_REGISTERS}


def core_register(core: int, name: str) -> int:
    """Byte address of core `core`'s register `name`. Raises KeyError for an unknown name."""
    return CORE_BASE + core * CORE_SIZE + CORE[name]
