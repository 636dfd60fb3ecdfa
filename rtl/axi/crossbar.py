"""Memory crossbar: burst ports inside the chip to AXI4 memory channels, interleaved every 4 KiB."""

from dataclasses import dataclass
from typing import Any

from amaranth import Array, C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rtl.interfaces import BEAT_BYTES, Axi4Signature, BurstReadSignature, BurstWriteSignature
from rtl.lib.queue import Queue, QueueConfig
from rtl.lib.stream_arbiter import round_robin
from rtl.tiles import TileLibrary

PAGE_BITS = 12
OUTSTANDING = 15
"""Bursts that a reader or a writer may have under way."""
BURST_INCR = 1
CACHE_NORMAL = 0b0011
"""Normal, non-cacheable, bufferable memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCrossbarConfig:
    """`readers` and `writers` inside, `channels` outside; a port's number is its AXI ID."""

    readers: int
    writers: int
    channels: int
    id_width: int
    memory_bytes: int

    def __post_init__(self) -> None:
        if self.readers < 1 or self.writers < 1:
            raise ValueError(
                f"readers and writers must be at least 1, not {self.readers!r} and {self.writers!r}"
            )
        if self.channels < 1 or self.channels & (self.channels - 1):
            raise ValueError(f"channels must be a power of two, not {self.channels!r}")
        if max(self.readers, self.writers) > 1 << self.id_width:
            raise ValueError(
                f"id_width must hold {max(self.readers, self.writers)} ports, not {self.id_width!r}"
            )


