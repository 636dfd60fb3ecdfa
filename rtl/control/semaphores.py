"""Semaphores: signed 32-bit numbers that instructions wait for and update."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Mux, Signal, signed, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from models.isa import UpdateMode
from rtl.interfaces import UpdateLayout
from rtl.lib.stream_arbiter import StreamArbiter, StreamArbiterConfig
from rtl.tiles import TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class SemaphoreConfig:
    """`count` semaphores, `sources` of updates, `waiters` that look at one each."""

    count: int
    sources: int
    waiters: int

    def __post_init__(self) -> None:
        if self.count < 2 or self.count > 256 or self.count & (self.count - 1):
            raise ValueError(f"count must be a power of two from 2 to 256, not {self.count!r}")
        if self.sources < 1 or self.waiters < 1:
            raise ValueError(
                f"sources and waiters must be at least 1, not {self.sources!r} and {self.waiters!r}"
            )


class SemaphoreUnit(wiring.Component):
    """Members
    -------
    update0 ...: UpdateLayout streams, served round robin, one a cycle; mode NONE changes nothing. Numbers wrap at 32 bits.
    wait{k}_sem, wait{k}_value: a waiter's semaphore and its present value (combinational).
    read_sem, read_value: the same for the host. clear: all become 0. updated: an update was served.
    """

    def __init__(self, config: SemaphoreConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        bits = (config.count - 1).bit_length()
        ports: dict[str, Any] = {
            f"update{k}": In(stream.Signature(UpdateLayout())) for k in range(config.sources)
        }
        for name in [*(f"wait{k}" for k in range(config.waiters)), "read"]:
            ports |= {f"{name}_sem": In(bits), f"{name}_value": Out(signed(32))}
        super().__init__({**ports, "clear": In(1), "updated": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        bits = (cfg.count - 1).bit_length()
        memory: Any = Memory(shape=unsigned(32), depth=cfg.count, init=[])
        m.submodules.memory = memory
        m.submodules.arbiter = arbiter = self.tiles.place(
            StreamArbiter, StreamArbiterConfig(ports=cfg.sources, width=UpdateLayout().size)
        )
        written = Signal(cfg.count)  # which ones the memory holds; all others are 0

        def value(name: str, index: Signal) -> Signal:
            port = memory.read_port(domain="comb")
            out = Signal(signed(32), name=f"{name}_now")
            m.d.comb += [port.addr.eq(index), out.eq(Mux(written.bit_select(index, 1), port.data, 0))]
            return out

        for name in [*(f"wait{k}" for k in range(cfg.waiters)), "read"]:
            m.d.comb += getattr(self, f"{name}_value").eq(value(name, getattr(self, f"{name}_sem")))
        for k in range(cfg.sources):
            source, port = getattr(self, f"update{k}"), getattr(arbiter, f"i{k}")
            m.d.comb += [
                port.valid.eq(source.valid),
                port.payload.eq(source.payload),
                source.ready.eq(port.ready),
            ]
        update = Signal(UpdateLayout())
        index, new = Signal(bits), Signal(32)
        old = value("update", index)
        write = memory.write_port()
        m.d.comb += [
            update.as_value().eq(arbiter.o.payload),
            index.eq(update.sem),
            arbiter.o.ready.eq(~self.clear),
            self.updated.eq(arbiter.o.valid & arbiter.o.ready),
            write.addr.eq(index),
            write.data.eq(new),
            write.en.eq(self.updated & (update.mode != UpdateMode.NONE)),
        ]
        with m.Switch(update.mode):
            with m.Case(UpdateMode.ADD.value):
                m.d.comb += new.eq(old + update.value)
            with m.Case(UpdateMode.SUB.value):
                m.d.comb += new.eq(old - update.value)
            with m.Default():
                m.d.comb += new.eq(update.value)
        with m.If(write.en):
            m.d.sync += written.bit_select(index, 1).eq(1)
        with m.If(self.clear):
            m.d.sync += written.eq(0)
        return m
