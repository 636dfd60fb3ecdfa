"""A lane-accessed memory that is all bench: ports with random grants and answer delays that keep and check the stream rules.

A bench calls `drive()` at a falling edge and `settle()` when everything has settled before the next rising edge.
"""

import random
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LaneMemory:
    """Contents `data`, uint8 [partitions, bytes], shared by any number of ports."""

    def __init__(self, partitions: int, size: int):
        self.data: NDArray[np.uint8] = np.zeros((partitions, size), dtype=np.uint8)

    @property
    def addr_bits(self) -> int:
        """Bits of a word address."""
        return (self.data.shape[1] // 4 - 1).bit_length()

    def lanes(self, word: int) -> int:
        """A word of every partition, partition 0 lowest."""
        return int.from_bytes(self.data[:, 4 * word : 4 * word + 4].tobytes(), "little")

    def store(self, word: int, mask: int, lanes: int, data: int) -> None:
        """Write the bytes in `mask` of the partitions in `lanes`."""
        partitions = self.data.shape[0]
        new = np.frombuffer(data.to_bytes(4 * partitions, "little"), dtype=np.uint8).reshape(partitions, 4)
        rows = [p for p in range(partitions) if lanes >> p & 1]
        columns = [b for b in range(4) if mask >> b & 1]
        self.data[np.ix_(rows, [4 * word + b for b in columns])] = new[np.ix_(rows, columns)]


class _Port:
    """Grants with probability `rate`; a refused request must still be there, unchanged, in the next cycle."""

    def __init__(self, dut: Any, name: str, memory: LaneMemory):
        self.name, self.memory = name, memory
        self.rate = 1.0
        self.valid = getattr(dut, f"{name}__req__valid")
        self.ready = getattr(dut, f"{name}__req__ready")
        self.payload = getattr(dut, f"{name}__req__payload")
        self.granted, self.accepted = 0, 0
        self.refused: int | None = None

    def grant(self) -> None:
        """Decide about this cycle."""
        self.granted = int(random.random() < self.rate)
        self.ready.value = self.granted

    def taken(self) -> int | None:
        """The request accepted at this cycle's rising edge, if any."""
        if not int(self.valid.value):
            assert self.refused is None, f"{self.name}: a request was withdrawn"
            return None
        payload = int(self.payload.value)
        assert self.refused in (None, payload), f"{self.name}: a waiting request changed"
        self.refused = None if self.granted else payload
        if not self.granted:
            return None
        self.accepted += 1
        return payload


class LaneReadPort(_Port):
    """Answers in order, `latency` cycles after acceptance at the earliest, `jitter` more at the most."""

    def __init__(self, dut: Any, name: str, memory: LaneMemory, *, latency: int = 2):
        super().__init__(dut, name, memory)
        self.rsp_valid, self.rsp = getattr(dut, f"{name}__rsp_valid"), getattr(dut, f"{name}__rsp")
        self.latency, self.jitter, self.cycle = latency, 0, 0
        self.answers: deque[tuple[int, int]] = deque()
        self.rsp_valid.value = 0

    def drive(self) -> None:
        """Grant, and answer what is due; the data of a cycle without an answer is noise."""
        self.grant()
        due = bool(self.answers) and self.answers[0][0] <= self.cycle
        self.rsp_valid.value = int(due)
        lanes = self.memory.data.shape[0]
        self.rsp.value = self.answers.popleft()[1] if due else random.getrandbits(32 * lanes)

    def settle(self) -> None:
        """Take a request; its answer is what the memory holds before this cycle's writes."""
        payload = self.taken()
        if payload is not None:
            when = self.cycle + self.latency + random.randint(0, self.jitter)
            self.answers.append((when, self.memory.lanes(payload)))
        self.cycle += 1

    @property
    def quiet(self) -> bool:
        """Nothing waits and nothing is owed."""
        return not self.answers and self.refused is None


class LaneWritePort(_Port):
    """Writes when a request is accepted."""

    def drive(self) -> None:
        """Grant."""
        self.grant()

    def settle(self) -> None:
        """Take a request."""
        payload = self.taken()
        if payload is not None:
            partitions, bits = self.memory.data.shape[0], self.memory.addr_bits
            word, mask = payload & (1 << bits) - 1, payload >> bits & 15
            lanes = payload >> bits + 4 & (1 << partitions) - 1
            self.memory.store(word, mask, lanes, payload >> bits + 4 + partitions)

    @property
    def quiet(self) -> bool:
        """Nothing waits."""
        return self.refused is None


class LanePorts:
    """All lane ports of a design: settles reads before writes, so that a read never sees its own cycle's writes."""

    def __init__(self, dut: Any, reads: dict[str, LaneMemory], writes: dict[str, LaneMemory]):
        self.reads = [LaneReadPort(dut, name, memory) for name, memory in reads.items()]
        self.writes = [LaneWritePort(dut, name, memory) for name, memory in writes.items()]

    def weather(self, rate: float, jitter: int = 0) -> None:
        """Grant rate of every port, and how much later than at once answers may come."""
        for port in (*self.reads, *self.writes):
            port.rate = rate
        for port in self.reads:
            port.jitter = jitter

    def drive(self) -> None:
        """At a falling edge."""
        for port in (*self.reads, *self.writes):
            port.drive()

    def settle(self) -> None:
        """Before the rising edge."""
        for port in (*self.reads, *self.writes):
            port.settle()

    @property
    def quiet(self) -> bool:
        """Nothing waits and nothing is owed."""
        return all(port.quiet for port in (*self.reads, *self.writes))
