"""AXI4 memory for benches: random pauses on every handshake, and a checker of the protocol rules that a master must keep."""

import random
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

BEAT = 16
OKAY, SLVERR, DECERR = 0, 2, 3
ADDRESS = ("id", "addr", "len", "size", "burst")


class Channel:
    """Watches one handshake: what is shown with valid stays until ready."""

    def __init__(self, name: str):
        self.name = name
        self.shown: tuple[int, ...] | None = None

    def check(self, valid: bool, ready: bool, payload: tuple[int, ...]) -> bool:
        """True when the handshake happens."""
        if self.shown is not None:
            assert valid, f"{self.name}: valid fell without ready"
            assert payload == self.shown, f"{self.name}: changed while it waited: {self.shown} to {payload}"
        self.shown = payload if valid and not ready else None
        return valid and ready


class AxiMemory:
    """A slave at `prefix`: in-order answers, `rate` of readiness, `latency` cycles. `together`: takes an address and its first beat only while
    both AWVALID and WVALID are high (field report A18)."""

    def __init__(self, dut: Any, prefix: str, size: int, *, ids: int):
        self.dut, self.prefix, self.ids = dut, prefix, ids
        self.data: NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        self.rate, self.latency, self.together, self.cycle = 1.0, 4, False, 0
        self.bad_pages: set[int] = set()
        self.watch = {n: Channel(f"{prefix}{n}") for n in ("ar", "aw", "w")}
        self.reads: deque[list[int]] = deque()  # due, id, address, beats left
        self.addresses: deque[list[int]] = deque()  # id, address, beats
        self.beats: deque[tuple[int, int, int]] = deque()  # data, strobe, last
        self.answers: deque[tuple[int, int, int]] = deque()  # due, id, response
        self.r_shown = self.b_shown = False
        self.read_beats = 0
        self.bursts: list[tuple[str, int, int]] = []
        for name in (
            "arready",
            "awready",
            "wready",
            "rvalid",
            "bvalid",
            "rid",
            "rdata",
            "rresp",
            "rlast",
            "bid",
            "bresp",
        ):
            self.pin(name).value = 0

    def pin(self, name: str) -> Any:
        return getattr(self.dut, f"{self.prefix}__{name}")

    def _get(self, name: str) -> int:
        return int(self.pin(name).value)

    def chance(self) -> bool:
        return random.random() < self.rate

    def drive(self) -> None:
        """At a falling edge."""
        self.ready = {n: int(self.chance()) for n in ("ar", "aw", "w")}
        if self.together:
            self.ready["aw"] = self.ready["w"] = 0
        fresh = (
            not self.r_shown and bool(self.reads) and self.reads[0][0] <= self.cycle and bool(self.chance())
        )
        self.r_shown = self.r_shown or fresh
        self.b_shown = self.b_shown or (
            bool(self.answers) and self.answers[0][0] <= self.cycle and self.chance()
        )
        for n, value in self.ready.items():
            self.pin(f"{n}ready").value = value
        self.pin("rvalid").value = int(self.r_shown)
        if fresh:  # once: a beat that waits does not change, even if its bytes are written meanwhile
            _, number, addr, left = self.reads[0]
            bad = addr // 4096 in self.bad_pages
            self.pin("rid").value = number
            self.pin("rdata").value = int.from_bytes(self.data[addr : addr + BEAT].tobytes(), "little")
            self.pin("rresp").value = SLVERR if bad else OKAY
            self.pin("rlast").value = int(left == 1)
        self.pin("bvalid").value = int(self.b_shown)
        if self.b_shown:
            self.pin("bid").value, self.pin("bresp").value = self.answers[0][1], self.answers[0][2]

    def react(self) -> None:
        """Between falling and rising edge, for `together`: the ready signals answer to the valid ones."""
        if self.together:
            both = bool(self._get("awvalid") and self._get("wvalid"))
            inside = bool(self.addresses)  # later beats of a burst come alone
            self.ready["w"] = int((both or inside) and self.chance())
            self.ready["aw"] = 0 if inside else self.ready["w"]
            self.pin("awready").value, self.pin("wready").value = self.ready["aw"], self.ready["w"]

    def _burst(self, channel: str) -> tuple[int, int, int]:
        number, addr, length, size, burst = (self._get(f"{channel}{n}") for n in ADDRESS)
        beats = length + 1
        assert number < self.ids, f"{channel}id {number}"
        assert (size, burst) == (4, 1), f"{channel}size {size}, {channel}burst {burst}"
        assert addr % BEAT == 0
        assert addr // 4096 == (addr + BEAT * beats - 1) // 4096, f"{channel}: crosses 4 KiB at {addr:#x}"
        assert addr + BEAT * beats <= self.data.size, f"{channel}: beyond memory at {addr:#x}"
        self.bursts.append((channel, addr, beats))
        return number, addr, beats

    def settle(self) -> None:
        """Before the rising edge, with everything settled."""
        if self.r_shown and self._get("rready"):
            self.r_shown = False
            self.read_beats += 1
            read = self.reads[0]
            read[2], read[3] = read[2] + BEAT, read[3] - 1
            if read[3] == 0:
                self.reads.popleft()
        if self.b_shown and self._get("bready"):
            self.b_shown = False
            self.answers.popleft()
        for n in ("ar", "aw"):
            valid = bool(self._get(f"{n}valid"))
            payload = tuple(self._get(f"{n}{f}") for f in ADDRESS) if valid else ()
            if self.watch[n].check(valid, bool(self.ready[n]), payload):
                number, addr, beats = self._burst(n)
                if n == "ar":
                    self.reads.append([self.cycle + self.latency, number, addr, beats])
                else:
                    self.addresses.append([number, addr, beats])
        valid = bool(self._get("wvalid"))
        payload = (self._get("wdata"), self._get("wstrb"), self._get("wlast")) if valid else ()
        if self.watch["w"].check(valid, bool(self.ready["w"]), payload):
            self.beats.append(payload)  # type: ignore[arg-type]
        while self.addresses and self.beats:
            self._write()
        self.cycle += 1

    def _write(self) -> None:
        burst, (data, strobe, last) = self.addresses[0], self.beats.popleft()
        bad = burst[1] // 4096 in self.bad_pages
        raw = data.to_bytes(BEAT, "little")
        for i in range(BEAT):
            if strobe >> i & 1 and not bad:
                self.data[burst[1] + i] = raw[i]
        burst[1], burst[2] = burst[1] + BEAT, burst[2] - 1
        assert bool(last) == (burst[2] == 0), "WLAST in the wrong place"
        if burst[2] == 0:
            self.addresses.popleft()
            self.answers.append((self.cycle + self.latency, burst[0], SLVERR if bad else OKAY))