class MemoryCrossbar(wiring.Component):
    """Members
    -------
    reader0 ..., writer0 ...: BurstReadSignature, BurstWriteSignature, seen from here. m_axi_mem0 ...: AXI4 masters.

    Page n of the memory (4 KiB) is page n / channels of channel n mod channels. Requesters keep bursts within a page and within
    memory. Round robin at each channel. A port's bursts are under way on one channel at a time: it waits for the last answer before
    it turns to another one. That keeps its answers in order without buffers, and no channel ever waits for a port that waits for another channel.

    AW and W do not wait for each other. A write's data goes out in the order of the channel's addresses.
    """

    def __init__(self, config: MemoryCrossbarConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {f"reader{i}": In(BurstReadSignature()) for i in range(config.readers)}
        ports |= {f"writer{i}": In(BurstWriteSignature()) for i in range(config.writers)}
        ports |= {
            f"m_axi_mem{c}": Out(Axi4Signature(id_width=config.id_width)) for c in range(config.channels)
        }
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        readers = [getattr(self, f"reader{i}") for i in range(cfg.readers)]
        writers = [getattr(self, f"writer{i}") for i in range(cfg.writers)]
        for c in range(cfg.channels):
            axi = getattr(self, f"m_axi_mem{c}")
            for ch in ("aw", "ar"):
                m.d.comb += [
                    getattr(axi, f"{ch}size").eq((BEAT_BYTES - 1).bit_length()),
                    getattr(axi, f"{ch}burst").eq(BURST_INCR),
                    getattr(axi, f"{ch}cache").eq(CACHE_NORMAL),
                ]
        self._reads(m, readers)
        self._writes(m, writers)
        return m

    # --- shared --------------------------------------------------------------------------------------------------
    def _channel(self, addr: Value) -> Value:
        bits = (self.config.channels - 1).bit_length()
        return addr[PAGE_BITS : PAGE_BITS + bits] if bits else C(0, 1)

    def _local(self, addr: Value) -> Value:
        bits = (self.config.channels - 1).bit_length()
        return Cat(addr[:PAGE_BITS], addr[PAGE_BITS + bits :])

    def _wishes(self, m: Module, name: str, ports: list[Any], finished: list[Value]) -> list[list[Value]]:
        """For each channel, which ports may ask it now; counts what each port has under way."""
        channels = range(self.config.channels)
        wishes: list[list[Value]] = [[] for _ in channels]
        for i, port in enumerate(ports):
            left = Signal(range(OUTSTANDING + 1), name=f"{name}{i}_left")
            last = Signal(max(1, (self.config.channels - 1).bit_length()), name=f"{name}{i}_channel")
            target = self._channel(port.req.payload.addr)
            taken = port.req.valid & port.req.ready
            allowed = Signal(name=f"{name}{i}_allowed")
            m.d.comb += allowed.eq(
                port.req.valid & ((left == 0) | ((target == last) & (left != OUTSTANDING)))
            )
            m.d.sync += left.eq(left + taken - finished[i])
            with m.If(taken):
                m.d.sync += last.eq(target)
            for c in channels:
                wishes[c].append(allowed & (target == c))
        return wishes

    # --- reads ---------------------------------------------------------------------------------------------------
    def _reads(self, m: Module, readers: list[Any]) -> None:
        cfg = self.config
        finished = [Signal(name=f"reader{i}_finished") for i in range(cfg.readers)]
        wishes = self._wishes(m, "reader", readers, finished)
        granted: list[Value] = [C(0, 1)] * cfg.readers
        mine: list[list[Value]] = [[] for _ in readers]
        for c in range(cfg.channels):
            axi = getattr(self, f"m_axi_mem{c}")
            served = Signal(name=f"ar{c}_served")
            grant = round_robin(m, f"ar{c}", wishes[c], served)
            source = Signal(range(cfg.readers), name=f"ar{c}_source")
            for i in range(cfg.readers):
                with m.If(grant[i]):
                    m.d.comb += source.eq(i)
                granted[i] = granted[i] | (grant[i] & axi.arready)
            request = Signal(readers[0].req.payload.shape(), name=f"ar{c}_request")
            m.d.comb += [
                request.eq(Array([r.req.payload for r in readers])[source]),
                served.eq(axi.arvalid & axi.arready),
                axi.arvalid.eq(grant.any()),
                axi.arid.eq(source),
                axi.araddr.eq(self._local(request.addr)),
                axi.arlen.eq(request.beats - 1),
                axi.rready.eq(
                    Array([r.rsp.ready for r in readers])[axi.rid[: max(1, (cfg.readers - 1).bit_length())]]
                ),
            ]
            for i in range(cfg.readers):
                mine[i].append(axi.rvalid & (axi.rid == i))
        for i, reader in enumerate(readers):
            m.d.comb += reader.req.ready.eq(granted[i])
            rsp = reader.rsp
            for c in range(cfg.channels):
                axi = getattr(self, f"m_axi_mem{c}")
                with m.If(mine[i][c]):
                    m.d.comb += [
                        rsp.valid.eq(1),
                        rsp.payload.data.eq(axi.rdata),
                        rsp.payload.error.eq(axi.rresp[1]),
                        rsp.payload.last.eq(axi.rlast),
                    ]
            m.d.comb += finished[i].eq(rsp.valid & rsp.ready & rsp.payload.last)

    # --- writes --------------------------------------------------------------------------------------------------
    def _writes(self, m: Module, writers: list[Any]) -> None:
        cfg = self.config
        id_bits = max(1, (cfg.writers - 1).bit_length())
        finished = [Signal(name=f"writer{i}_finished") for i in range(cfg.writers)]
        wishes = self._wishes(m, "writer", writers, finished)
        granted: list[Value] = [C(0, 1)] * cfg.writers
        taken_data: list[Value] = [C(0, 1)] * cfg.writers
        mine: list[list[Value]] = [[] for _ in writers]
        order_layout = data.StructLayout({"source": unsigned(id_bits), "beats": unsigned(9)})
        for c in range(cfg.channels):
            axi = getattr(self, f"m_axi_mem{c}")
            # The address goes to a register and the order of the data to a queue at once: neither waits for the other.
            m.submodules[f"order{c}"] = order = self.tiles.place(
                Queue, QueueConfig(width=order_layout.size, depth=OUTSTANDING + 1)
            )
            full = Signal(name=f"aw{c}_full")
            free = Signal(name=f"aw{c}_free")
            served = Signal(name=f"aw{c}_served")
            grant = round_robin(m, f"aw{c}", wishes[c], served)
            source = Signal(range(cfg.writers), name=f"aw{c}_source")
            for i in range(cfg.writers):
                with m.If(grant[i]):
                    m.d.comb += source.eq(i)
                granted[i] = granted[i] | (grant[i] & free)
            request = Signal(writers[0].req.payload.shape(), name=f"aw{c}_request")
            entry = Signal(order_layout, name=f"aw{c}_entry")
            m.d.comb += [
                free.eq((~full | axi.awready) & order.i.ready),
                served.eq(grant.any() & free),
                request.eq(Array([w.req.payload for w in writers])[source]),
                entry.source.eq(source),
                entry.beats.eq(request.beats),
                order.i.valid.eq(served),
                order.i.payload.eq(entry),
                axi.awvalid.eq(full),
            ]
            held_id, held_addr, held_len = (
                Signal(cfg.id_width, name=f"aw{c}_id"),
                Signal(len(axi.awaddr), name=f"aw{c}_addr"),
                Signal(8, name=f"aw{c}_len"),
            )
            m.d.comb += [axi.awid.eq(held_id), axi.awaddr.eq(held_addr), axi.awlen.eq(held_len)]
            with m.If(axi.awready):
                m.d.sync += full.eq(0)
            with m.If(served):
                m.d.sync += [
                    full.eq(1),
                    held_id.eq(source),
                    held_addr.eq(self._local(request.addr)),
                    held_len.eq(request.beats - 1),
                ]
            head = data.View(order_layout, order.o.payload)
            sent = Signal(9, name=f"w{c}_sent")
            items = Array([w.data.payload for w in writers])
            valids = Array([w.data.valid for w in writers])
            item = Signal(writers[0].data.payload.shape(), name=f"w{c}_item")
            moved = Signal(name=f"w{c}_moved")
            m.d.comb += [
                item.eq(items[head.source]),
                axi.wvalid.eq(order.o.valid & valids[head.source]),
                axi.wdata.eq(item.data),
                axi.wstrb.eq(item.strb),
                axi.wlast.eq(sent + 1 == head.beats),
                moved.eq(axi.wvalid & axi.wready),
                order.o.ready.eq(moved & axi.wlast),
                axi.bready.eq(Array([w.done.ready for w in writers])[axi.bid[:id_bits]]),
            ]
            with m.If(moved):
                m.d.sync += sent.eq(Mux(axi.wlast, 0, sent + 1))
            for i in range(cfg.writers):
                taken_data[i] = taken_data[i] | (order.o.valid & (head.source == i) & axi.wready)
                mine[i].append(axi.bvalid & (axi.bid == i))
        for i, writer in enumerate(writers):
            m.d.comb += [writer.req.ready.eq(granted[i]), writer.data.ready.eq(taken_data[i])]
            for c in range(cfg.channels):
                axi = getattr(self, f"m_axi_mem{c}")
                with m.If(mine[i][c]):
                    m.d.comb += [writer.done.valid.eq(1), writer.done.payload.error.eq(axi.bresp[1])]
            m.d.comb += finished[i].eq(writer.done.valid & writer.done.ready)
