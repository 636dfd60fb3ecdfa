"""Memory behind burst ports, and on-core memory behind row ports, all bench: random grants, delays and errors, stream rules checked."""

import random
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

BEAT = 16
PAGE = 4096


def masked_payload(pin: Any) -> int:
    """A payload whose bytes without strobe may be unknown in a four-state simulator; unknown bits read as 0."""
    return int(str(pin.value).translate(str.maketrans("XxZzUu-W", "00000000")), 2)


class BurstMemory:
    """Bytes, and pages that answer with an error."""

    def __init__(self, size: int):
        self.data: NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        self.bad_pages: set[int] = set()


def _burst(payload: int, size: int) -> tuple[int, int]:
    addr, beats = payload & (1 << 40) - 1, payload >> 40
    assert addr % BEAT == 0, f"unaligned burst at {addr:#x}"
    assert 1 <= beats <= 256, f"a burst of {beats} beats"
    assert addr // PAGE == (addr + BEAT * beats - 1) // PAGE, (
        f"a burst crosses 4 KiB: {addr:#x}, {beats} beats"
    )
    assert addr + BEAT * beats <= size, f"a burst leaves memory: {addr:#x}, {beats} beats"
    return addr, beats


class BurstReadPort:
    """Answers bursts in order; `rate` of grants and of beats, `latency` cycles to the first one."""

    def __init__(self, dut: Any, name: str, memory: BurstMemory):
        self.dut, self.name, self.memory = dut, name, memory
        self.rate, self.latency, self.cycle = 1.0, 5, 0
        self.bursts: deque[list[int]] = deque()  # due, address, beats left
        self.shown = False
        self.beats = self.count = 0
        self.pin("rsp__valid").value = 0
        self.pin("rsp__payload").value = 0

    def pin(self, name: str) -> Any:
        return getattr(self.dut, f"{self.name}__{name}")

    def drive(self) -> None:
        self.granted = int(random.random() < self.rate)
        self.pin("req__ready").value = self.granted
        due = bool(self.bursts) and self.bursts[0][0] <= self.cycle
        self.shown = self.shown or (due and random.random() < self.rate)
        self.pin("rsp__valid").value = int(self.shown)
        if self.shown:
            _, addr, left = self.bursts[0]
            value = int.from_bytes(self.memory.data[addr : addr + BEAT].tobytes(), "little")
            error = addr // PAGE in self.memory.bad_pages
            self.pin("rsp__payload").value = value | error << 128 | (left == 1) << 129

    def settle(self) -> None:
        if self.shown and int(self.pin("rsp__ready").value):
            self.shown = False
            self.beats += 1
            burst = self.bursts[0]
            burst[1], burst[2] = burst[1] + BEAT, burst[2] - 1
            if burst[2] == 0:
                self.bursts.popleft()
        if self.granted and int(self.pin("req__valid").value):
            addr, beats = _burst(int(self.pin("req__payload").value), self.memory.data.size)
            self.bursts.append([self.cycle + self.latency, addr, beats])
            self.count += 1
        self.cycle += 1

    @property
    def quiet(self) -> bool:
        return not self.bursts


