"""Error unit: keeps a core's first error, and finds waits that can never end."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from models.isa import ErrorCode
from rtl.interfaces import ErrorLayout
from rtl.tiles import ClockedTile, TileLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorConfig:
    """`sources` of errors, `waiters` whose waits are watched."""

    sources: int
    waiters: int

    def __post_init__(self) -> None:
        if self.sources < 1 or self.waiters < 1:
            raise ValueError(
                f"sources and waiters must be at least 1, not {self.sources!r} and {self.waiters!r}"
            )


class ErrorUnit(ClockedTile):
    """Members
    -------
    error{k}_valid, error{k}: sources, the lowest number first when several come in one cycle.
    waiting: a bit for each sequencer that waits. index{k}: its instruction. progress: something else happens in the core.
    limit: cycles without progress, while somebody waits, before that is a WATCHDOG error of the lowest waiter; 0: never.
    failed, first: an error has happened, and which (registered). clear: forget it.
    """

    def __init__(self, config: ErrorConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        ports: dict[str, Any] = {}
        for k in range(config.sources):
            ports |= {f"error{k}_valid": In(1), f"error{k}": In(ErrorLayout())}
        ports |= {f"index{k}": In(32) for k in range(config.waiters)}
        super().__init__(
            {
                **ports,
                "waiting": In(config.waiters),
                "progress": In(1),
                "limit": In(32),
                "clear": In(1),
                "failed": Out(1),
                "first": Out(ErrorLayout()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        count = Signal(32)
        stuck, expired = Signal(), Signal()
        m.d.comb += [
            stuck.eq(self.waiting.any() & ~self.progress),
            # a wait that ends in the very cycle in which the time is up has no instruction to blame
            expired.eq(stuck & (self.limit != 0) & (count >= self.limit)),
        ]
        with m.If(~stuck | self.failed | self.clear):
            m.d.sync += count.eq(0)
        with m.Elif(~expired):
            m.d.sync += count.eq(count + 1)

        late = Signal(ErrorLayout())
        m.d.comb += late.code.eq(ErrorCode.WATCHDOG)
        for k in reversed(range(self.config.waiters)):
            with m.If(self.waiting[k]):
                m.d.comb += [late.engine.eq(k), late.index.eq(getattr(self, f"index{k}"))]
        valids = [getattr(self, f"error{k}_valid") for k in range(self.config.sources)]
        chosen: Any = late.as_value()
        for k in reversed(range(self.config.sources)):
            chosen = Mux(valids[k], getattr(self, f"error{k}").as_value(), chosen)
        failed, first = Signal(), Signal(ErrorLayout())
        m.d.comb += [self.failed.eq(failed), self.first.eq(first)]
        with m.If(self.clear):
            m.d.sync += [failed.eq(0), first.eq(0)]
        with m.Elif(~failed & (Cat(valids).any() | expired)):
            m.d.sync += [failed.eq(1), first.as_value().eq(chosen)]
        return m
