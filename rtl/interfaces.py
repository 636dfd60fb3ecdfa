"""Signatures and layouts that blocks share. Each is defined here once; blocks connect through them.

Handshakes: `stream.Signature` members follow Amaranth's rules (valid waits for nothing, payload stable until ready). A member
called `rsp` has `valid` but no `ready`: its requester asks only for what it has room for, and answers come in order.
"""

from amaranth import Shape, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models import isa
from models.config import ChipConfig
from models.formats import MX_ROWS

BEAT_BYTES = 16
"""Bytes of an AXI beat and of a DMA row access."""


def lanes_layout(partitions: int) -> data.ArrayLayout:
    """One 32-bit word for each partition."""
    return data.ArrayLayout(unsigned(32), partitions)


def words_addr_bits(bytes_per_partition: int) -> int:
    """Address bits of the 32-bit words of one partition."""
    return (bytes_per_partition // 4 - 1).bit_length()


# --- instructions ----------------------------------------------------------------------------------------------------
def _shape(field: isa.Field) -> Shape:
    return signed(8 * field.size) if field.signed else unsigned(8 * field.size)


class ApLayout(data.FlexibleLayout):
    """An access pattern as it lies in the instruction word (models.isa.AP_FIELDS)."""

    def __init__(self) -> None:
        super().__init__(
            8 * isa.AP_BYTES, {f.name: data.Field(_shape(f), 8 * f.offset) for f in isa.AP_FIELDS}
        )


class InstrLayout(data.FlexibleLayout):
    """The 1024-bit instruction word: header, small fields and access patterns as overlapping views; DMA's fields have the prefix `dma_`,

    since a DMA's `dst` is not where a pattern's `dst` is.
    """

    def __init__(self) -> None:
        fields = {
            f.name: data.Field(_shape(f), 8 * f.offset)
            for f in (*isa.HEADER, *isa.SMALL, *isa.CONTROL_FIELDS, *isa.MASK_FIELDS)
        }
        fields |= {f"dma_{f.name}": data.Field(_shape(f), 8 * f.offset) for f in isa.DMA_FIELDS}
        fields |= {name: data.Field(ApLayout(), 8 * offset) for name, offset in isa.AP_OFFSETS.items()}
        super().__init__(8 * isa.INSTR_BYTES, fields)


class IssueLayout(data.StructLayout):
    """What a sequencer hands to an engine or to the DMA: the instruction, its index in the stream, and whose stream (isa.Engine)."""

    def __init__(self) -> None:
        super().__init__({"instr": InstrLayout(), "index": unsigned(32), "engine": unsigned(8)})


class UpdateLayout(data.StructLayout):
    """A semaphore operation: mode (isa.UpdateMode), semaphore, value."""

    def __init__(self) -> None:
        super().__init__({"mode": unsigned(2), "sem": unsigned(8), "value": signed(32)})


class ErrorLayout(data.StructLayout):
    """A fault: cause (isa.ErrorCode), engine it belongs to, instruction index, address (0 where there is none)."""

    def __init__(self) -> None:
        super().__init__(
            {"code": unsigned(8), "engine": unsigned(8), "index": unsigned(32), "addr": unsigned(64)}
        )


class EngineSignature(wiring.Signature):
    """Between a sequencer and its engine (or the DMA, which serves all sequencers), seen from the engine.

    Members
    -------
    issue: instructions in order. The engine checks its own fields.
    update: one semaphore operation for each instruction, in order, after all its effects are visible; mode NONE included.
    error: `error_valid` is high for one cycle with the first fault; the engine then drains and accepts no more until `clear`.
    busy: an instruction was accepted whose update has not been taken yet.
    clear: one cycle; forget everything (pending instructions, faults). Memories and streams to them must stay legal.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "issue": In(stream.Signature(IssueLayout())),
                "update": Out(stream.Signature(UpdateLayout())),
                "error_valid": Out(1),
                "error": Out(ErrorLayout()),
                "busy": Out(1),
                "clear": In(1),
            }
        )


# --- on-core memory (seen from the requester) ------------------------------------------------------------------------
class LaneReadSignature(wiring.Signature):
    """Reads the same 32-bit word of every partition. `req` payload: word address; `rsp` answers in order."""

    def __init__(self, addr_bits: int, partitions: int):
        self.addr_bits, self.partitions = addr_bits, partitions
        super().__init__(
            {
                "req": Out(stream.Signature(unsigned(addr_bits))),
                "rsp_valid": In(1),
                "rsp": In(lanes_layout(partitions)),
            }
        )


class LaneWriteSignature(wiring.Signature):
    """Writes one word of chosen partitions: `mask` picks bytes of the word, `lanes` partitions. Done when accepted."""

    def __init__(self, addr_bits: int, partitions: int):
        self.addr_bits, self.partitions = addr_bits, partitions
        layout = data.StructLayout(
            {"addr": addr_bits, "mask": 4, "lanes": partitions, "data": lanes_layout(partitions)}
        )
        super().__init__({"req": Out(stream.Signature(layout))})


class RowReadSignature(wiring.Signature):
    """Reads 16 aligned bytes of one partition. `addr` counts 16-byte beats."""

    def __init__(self, addr_bits: int, partitions: int):
        layout = data.StructLayout({"addr": addr_bits - 2, "part": range(partitions)})
        super().__init__(
            {"req": Out(stream.Signature(layout)), "rsp_valid": In(1), "rsp": In(8 * BEAT_BYTES)}
        )


class RowWriteSignature(wiring.Signature):
    """Writes bytes chosen by `strb` of 16 aligned bytes of one partition. Done when accepted."""

    def __init__(self, addr_bits: int, partitions: int):
        layout = data.StructLayout(
            {"addr": addr_bits - 2, "part": range(partitions), "strb": BEAT_BYTES, "data": 8 * BEAT_BYTES}
        )
        super().__init__({"req": Out(stream.Signature(layout))})


class PsumAccumulateSignature(wiring.Signature):
    """The tensor array's results into PSUM, seen from the tensor engine.

    No back-pressure: PSUM takes one column a cycle. The engine keeps equal addresses at least PSUM_HAZARD columns slots
    (cycles) apart when the later one accumulates. `mask` picks bytes of the word: all of them where a column accumulates.
    `done` pulses once per column, in order, when it is readable by all.
    `pause` asks the engine to leave one cycle free, because another port has waited too long.
    """

    def __init__(self, addr_bits: int, partitions: int):
        layout = data.StructLayout(
            {
                "addr": addr_bits,
                "accumulate": 1,
                "mask": 4,
                "lanes": partitions,
                "data": lanes_layout(partitions),
            }
        )
        super().__init__({"valid": Out(1), "column": Out(layout), "done": In(1), "pause": In(1)})


# --- tensor array ----------------------------------------------------------------------------------------------------
def mac_code_bits() -> int:
    """Bits of a DType code as it travels through the array."""
    return 4


class ColumnLayout(data.StructLayout):
    """One moving (or stationary) column: a word for each row and an E8M0 scale for each 8 rows."""

    def __init__(self, partitions: int):
        super().__init__(
            {"data": lanes_layout(partitions), "scale": data.ArrayLayout(unsigned(8), partitions // MX_ROWS)}
        )


class MovingLayout(data.StructLayout):
    """A moving column with its control: rows 0 .. `rows` - 1 take part, `swap` makes the shadow weights active from this column on,
    `dtype` is the column's DType code."""

    def __init__(self, partitions: int):
        super().__init__(
            {
                "column": ColumnLayout(partitions),
                "rows": unsigned(partitions.bit_length()),
                "swap": unsigned(1),
                "dtype": unsigned(mac_code_bits()),
            }
        )


class LoadLayout(data.StructLayout):
    """A column of stationary weights, its DType code, and the column of the array that keeps it."""

    def __init__(self, partitions: int):
        super().__init__(
            {
                "column": ColumnLayout(partitions),
                "dtype": unsigned(mac_code_bits()),
                "index": unsigned((partitions - 1).bit_length()),
            }
        )


# --- AXI (seen from the master; member names are those of AMBA AXI4, so that flattened ports read m_axi_mem0__awaddr) ----------
class Axi4Signature(wiring.Signature):
    """AXI4 master port: 64-bit addresses, `data_width` bits, INCR bursts only."""

    def __init__(self, *, id_width: int, data_width: int = 8 * BEAT_BYTES, addr_width: int = 64):
        self.id_width, self.data_width, self.addr_width = id_width, data_width, addr_width
        members: dict[str, wiring.Member] = {}
        for ch in ("aw", "ar"):
            members |= {
                f"{ch}id": Out(id_width),
                f"{ch}addr": Out(addr_width),
                f"{ch}len": Out(8),
                f"{ch}size": Out(3),
                f"{ch}burst": Out(2),
                f"{ch}lock": Out(1),
                f"{ch}cache": Out(4),
                f"{ch}prot": Out(3),
                f"{ch}valid": Out(1),
                f"{ch}ready": In(1),
            }
        members |= {
            "wdata": Out(data_width),
            "wstrb": Out(data_width // 8),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
        }
        members |= {"bid": In(id_width), "bresp": In(2), "bvalid": In(1), "bready": Out(1)}
        members |= {
            "rid": In(id_width),
            "rdata": In(data_width),
            "rresp": In(2),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
        super().__init__(members)


class AxiLiteSignature(wiring.Signature):
    """AXI4-Lite master port, 32-bit data; a slave has it flipped."""

    def __init__(self, *, addr_width: int = 24):
        self.addr_width = addr_width
        super().__init__(
            {
                "awaddr": Out(addr_width),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(addr_width),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


# --- memory access inside the chip (seen from the requester) ---------------------------------------------------------------
class BurstReadSignature(wiring.Signature):
    """Reads `beats` (1..256) aligned 16-byte beats from byte address `addr` of the memory channels; a burst never crosses 4 KiB.

    Several bursts may be outstanding; beats come back in order, `last` on a burst's last one, `error` where AXI said so.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "req": Out(stream.Signature(data.StructLayout({"addr": 40, "beats": 9}))),
                "rsp": In(
                    stream.Signature(data.StructLayout({"data": 8 * BEAT_BYTES, "error": 1, "last": 1}))
                ),
            }
        )


class BurstWriteSignature(wiring.Signature):
    """Writes bursts as BurstReadSignature reads them: one `data` item a beat; one `done` item a burst after its response."""

    def __init__(self) -> None:
        super().__init__(
            {
                "req": Out(stream.Signature(data.StructLayout({"addr": 40, "beats": 9}))),
                "data": Out(
                    stream.Signature(data.StructLayout({"data": 8 * BEAT_BYTES, "strb": BEAT_BYTES}))
                ),
                "done": In(stream.Signature(data.StructLayout({"error": 1}))),
            }
        )


# --- core control ----------------------------------------------------------------------------------------------------
class CoreControlSignature(wiring.Signature):
    """Host side of a core, seen from the core: a register access port that the chip's CSR block drives.

    One access at a time: `req` with the byte offset within the core's block; one `rsp` item answers each, in order.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "req": In(
                    stream.Signature(data.StructLayout({"write": 1, "addr": 16, "data": 32, "strb": 4}))
                ),
                "rsp": Out(stream.Signature(data.StructLayout({"data": 32, "error": 1}))),
                "running": Out(1),
                "error": Out(1),
            }
        )


def sbuf_addr_bits(config: ChipConfig) -> int:
    """Word address bits of an SBUF partition."""
    return words_addr_bits(config.sbuf.bytes_per_partition)


def psum_addr_bits(config: ChipConfig) -> int:
    """Word address bits of a PSUM partition."""
    return words_addr_bits(config.psum.bytes_per_partition)
