"""Arbiter for several requesters of which any that do not collide may be served in the same cycle.

Least recently served wins; above that stand, in this order, one locked requester, those that have waited too long, and
preferred ones.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from amaranth import C, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.tiles import TileLibrary


def pairs(ports: int) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, of requesters in the order of `Arbiter.conflict`'s bits."""
    return list(combinations(range(ports), 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class ArbiterConfig:
    """`ports` requesters; `locked` (at most one) always wins; `preferred` ones win over the rest until somebody starves.

    A requester starves when it has been refused `starvation_limit` cycles in a row.
    """

    ports: int
    locked: tuple[int, ...] = ()
    preferred: tuple[int, ...] = ()
    starvation_limit: int = 64

    def __post_init__(self) -> None:
        if self.ports < 2:
            raise ValueError(f"ports must be at least 2, not {self.ports!r}")
        if len(self.locked) > 1 or any(i not in range(self.ports) for i in self.locked):
            raise ValueError(f"locked must be at most one requester below {self.ports}, not {self.locked!r}")
        if any(i not in range(self.ports) or i in self.locked for i in self.preferred):
            raise ValueError(
                f"preferred must be requesters below {self.ports} that are not locked, not {self.preferred!r}"
            )
        if self.starvation_limit < 1:
            raise ValueError(f"starvation_limit must be at least 1, not {self.starvation_limit!r}")

    @property
    def wait_bound(self) -> int:
        """Most cycles that a requester is refused in a row, not counting those in which the locked one requests.

        Each of the others is served at most once after it began to starve, and in each such cycle at least one is.
        """
        return self.starvation_limit + self.ports - 1


class Arbiter(wiring.Component):
    """Grants requests in the cycle they are made (combinational).

    Members
    -------
    request: bit i is requester i's; it stays until granted.
    conflict: bit k: requesters `pairs(ports)[k]` must not be served in one cycle. Stays while both request.
    grant: served this cycle. A request is granted unless one that it collides with stands above it, so the topmost always is.
    starving: refused `starvation_limit` cycles in a row and not yet served (registered); never set for the locked one.

    Order among equals is least recently served first: a strict total order, in which who is served goes behind all who are not.
    """

    def __init__(self, config: ArbiterConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        n = config.ports
        super().__init__(
            {"request": In(n), "conflict": In(len(pairs(n))), "grant": Out(n), "starving": Out(n)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        starving = [Signal(name=f"starving_{i}") for i in range(cfg.ports)]
        grant = [Signal(name=f"grant_{i}") for i in range(cfg.ports)]
        blocked: list[Value] = [C(0, 1)] * cfg.ports
        for k, (i, j) in enumerate(pairs(cfg.ports)):
            if i in cfg.locked or j in cfg.locked:
                first: Value = C(i in cfg.locked, 1)
            else:
                first = Signal(name=f"first_{i}_{j}")
                m.d.comb += first.eq(self._stands_above(m, i, j, starving, grant))
            collide = Signal(name=f"collide_{i}_{j}")
            m.d.comb += collide.eq(self.request[i] & self.request[j] & self.conflict[k])
            blocked[j] |= collide & first
            blocked[i] |= collide & ~first
        for i in range(cfg.ports):
            m.d.comb += grant[i].eq(self.request[i] & ~blocked[i])
            if i not in cfg.locked:
                self._count_wait(m, i, grant[i], starving[i])
            m.d.comb += [self.grant[i].eq(grant[i]), self.starving[i].eq(starving[i])]
        return m

    def _stands_above(self, m: Module, i: int, j: int, starving: list[Signal], grant: list[Signal]) -> Value:
        """Whether requester i stands above j; keeps the order in which the two were served."""
        older = Signal(init=1, name=f"older_{i}_{j}")
        with m.If(grant[i] & ~grant[j]):
            m.d.sync += older.eq(0)
        with m.If(grant[j] & ~grant[i]):
            m.d.sync += older.eq(1)
        calm: Value = older
        if (i in self.config.preferred) != (j in self.config.preferred):
            calm = C(i in self.config.preferred, 1)
        return Mux(starving[i] ^ starving[j], starving[i], Mux(starving[i], older, calm))

    def _count_wait(self, m: Module, i: int, grant: Signal, starving: Signal) -> None:
        """Count the cycles in a row that requester i has been refused, up to the limit."""
        limit = self.config.starvation_limit
        waited = Signal(range(limit + 1), name=f"waited_{i}")
        m.d.comb += starving.eq(waited == limit)
        with m.If(~self.request[i] | grant):
            m.d.sync += waited.eq(0)
        with m.Elif(~starving):
            m.d.sync += waited.eq(waited + 1)
