"""Round-robin arbiter that merges streams into one."""

from dataclasses import dataclass
from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from rtl.tiles import ClockedTile, TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamArbiterConfig:
    """`ports` streams of `width` bits."""

    ports: int
    width: int

    def __post_init__(self) -> None:
        if self.ports < 1:
            raise ValueError(f"ports must be at least 1, not {self.ports!r}")
        if self.width < 1:
            raise ValueError(f"width must be at least 1, not {self.width!r}")


def round_robin(m: Module, name: str, requests: list[Value], served: Value) -> Signal:
    """One-hot grant of the first request at or after the one next to the last served; keeps a grant while it is asked for and not served.

    Combinational; `served` says that the granted one was served this cycle.
    """
    n = len(requests)
    after = Signal(n, name=f"{name}_after")  # requests with an index above the last served one
    held = Signal(n, name=f"{name}_held")
    all_ = Signal(n, name=f"{name}_requests")
    grant = Signal(n, name=f"{name}_grant")
    high = Signal(n, name=f"{name}_high")
    still = Signal(
        n, name=f"{name}_still"
    )  # a request that was withdrawn (by a clear) holds its grant no longer
    m.d.comb += [all_.eq(Cat(requests)), high.eq(all_ & after), still.eq(held & all_)]
    first_high, first = high & (~high + 1)[:n], all_ & (~all_ + 1)[:n]
    m.d.comb += grant.eq(Mux(still.any(), still, Mux(high.any(), first_high, first)))
    with m.If(served):
        m.d.sync += [held.eq(0), after.eq(~(grant | (grant - 1)[:n]))]
    with m.Else():
        m.d.sync += held.eq(grant)
    return grant


class StreamArbiter(ClockedTile):
    """Members
    -------
    i0 ...: streams in. o: stream out; `source`: number of the stream whose item is shown. Combinational from `i` to `o`.

    A stream that was shown stays shown until its item is taken; then the others come before it again.
    """

    def __init__(self, config: StreamArbiterConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {f"i{k}": In(stream.Signature(config.width)) for k in range(config.ports)}
        super().__init__(
            {**ports, "o": Out(stream.Signature(config.width)), "source": Out(range(config.ports))}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.keep_clock(m)
        ins = [getattr(self, f"i{k}") for k in range(self.config.ports)]
        served = Signal()
        m.d.comb += served.eq(self.o.valid & self.o.ready)
        grant = round_robin(m, "rr", [i.valid for i in ins], served)
        for k in range(self.config.ports):
            with m.If(grant[k]):
                m.d.comb += self.source.eq(k)
        payloads = Array([i.payload for i in ins])
        m.d.comb += [self.o.valid.eq(grant.any()), self.o.payload.eq(payloads[self.source])]
        for k, i in enumerate(ins):
            m.d.comb += i.ready.eq(grant[k] & self.o.ready)
        return m
