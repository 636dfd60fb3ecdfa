"""The host port under cocotbext-axi: AxiLiteSlave alone, and the chip's registers before model cores."""

import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from cocotbext.axi import AxiLiteBus, AxiLiteMaster
from cocotbext.axi.constants import AxiResp

from models import registers
from models.config import find
from models.isa import Engine
from sim.runner import params


class HostPort:
    """cocotbext-axi's master on signals that are joined with two underscores."""

    def __init__(self, dut: Any, prefix: str):
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, f"{prefix}_"), dut.clk, dut.rst)

    def pauses(self, rate: float) -> None:
        """Random pauses on every channel."""

        def generator() -> Any:
            while True:
                yield random.random() < rate

        for side in (self.master.write_if, self.master.read_if):
            for name in ("aw_channel", "w_channel", "b_channel", "ar_channel", "r_channel"):
                channel = getattr(side, name, None)
                if channel is not None:
                    channel.set_pause_generator(generator())

    async def write(self, addr: int, value: int, size: int = 4) -> bool:
        """True when the answer was OKAY."""
        done = await self.master.write(addr, value.to_bytes(size, "little"))
        return bool(done.resp == AxiResp.OKAY)

    async def read(self, addr: int) -> tuple[int, bool]:
        """Value, and whether the answer was OKAY."""
        done = await self.master.read(addr, 4)
        return int.from_bytes(done.data, "little"), bool(done.resp == AxiResp.OKAY)


async def reset(dut: Any, prefix: str) -> HostPort:
    """Clock and reset with the bus quiet, then the master."""
    for pin in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
        getattr(dut, f"{prefix}__{pin}").value = 0
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    cocotb.log.info("seed %d", cocotb.RANDOM_SEED)
    dut.rst.value = 1
    for _ in range(4):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    await FallingEdge(dut.clk)
    return HostPort(dut, prefix)


class Registers:
    """A register file behind a req and rsp stream pair; odd words answer with an error."""

    def __init__(self, dut: Any, req: str, rsp: str, addr_bits: int):
        self.dut, self.req, self.rsp, self.addr_bits = dut, req, rsp, addr_bits
        self.values: dict[int, int] = {}
        self.log: list[tuple[int, int, int, int]] = []
        self.rate = 0.6
        for pin in (f"{req}__ready", f"{rsp}__valid", f"{rsp}__payload"):
            getattr(dut, pin).value = 0

    async def serve(self) -> None:
        dut = self.dut
        owed: int | None = None
        while True:
            await FallingEdge(dut.clk)
            ready = owed is None and random.random() < self.rate
            getattr(dut, f"{self.req}__ready").value = int(ready)
            valid = owed is not None and random.random() < self.rate
            getattr(dut, f"{self.rsp}__valid").value = int(valid)
            if valid:
                getattr(dut, f"{self.rsp}__payload").value = owed
            await ReadOnly()
            if valid and int(getattr(dut, f"{self.rsp}__ready").value):
                owed = None
            if ready and int(getattr(dut, f"{self.req}__valid").value):
                payload = getattr(dut, f"{self.req}__payload").value
                head = int(payload[self.addr_bits : 0])
                write, addr = head & 1, head >> 1
                # the master gives its write channel no value before the first write
                rest = int(payload[len(payload) - 1 : self.addr_bits + 1]) if write else 0
                data, strobe = rest & 0xFFFFFFFF, rest >> 32
                self.log.append((write, addr, data, strobe))
                error = addr >> 2 & 1
                if write and not error:
                    self.values[addr] = data
                owed = (0 if write or error else self.values.get(addr, 0)) | error << 32


@cocotb.test()
async def slave(dut: Any) -> None:
    """Random reads and writes, alone and at the same time, with pauses on all channels; errors become SLVERR."""
    registers_ = Registers(dut, "req", "rsp", 24)
    port = await reset(dut, "bus")
    cocotb.start_soon(registers_.serve())
    model: dict[int, int] = {}
    for rate in (0.0, 0.5):
        port.pauses(rate)
        for _ in range(60):
            addr, value = 4 * random.randrange(32), random.getrandbits(32)
            error = addr >> 2 & 1
            if random.random() < 0.3:  # both at once, at different addresses
                other = 4 * ((addr // 4 + 2) % 32)
                task = cocotb.start_soon(port.write(addr, value))
                got = await port.read(other)
                assert await task == (not error)
                assert got == (0 if error else model.get(other, 0), not error)
            elif random.random() < 0.5:
                assert await port.write(addr, value) == (not error)
            else:
                assert await port.read(addr) == (0 if error else model.get(addr, 0), not error)
                continue
            if not error:
                model[addr] = value
    assert len(registers_.log) > 100


@cocotb.test()
async def chip_registers(dut: Any) -> None:
    """The chip's own registers, the way to the cores, START, and what is not there."""
    config = find(params()["config"])
    cores = [Registers(dut, f"core{c}__req", f"core{c}__rsp", 16) for c in range(config.cores)]
    running, error = [random.randrange(2) for _ in cores], [random.randrange(2) for _ in cores]
    for c in range(config.cores):
        getattr(dut, f"core{c}__running").value = running[c]
        getattr(dut, f"core{c}__error").value = error[c]
    port = await reset(dut, "s_axil")
    for core in cores:
        cocotb.start_soon(core.serve())
    for rate in (0.0, 0.4):
        port.pauses(rate)
        want = {
            "MAGIC": registers.CHIP_MAGIC,
            "VERSION": registers.VERSION,
            "CONFIG_HASH": int(config.digest()[:8], 16),
            "SHAPE": config.cores | config.partitions << 8 | config.memory.channels << 24,
            "STATUS": sum(r << c | e << 16 + c for c, (r, e) in enumerate(zip(running, error, strict=True))),
            "START": 0,
        }
        assert set(want) == set(registers.CHIP)
        for name, value in want.items():
            assert await port.read(registers.CHIP[name]) == (value, True), name
            if name != "START":
                assert not await port.write(registers.CHIP[name], 1), f"{name} is read-only"
        for addr in (0x18, 0xFFFC, registers.CORE_BASE + config.cores * registers.CORE_SIZE, 0xFF0000):
            assert await port.read(addr) == (0, False), f"{addr:#x}"
            assert not await port.write(addr, 5)
        for c, core in enumerate(cores):
            base = registers.CORE_BASE + c * registers.CORE_SIZE
            value = random.getrandbits(32)
            assert await port.write(base + 0x48, value)
            assert await port.read(base + 0x48) == (value, True)
            assert core.log[-1][:2] == (0, 0x48)
            assert not await port.write(base + 0x4C, value)
            assert await port.read(base + 0x4C) == (0, False)
        mask = random.getrandbits(config.cores) | 1
        before = [len(core.log) for core in cores]
        assert await port.write(registers.CHIP["START"], mask | 0xFF00)
        for c, core in enumerate(cores):
            rung = core.log[before[c] :]
            bell = (1, registers.CORE["DOORBELL"], (1 << len(Engine)) - 1, 15)
            assert rung == ([bell] if mask >> c & 1 else [])
        before = [len(core.log) for core in cores]
        assert not await port.write(registers.CHIP["START"], 1, size=2), "half a word"
        assert before == [len(core.log) for core in cores]
