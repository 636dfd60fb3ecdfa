"""Banked on-core memory with all its ports: arbitration shared by the partitions, which are placed in blocks."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.interfaces import (
    LaneReadSignature,
    LaneWriteSignature,
    RowReadSignature,
    RowWriteSignature,
    words_addr_bits,
)
from rtl.lib.arbiter import Arbiter, ArbiterConfig, pairs
from rtl.memory.block import BLOCK, BlockConfig, PartitionBlock
from rtl.memory.partition import ROW_WORDS, PartitionConfig
from rtl.memory.sram import WORD_BYTES
from rtl.tiles import TileLibrary

READ_LATENCY = 2
"""Cycles from an accepted lane read to its response."""
ROW_READ_LATENCY = 3
"""Cycles from an accepted row read to its response."""
ROW_PORTS = ("row_read", "row_write")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryControllerConfig:
    """An on-core memory: its size and its ports, by name.

    Parameters
    ----------
    lane_reads, lane_writes: names of the lane ports. Every memory also has `row_read` and `row_write`.
    preferred: ports that win over the others until one of those starves.
    locked: ports that always win, so their `ready` is always high; at most one read and one write port.
    starvation_limit: cycles that a port is refused before it wins over all but the locked one.
    """

    partitions: int
    bytes_per_partition: int
    banks: int
    lane_reads: tuple[str, ...]
    lane_writes: tuple[str, ...]
    preferred: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    starvation_limit: int = 64

    def __post_init__(self) -> None:
        if self.partitions < 2:
            raise ValueError(f"partitions must be at least 2, not {self.partitions!r}")
        names = (*self.lane_reads, *self.lane_writes)
        if len({*names, *ROW_PORTS, "starving"}) != len(names) + 3:
            raise ValueError(f"lane_reads and lane_writes must be distinct names, not {names!r}")
        for key, chosen in (("preferred", self.preferred), ("locked", self.locked)):
            if not {*chosen} <= {*names, *ROW_PORTS}:
                raise ValueError(f"{key} must be names of ports, not {chosen!r}")
        _ = (self.partition, self.read_arbiter, self.write_arbiter)  # which check their own fields

    @property
    def addr_bits(self) -> int:
        """Bits of the address of a word in a partition."""
        return words_addr_bits(self.bytes_per_partition)

    @property
    def partition(self) -> PartitionConfig:
        """One partition."""
        return PartitionConfig(
            bytes=self.bytes_per_partition,
            banks=self.banks,
            lane_reads=len(self.lane_reads),
            lane_writes=len(self.lane_writes),
        )

    @property
    def block(self) -> BlockConfig:
        """Partitions that are one tile."""
        return BlockConfig(partition=self.partition, count=min(BLOCK, self.partitions))

    @property
    def read_arbiter(self) -> ArbiterConfig:
        """Arbiter of the read side: lane reads in order, then the row read."""
        return self._arbiter((*self.lane_reads, ROW_PORTS[0]))

    @property
    def write_arbiter(self) -> ArbiterConfig:
        """Arbiter of the write side: lane writes in order, then the row write."""
        return self._arbiter((*self.lane_writes, ROW_PORTS[1]))

    def _arbiter(self, names: tuple[str, ...]) -> ArbiterConfig:
        return ArbiterConfig(
            ports=len(names),
            locked=tuple(names.index(n) for n in self.locked if n in names),
            preferred=tuple(names.index(n) for n in self.preferred if n in names),
            starvation_limit=self.starvation_limit,
        )


class MemoryController(wiring.Component):
    """SRAM banks of all partitions behind ports that each take one request a cycle.

    Word w of a partition lies in bank w mod `banks`. A lane access takes its bank, a row access its group of four banks, in all
    partitions. In a cycle each bank serves one read and one write; reads and writes are arbitrated apart from each other.

    Ports: the names of `lane_reads` (LaneReadSignature), of `lane_writes` (LaneWriteSignature), `row_read`, `row_write`, all seen
    from here. `ready` depends on all ports' `valid` and addresses combinationally. `rsp_valid` comes READ_LATENCY cycles after a
    lane read was accepted, ROW_READ_LATENCY after a row read, always. `starving`: a port that is not locked has been refused
    `starvation_limit` cycles in a row (registered).

    Order: a read returns what all writes accepted in earlier cycles have left, and nothing of those accepted in its own or later
    cycles. That holds since both sides keep an accepted request for one cycle before they address the SRAMs with it.
    """

    def __init__(self, config: MemoryControllerConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        bits, lanes = config.addr_bits, config.partitions
        members = {name: In(LaneReadSignature(bits, lanes)) for name in config.lane_reads}
        members |= {name: In(LaneWriteSignature(bits, lanes)) for name in config.lane_writes}
        members |= {
            "row_read": In(RowReadSignature(bits, lanes)),
            "row_write": In(RowWriteSignature(bits, lanes)),
        }
        super().__init__({**members, "starving": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        blocks = []
        for n in range(cfg.partitions // cfg.block.count):
            m.submodules[f"block_{n}"] = block = self.tiles.place(PartitionBlock, cfg.block)
            blocks.append(block)
        m.submodules.read_arbiter = read_arbiter = self.tiles.place(Arbiter, cfg.read_arbiter)
        m.submodules.write_arbiter = write_arbiter = self.tiles.place(Arbiter, cfg.write_arbiter)
        self._reads(m, blocks, read_arbiter)
        self._writes(m, blocks, write_arbiter)
        m.d.comb += self.starving.eq(read_arbiter.starving.any() | write_arbiter.starving.any())
        return m

    # --- arbitration ---------------------------------------------------------------------------------------------
    def _bank(self, word_addr: Value) -> Value:
        return word_addr[: self.config.partition.bank_bits]

    def _group(self, beat_addr: Value) -> Value:
        """Group of four banks of a row access; 0 where there is one group."""
        bits = self.config.partition.bank_bits - 2
        return beat_addr[:bits] if bits else C(0, 1)

    def _arbitrate(
        self, m: Module, arbiter: Any, reqs: list[Any], lane_addrs: list[Value], beat_addr: Value
    ) -> list[list[Value]]:
        """Connect requests to the arbiter; returns for each bank who gets it this cycle, a bit for each request."""
        lanes, group = len(lane_addrs), self._group(beat_addr)
        one_group = self.config.banks == ROW_WORDS
        for k, (i, j) in enumerate(pairs(lanes + 1)):
            if j < lanes:
                same: Value = self._bank(lane_addrs[i]) == self._bank(lane_addrs[j])
            else:
                same = C(1, 1) if one_group else self._bank(lane_addrs[i])[2:] == group
            m.d.comb += arbiter.conflict[k].eq(same)
        served = []
        for i, req in enumerate(reqs):
            m.d.comb += [arbiter.request[i].eq(req.valid), req.ready.eq(arbiter.grant[i])]
            served.append(arbiter.grant[i])
        banks = []
        for b in range(self.config.banks):
            takers: list[Value] = [served[i] & (self._bank(addr) == b) for i, addr in enumerate(lane_addrs)]
            takers.append(served[lanes] if one_group else served[lanes] & (group == b // ROW_WORDS))
            banks.append(takers)
        return banks

    def _address(
        self, m: Module, name: str, takers: list[Value], lane_addrs: list[Value], beat_addr: Value
    ) -> tuple[Signal, Signal]:
        """Registers with a bank's address and who uses it, for the cycle after the one in which they were accepted."""
        cfg = self.config.partition
        source = Signal(len(takers), name=f"{name}_source")
        addr = Signal(cfg.sram.addr_bits, name=f"{name}_addr")
        taken = Signal(len(takers), name=f"{name}_taken")
        chosen: Value = beat_addr[cfg.bank_bits - 2 :]
        for i, lane_addr in enumerate(lane_addrs):
            chosen = Mux(taken[i], lane_addr[cfg.bank_bits :], chosen)
            m.d.comb += taken[i].eq(takers[i])
        m.d.comb += taken[-1].eq(takers[-1])
        m.d.sync += source.eq(taken)
        with m.If(taken.any()):
            m.d.sync += addr.eq(chosen)
        return addr, source

    # --- reads ---------------------------------------------------------------------------------------------------
    def _reads(self, m: Module, blocks: list[Any], arbiter: Any) -> None:
        cfg = self.config
        ports = [getattr(self, name) for name in cfg.lane_reads]
        row = self.row_read
        addrs = [p.req.payload for p in ports]
        banks = self._arbitrate(m, arbiter, [*(p.req for p in ports), row.req], addrs, row.req.payload.addr)
        for b, takers in enumerate(banks):
            addr, source = self._address(m, f"read_{b}", takers, addrs, row.req.payload.addr)
            enable = Signal(name=f"read_{b}_enable")
            m.d.comb += enable.eq(source.any())
            for block in blocks:
                m.d.comb += [block.raddr[b].eq(addr), block.ren[b].eq(enable)]
        for k, (name, port) in enumerate(zip(cfg.lane_reads, ports, strict=True)):
            valid = self._delay(m, f"{name}_valid", port.req.valid & port.req.ready, READ_LATENCY)
            select = self._delay(m, f"{name}_bank", self._bank(port.req.payload), READ_LATENCY)
            m.d.comb += [
                port.rsp_valid.eq(valid),
                port.rsp.as_value().eq(Cat(block.rdata[k] for block in blocks)),
                *(block.select[k].eq(select) for block in blocks),
            ]
        self._row_response(m, blocks)

    def _row_response(self, m: Module, blocks: list[Any]) -> None:
        """All partitions but the asked one give zero; their disjunction is registered."""
        req = self.row_read.req
        valid = self._delay(m, "row_valid", req.valid & req.ready, READ_LATENCY)
        asked = self._delay(m, "row_part", req.payload.part, READ_LATENCY)
        group = self._delay(m, "row_group", self._group(req.payload.addr), READ_LATENCY)
        count = self.config.block.count
        for n, block in enumerate(blocks):
            there = [valid & (asked == n * count + i) for i in range(count)]
            m.d.comb += [block.row_there.eq(Cat(there)), block.row_group.eq(group)]
        width = 8 * WORD_BYTES
        for w in range(ROW_WORDS):
            word = Signal(width, name=f"row_word_{w}")
            m.d.sync += word.eq(reduce(or_, (block.row_rdata[w] for block in blocks)))
            m.d.comb += self.row_read.rsp[width * w : width * (w + 1)].eq(word)
        m.d.sync += self.row_read.rsp_valid.eq(valid)

    @staticmethod
    def _delay(m: Module, name: str, value: Value, cycles: int) -> Value:
        for c in range(cycles):
            stage = Signal(len(value), name=f"{name}_{c + 1}")
            m.d.sync += stage.eq(value)
            value = stage
        return value

    # --- writes --------------------------------------------------------------------------------------------------
    def _writes(self, m: Module, blocks: list[Any], arbiter: Any) -> None:
        cfg = self.config
        ports = [getattr(self, name) for name in cfg.lane_writes]
        row = self.row_write.req
        addrs = [p.req.payload.addr for p in ports]
        banks = self._arbitrate(m, arbiter, [*(p.req for p in ports), row], addrs, row.payload.addr)
        masks = []
        for k, (name, port) in enumerate(zip(cfg.lane_writes, ports, strict=True)):
            masks.append(self._held_lanes(m, k, name, port.req, blocks))
        strobes = self._held_row(m, blocks)
        for b, takers in enumerate(banks):
            addr, source = self._address(m, f"write_{b}", takers, addrs, row.payload.addr)
            mask: Value = strobes[b % ROW_WORDS]
            for k, lane_mask in enumerate(masks):
                mask = Mux(source[k], lane_mask, mask)
            chosen = Signal(WORD_BYTES, name=f"write_{b}_mask")
            m.d.comb += chosen.eq(mask)
            for block in blocks:
                m.d.comb += [block.waddr[b].eq(addr), block.source[b].eq(source), block.wmask[b].eq(chosen)]

    def _held_lanes(self, m: Module, k: int, name: str, req: Any, blocks: list[Any]) -> Signal:
        """Keep an accepted lane write for one cycle; returns its byte mask."""
        mask = Signal(WORD_BYTES, name=f"{name}_mask")
        count = self.config.block.count
        lanes = Signal(self.config.partitions, name=f"{name}_lanes")
        words = Signal(8 * WORD_BYTES * self.config.partitions, name=f"{name}_words")
        with m.If(req.valid & req.ready):
            m.d.sync += [
                mask.eq(req.payload.mask),
                lanes.eq(req.payload.lanes),
                words.eq(req.payload.data.as_value()),
            ]
        for n, block in enumerate(blocks):
            m.d.comb += [
                block.lanes[k].eq(lanes.word_select(n, count)),
                block.wdata[k].eq(words.word_select(n, 8 * WORD_BYTES * count)),
            ]
        return mask

    def _held_row(self, m: Module, blocks: list[Any]) -> list[Value]:
        """Keep an accepted row write for one cycle; returns the byte mask of each of its words."""
        req, width = self.row_write.req, 8 * WORD_BYTES
        part_index = Signal(range(self.config.partitions), name="row_write_part")
        strobe = Signal(ROW_WORDS * WORD_BYTES, name="row_write_strobe")
        words = [Signal(width, name=f"row_write_word_{w}") for w in range(ROW_WORDS)]
        with m.If(req.valid & req.ready):
            m.d.sync += [part_index.eq(req.payload.part), strobe.eq(req.payload.strb)]
            m.d.sync += [
                word.eq(req.payload.data[width * w : width * (w + 1)]) for w, word in enumerate(words)
            ]
        count = self.config.block.count
        for n, block in enumerate(blocks):
            m.d.comb += block.row_here.eq(Cat(part_index == n * count + i for i in range(count)))
            m.d.comb += [block.row_wdata[w].eq(word) for w, word in enumerate(words)]
        return [strobe[WORD_BYTES * w : WORD_BYTES * (w + 1)] for w in range(ROW_WORDS)]
