"""MemoryController under traffic on all ports: data, order, masks, bounded waiting, rate."""

import random
from typing import Any

import cocotb

from sim.runner import params
from tb.memory.traffic import (
    Bench,
    LaneReader,
    LaneWriter,
    Memory,
    Port,
    Reader,
    RowReader,
    RowWriter,
    Script,
    Writer,
    hot_spot,
    uniform,
)


class Controller(Bench):
    """The controller described by the test's parameters with a driver on each port."""

    def __init__(self, dut: Any):
        self.params = params()
        words = self.params["bytes_per_partition"] // 4
        super().__init__(dut, Memory(self.params["partitions"], words))
        self.by_name: dict[str, Port] = {}
        for name in (*self.params["lane_reads"], "row_read"):
            kind = RowReader if name == "row_read" else LaneReader
            self.by_name[name] = kind(dut, name, self.memory, uniform(words), limit=0)
        for name in (*self.params["lane_writes"], "row_write"):
            writer = RowWriter if name == "row_write" else LaneWriter
            self.by_name[name] = writer(dut, name, self.memory, uniform(words), limit=0)
        self.readers = [p for p in self.by_name.values() if isinstance(p, Reader)]
        self.writers = [p for p in self.by_name.values() if isinstance(p, Writer)]

    def traffic(self, name: str, addresses: Any, rate: float = 1.0) -> None:
        port = self.by_name[name]
        port.addresses, port.rate, port.left = addresses, rate, None  # type: ignore[attr-defined]
        port.worst = port.refused = port.accepted = 0

    def bound(self, port: Port) -> int:
        ports = len(self.readers) if isinstance(port, Reader) else len(self.writers)
        return int(self.params["starvation_limit"]) + ports - 1

    def rest(self) -> list[Port]:
        return [p for name, p in self.by_name.items() if name not in self.params["locked"]]


async def _started(dut: Any) -> Controller:
    bench = Controller(dut)
    await bench.start()
    await bench.fill()
    return bench


@cocotb.test()
async def random_traffic(dut: Any) -> None:
    """Every port at once, in several mixes of patterns and rates; all answers exact, in order, on time; nobody waits too long."""
    bench = await _started(dut)
    depth = bench.memory.depth
    locked_rate = 0.8
    for mix in range(10):
        for name in bench.by_name:
            pattern = random.choice(
                [
                    uniform(depth),
                    hot_spot(depth),
                    Script(random.randrange(depth)),
                    Script(random.randrange(depth), 8),
                    Script(random.randrange(depth), random.randrange(1, 40)),
                ]
            )
            rate = 1.0 if mix % 3 == 0 else random.choice([0.1, 0.5, 0.9, 1.0])
            bench.traffic(
                name,
                hot_spot(depth) if mix == 9 else pattern,
                locked_rate if name in bench.params["locked"] else rate,
            )
        await bench.run(150)
        await bench.drain()
        for port in bench.rest():
            if not bench.params["locked"]:
                assert port.worst <= bench.bound(port), f"{port.name} waited {port.worst} cycles"
            port.worst = 0
    for name in bench.params["locked"]:
        assert bench.by_name[name].refused == 0
    assert all(r.answers > 40 for r in bench.readers), [r.answers for r in bench.readers]


@cocotb.test()
async def same_word(dut: Any) -> None:
    """One word of all ports, back to back: a read sees all writes of earlier cycles and none of its own cycle's."""
    bench = await _started(dut)
    word = random.randrange(bench.memory.depth)
    for name in bench.by_name:
        bench.traffic(name, lambda: word, 0.5)
    await bench.run(400)
    await bench.drain()


