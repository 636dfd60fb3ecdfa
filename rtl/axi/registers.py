"""The chip's registers: models.registers.CHIP_REGISTERS, and the way to each core's block."""

from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from models.config import ChipConfig
from models.isa import Engine
from models.registers import CHIP, CHIP_MAGIC, CORE, CORE_BASE, CORE_SIZE, VERSION
from rtl.axi.lite import AxiLiteConfig, AxiLiteSlave
from rtl.interfaces import AxiLiteSignature, CoreControlSignature
from rtl.tiles import TileLibrary

CORE_BITS = CORE_SIZE.bit_length() - 1
ALL_ENGINES = (1 << len(Engine)) - 1


class ChipRegisters(wiring.Component):
    """Members
    -------
    s_axil: host port. core0 ...: CoreControlSignature, seen from the host's side.

    An access to a core's block is passed on; START writes the DOORBELL of each core named, one after the other. Addresses
    without a register, writes to read-only ones and writes of less than a word are SLVERR and change nothing.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {f"core{c}": In(CoreControlSignature()) for c in range(config.cores)}
        super().__init__({"s_axil": In(AxiLiteSignature()), **ports})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        m.submodules.slave = slave = self.tiles.place(AxiLiteSlave, AxiLiteConfig())
        connect(m, flipped(self.s_axil), slave.bus)
        cores = [getattr(self, f"core{c}") for c in range(cfg.cores)]
        req, rsp = slave.req, slave.rsp
        access = Signal(req.payload.shape())
        number = Signal(range(1 << (len(access.addr) - CORE_BITS)))
        in_chip, in_core = Signal(), Signal()
        m.d.comb += [
            number.eq(access.addr[CORE_BITS:] - (CORE_BASE >> CORE_BITS)),
            in_chip.eq(access.addr[CORE_BITS:] == 0),
            in_core.eq(~in_chip & (number < cfg.cores)),
        ]
        value, known = Signal(32), Signal()
        constants = {
            "MAGIC": CHIP_MAGIC,
            "VERSION": VERSION,
            "CONFIG_HASH": int(cfg.digest()[:8], 16),
            "SHAPE": cfg.cores | cfg.partitions << 8 | cfg.memory.channels << 24,
            "START": 0,
        }
        status = Signal(32)
        m.d.comb += [
            status[: cfg.cores].eq(Cat(c.running for c in cores)),
            status[16 : 16 + cfg.cores].eq(Cat(c.error for c in cores)),
        ]
        with m.Switch(access.addr[:CORE_BITS]):
            for name, constant in constants.items():
                with m.Case(CHIP[name]):
                    m.d.comb += [value.eq(constant), known.eq(~access.write | (name == "START"))]
            with m.Case(CHIP["STATUS"]):
                m.d.comb += [value.eq(status), known.eq(~access.write)]
        start = Signal()
        m.d.comb += start.eq(
            in_chip & access.write & (access.addr[:CORE_BITS] == CHIP["START"]) & (access.strb == 0xF)
        )
        # cores that are still to be told, and the one that is being told
        left, target = Signal(cfg.cores), Signal(range(max(2, cfg.cores)))
        ringing = Signal()
        asked = Array([c.req.ready for c in cores])
        answers, answered = (
            Array([c.rsp.payload.as_value() for c in cores]),
            Array([c.rsp.valid for c in cores]),
        )
        ask, take = Signal(), Signal()
        for c, core in enumerate(cores):
            m.d.comb += [
                core.req.valid.eq(ask & (target == c)),
                core.req.payload.write.eq(access.write | ringing),
                core.req.payload.addr.eq(access.addr[:CORE_BITS]),
                core.req.payload.data.eq(access.data),
                core.req.payload.strb.eq(access.strb),
                core.rsp.ready.eq(take & (target == c)),
            ]
            with m.If(ringing):
                m.d.comb += [
                    core.req.payload.addr.eq(CORE["DOORBELL"]),
                    core.req.payload.data.eq(ALL_ENGINES),
                ]
        answer = Signal(rsp.payload.shape())
        m.d.comb += rsp.payload.eq(answer)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += req.ready.eq(1)
                with m.If(req.valid):
                    m.d.sync += access.eq(req.payload)
                    m.next = "DECODE"
            with m.State("DECODE"):
                ok = in_chip & known & (~access.write | (access.strb == 0xF))
                m.d.sync += [left.eq(access.data), target.eq(number), ringing.eq(start)]
                m.d.sync += [answer.data.eq(Mux(ok, value, 0)), answer.error.eq(~ok)]
                m.next = "ANSWER"
                with m.If(start):
                    m.d.sync += target.eq(0)
                    m.next = "RING"
                with m.Elif(in_core):
                    m.next = "ASK"
            with m.State("RING"):
                with m.If(left[0]):
                    m.next = "ASK"
                with m.Elif(left == 0):
                    m.next = "ANSWER"
                with m.Else():
                    m.d.sync += [left.eq(left >> 1), target.eq(target + 1)]
            with m.State("ASK"):
                m.d.comb += ask.eq(1)
                with m.If(asked[target]):
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += take.eq(1)
                with m.If(answered[target]):
                    with m.If(ringing):
                        m.d.sync += left.eq(left & ~1)
                        m.next = "RING"
                    with m.Else():
                        m.d.sync += answer.eq(answers[target])
                        m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += rsp.valid.eq(1)
                with m.If(rsp.ready):
                    m.next = "IDLE"
        return m