class BurstWritePort:
    """Takes bursts and their data independently, answers in order."""

    def __init__(self, dut: Any, name: str, memory: BurstMemory):
        self.dut, self.name, self.memory = dut, name, memory
        self.rate, self.latency, self.cycle = 1.0, 5, 0
        self.bursts: deque[list[int]] = deque()  # address, beats left
        self.answers: deque[tuple[int, bool]] = deque()
        self.shown = False
        self.beats = self.count = 0
        self.pin("done__valid").value = 0
        self.pin("done__payload").value = 0

    def pin(self, name: str) -> Any:
        return getattr(self.dut, f"{self.name}__{name}")

    def drive(self) -> None:
        self.granted = int(random.random() < self.rate)
        self.pin("req__ready").value = self.granted
        self.taking = int(bool(self.bursts) and random.random() < self.rate)
        self.pin("data__ready").value = self.taking
        self.shown = self.shown or (bool(self.answers) and self.answers[0][0] <= self.cycle)
        self.pin("done__valid").value = int(self.shown)
        if self.shown:
            self.pin("done__payload").value = int(self.answers[0][1])

    def settle(self) -> None:
        if self.shown and int(self.pin("done__ready").value):
            self.shown = False
            self.answers.popleft()
        if self.taking and int(self.pin("data__valid").value):
            payload, burst = masked_payload(self.pin("data__payload")), self.bursts[0]
            new = np.frombuffer((payload & (1 << 128) - 1).to_bytes(BEAT, "little"), dtype=np.uint8)
            bad = burst[0] // PAGE in self.memory.bad_pages
            for i in range(BEAT):
                if payload >> 128 + i & 1 and not bad:
                    self.memory.data[burst[0] + i] = new[i]
            self.beats += 1
            burst[0], burst[1] = burst[0] + BEAT, burst[1] - 1
            if burst[1] == 0:
                self.answers.append((self.cycle + self.latency, bad))
                self.bursts.popleft()
        if self.granted and int(self.pin("req__valid").value):
            addr, beats = _burst(int(self.pin("req__payload").value), self.memory.data.size)
            self.bursts.append([addr, beats])
            self.count += 1
        self.cycle += 1

    @property
    def quiet(self) -> bool:
        return not self.bursts and not self.answers


class RowReadPort:
    """16 bytes of one partition, `latency` cycles after the grant, never held back."""

    def __init__(self, dut: Any, name: str, data: NDArray[np.uint8], *, latency: int = 3):
        self.dut, self.name, self.data, self.latency = dut, name, data, latency
        self.rate, self.cycle = 1.0, 0
        self.answers: deque[tuple[int, int]] = deque()
        self.count = 0
        self.pin("rsp_valid").value = 0
        self.pin("rsp").value = 0

    def pin(self, name: str) -> Any:
        return getattr(self.dut, f"{self.name}__{name}")

    def drive(self) -> None:
        self.granted = int(random.random() < self.rate)
        self.pin("req__ready").value = self.granted
        due = bool(self.answers) and self.answers[0][0] == self.cycle
        self.pin("rsp_valid").value = int(due)
        self.pin("rsp").value = self.answers.popleft()[1] if due else random.getrandbits(128)

    def settle(self) -> None:
        if self.granted and int(self.pin("req__valid").value):
            payload, bits = int(self.pin("req__payload").value), (self.data.shape[1] // BEAT - 1).bit_length()
            beat, part = payload & (1 << bits) - 1, payload >> bits
            value = int.from_bytes(self.data[part, BEAT * beat : BEAT * beat + BEAT].tobytes(), "little")
            self.answers.append((self.cycle + self.latency, value))
            self.count += 1
        self.cycle += 1

    @property
    def quiet(self) -> bool:
        return not self.answers


class RowWritePort:
    """Bytes of 16 of one partition, written when granted."""

    def __init__(self, dut: Any, name: str, data: NDArray[np.uint8]):
        self.dut, self.name, self.data = dut, name, data
        self.rate = 1.0
        self.count = 0

    def pin(self, name: str) -> Any:
        return getattr(self.dut, f"{self.name}__{name}")

    def drive(self) -> None:
        self.granted = int(random.random() < self.rate)
        self.pin("req__ready").value = self.granted

    def settle(self) -> None:
        if self.granted and int(self.pin("req__valid").value):
            payload = masked_payload(self.pin("req__payload"))
            bits, parts = (self.data.shape[1] // BEAT - 1).bit_length(), (self.data.shape[0] - 1).bit_length()
            beat, part = payload & (1 << bits) - 1, payload >> bits & (1 << parts) - 1
            strobe, value = payload >> bits + parts & 0xFFFF, payload >> bits + parts + BEAT
            new = np.frombuffer(value.to_bytes(BEAT, "little"), dtype=np.uint8)
            for i in range(BEAT):
                if strobe >> i & 1:
                    self.data[part, BEAT * beat + i] = new[i]
            self.count += 1

    @property
    def quiet(self) -> bool:
        return True