@cocotb.test()
async def partial_write_then_read(dut: Any) -> None:
    """Field report A19: 0x11223344, bytes 0011 of 0xCCDD, read in the next cycle; then a write of no bytes."""
    bench = await _started(dut)
    lanes, every = bench.memory.partitions, (1 << bench.memory.partitions) - 1
    writer, reader = (
        bench.by_name[bench.params["lane_writes"][-1]],
        bench.by_name[bench.params["lane_reads"][-1]],
    )
    assert isinstance(writer, LaneWriter)
    assert isinstance(reader, LaneReader)
    addr = random.randrange(bench.memory.depth)
    reader.addresses = lambda: addr
    same = sum(1 << 32 * p for p in range(lanes))
    for mask, data, want in (
        (15, 0x11223344, 0x11223344),
        (3, 0x0000CCDD, 0x1122CCDD),
        (0, 0xFFFFFFFF, 0x1122CCDD),
    ):
        payload = writer.pack(addr, mask, every, data * same)
        writer.offer = lambda payload=payload: payload  # type: ignore[method-assign,misc]
        writer.left = 1
        await bench.cycle()
        assert writer.payload is None
        reader.left = 1
        await bench.cycle()
        assert reader.expected[-1][2] == want * same
        await bench.drain(4)


@cocotb.test()
async def no_conflict_full_rate(dut: Any) -> None:
    """Ports whose banks never meet are each served in every cycle: lane ports on banks 0..3, rows on the others."""
    bench = await _started(dut)
    if bench.params["banks"] == 4:
        return
    for names in (bench.params["lane_reads"][:4], bench.params["lane_writes"][:4]):
        for i, name in enumerate(names):
            bank = Script(i)
            bench.traffic(name, lambda bank=bank: 8 * random.randrange(bench.memory.depth // 8) + bank() % 4)
    for name in ("row_read", "row_write"):
        bench.traffic(name, lambda: 8 * random.randrange(bench.memory.depth // 8) + 4)
    await bench.run(200)
    busy = [p for p in bench.by_name.values() if p.left is None]
    assert len(busy) >= 4
    for port in busy:
        assert (port.accepted, port.refused) == (200, 0), (
            f"{port.name}: {port.accepted} accepted, {port.refused} refused"
        )
    await bench.drain()


@cocotb.test()
async def nobody_starves(dut: Any) -> None:
    """All ports want one bank in every cycle, for long: waiting is bounded, preferred ports get nearly everything, `starving` tells."""
    bench = await _started(dut)
    told = [0]
    bench.each_cycle.append(lambda _: told.__setitem__(0, told[0] + int(dut.starving.value)))
    for name in bench.by_name:
        if name not in bench.params["locked"]:
            bench.traffic(name, lambda: 0)
    limit = bench.params["starvation_limit"]
    await bench.run(40 * limit)
    for port in bench.rest():
        assert port.accepted >= 20, f"{port.name} was served {port.accepted} times"
        assert port.worst <= bench.bound(port), f"{port.name} waited {port.worst} cycles"
    for side in (bench.readers, bench.writers):
        preferred = [p for p in side if p.name in bench.params["preferred"]]
        others = [p for p in side if p.name not in (*bench.params["preferred"], *bench.params["locked"])]
        if preferred:
            assert max(p.accepted for p in others) <= 40 + 2
            assert min(p.worst for p in others) >= limit
            assert told[0] > 0
            assert max(p.accepted for p in preferred) - min(p.accepted for p in preferred) <= 40
        else:
            served = [p.accepted for p in others]
            assert max(served) - min(served) <= 1, served
    await bench.drain()


@cocotb.test()
async def locked_always_wins(dut: Any) -> None:
    """A locked port is never refused; the others get through, in bounded time, in the cycles that it leaves free."""
    bench = await _started(dut)
    if not bench.params["locked"]:
        return
    limit = bench.params["starvation_limit"]
    for name in bench.by_name:
        bench.traffic(name, lambda: 0, 1.0)
    await bench.run(3 * limit)
    assert all(p.accepted == 0 for p in bench.rest())
    assert int(dut.starving.value) == 1
    free = len(bench.by_name)
    for name in bench.params["locked"]:
        bench.by_name[name].left = 0
    await bench.run(free + 1)
    assert all(p.accepted > 0 for p in bench.rest())
    for name in bench.params["locked"]:
        assert bench.by_name[name].refused == 0
    await bench.drain()
