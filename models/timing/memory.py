"""The memory channels at the chip's edge and the crossbar to them: bursts in the order in which they are granted, a beat a cycle."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from models.config import ChipConfig
from models.timing.clock import ACT, CHOOSE, Clock

PAGE = 4096
OUTSTANDING = 15
"""Bursts that a port may have under way (rtl.axi.crossbar)."""
CHANNEL_READS = 16
"""Bursts that a channel takes before it has answered them."""
ORDER = 2
"""Cycles from a write's address to its first beat: through the queue that keeps the order."""
Deliver = Callable[[int, Callable[[int], None]], None]
"""Called with the cycle of a burst's first beat, and with what to call with the cycle of its last, once that is known."""


@dataclass(slots=True)
class _Burst:
    port: "ReadPort"
    deliver: Deliver
    ready: int = 0


class ReadPort:
    """One reader's way to the channels: its bursts are under way on one channel at a time."""

    def __init__(self, memory: "Memory"):
        self.memory = memory
        self.left, self.channel = 0, 0
        self.queue: deque[tuple[int, int, _Burst]] = deque()

    def request(self, cycle: int, address: int, deliver: Deliver) -> None:
        """A burst that the crossbar sees from `cycle` on."""
        self.queue.append((cycle, self.memory.channel(address), _Burst(self, deliver)))
        self.memory.clock.at(cycle, ACT, self.look)

    def look(self) -> None:
        """Ask the channel of the oldest burst, if it may be asked."""
        if self.queue and self.queue[0][0] <= self.memory.clock.now:
            target = self.queue[0][1]
            if self.left == 0 or (target == self.channel and self.left != OUTSTANDING):
                self.memory.channels[target].wish(self)


class Write:
    """A write burst at its channel. `port`: number of its writer. `open`: the first cycle in which the channel may take its next beat,
    None as long as bursts before it are not over."""

    def __init__(self, port: int, opened: Callable[[], None]):
        self.port, self.opened = port, opened
        self.open: int | None = None


class Writes:
    """One channel's write bursts: addresses in turn among the writers, data in the order of the addresses."""

    def __init__(self, clock: Clock):
        self.clock = clock
        self.wishes: list[Write] = []
        self.order: deque[tuple[int, Write]] = deque()
        self.last, self._chosen, self._free = -1, -1, 0
        self._choosing = False

    def request(self, cycle: int, write: Write) -> None:
        """A burst whose address the crossbar sees from `cycle` on; `opened` is called once it is its turn."""
        self.clock.at(max(cycle, self.clock.now), ACT, lambda: self._wish(write))

    def _wish(self, write: Write) -> None:
        self.wishes.append(write)
        self._choose_soon()

    def _choose_soon(self) -> None:
        """One address a cycle."""
        if not self._choosing:
            self._choosing = True
            self.clock.at(max(self.clock.now, self._chosen + 1), CHOOSE, self._choose)

    def _choose(self) -> None:
        self._choosing, self._chosen = False, self.clock.now
        # ports after the last one served come first
        write = min(self.wishes, key=lambda w: (w.port <= self.last, w.port))
        self.wishes.remove(write)
        self.last = write.port
        self.order.append((self.clock.now, write))
        if self.wishes:
            self._choose_soon()
        if len(self.order) == 1:
            self._open()

    def _open(self) -> None:
        asked, write = self.order[0]
        write.open = max(asked + ORDER, self._free)
        write.opened()

    def over(self, cycle: int) -> None:
        """The last beat of the burst whose turn it is goes to the channel in `cycle`."""
        self._free = cycle + 1
        self.order.popleft()
        if self.order:
            self._open()


class Channel:
    """One channel: round robin among those that wish for it, answers in order."""

    def __init__(self, memory: "Memory"):
        self.memory, self.clock = memory, memory.clock
        self.wishes: list[ReadPort] = []
        self.writes = Writes(self.clock)
        self.last = -1
        self.held: ReadPort | None = None
        self.reads: deque[_Burst] = deque()
        self.free = 0
        self._choosing = -1

    def wish(self, port: ReadPort) -> None:
        """`port` asks from this cycle on."""
        if port not in self.wishes:
            self.wishes.append(port)
            self._choose_at(self.clock.now)

    def _choose_at(self, cycle: int) -> None:
        if self._choosing < cycle:
            self._choosing = cycle
            self.clock.at(cycle, CHOOSE, self._choose)

    def _choose(self) -> None:
        if not self.wishes:
            return
        now, ports = self.clock.now, self.memory.ports
        if self.held is None:
            self.held = min(self.wishes, key=lambda p: (ports.index(p) - self.last - 1) % len(ports))
        if len(self.reads) >= CHANNEL_READS:
            # AXI: what has been shown stays
            return
        port, self.held = self.held, None
        self.last = ports.index(port)
        self.wishes.remove(port)
        _, port.channel, burst = port.queue.popleft()
        port.left += 1
        burst.ready = now + self.memory.latency
        self.reads.append(burst)
        if len(self.reads) == 1:
            self._serve_at(max(burst.ready, self.free))
        self.clock.at(now + 1, ACT, port.look)
        if self.wishes:
            self._choose_at(now + 1)

    def _serve_at(self, cycle: int) -> None:
        self.clock.at(cycle, ACT, self._serve)

    def _serve(self) -> None:
        self.reads[0].deliver(self.clock.now, self._ends)

    def _ends(self, end: int) -> None:
        self.free = end + 1
        self.clock.at(end + 1, ACT, self._served)

    def _served(self) -> None:
        burst = self.reads.popleft()
        burst.port.left -= 1
        burst.port.look()
        if self.reads:
            self._serve_at(max(self.reads[0].ready, self.clock.now))
        if self.wishes:
            self._choose_at(self.clock.now)


class Memory:
    """All channels. `latency`: cycles from an accepted address to its first beat or its response."""

    def __init__(self, config: ChipConfig, clock: Clock, latency: int):
        self.clock, self.latency = clock, latency
        self.channels = [Channel(self) for _ in range(config.memory.channels)]
        self.ports: list[ReadPort] = []

    def channel(self, address: int) -> int:
        """Number of the channel that holds a byte."""
        return address // PAGE % len(self.channels)

    def port(self) -> ReadPort:
        """One more reader."""
        self.ports.append(ReadPort(self))
        return self.ports[-1]
