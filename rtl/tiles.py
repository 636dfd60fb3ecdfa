"""The tile library: each distinct (class, configuration) is elaborated once and placed as an instance everywhere else.

Amaranth emits one module per instance and merges nothing, so a 128 x 128 array written as submodules is hopeless.
`TileLibrary.place` gives either the component itself (`inline=True`: Amaranth's simulator, unit tests) or a `Placed` stand-in
with the same signature that elaborates to one Verilog instance. A tile class takes exactly `(config, *, tiles)`, where
`config` is hashable and has a stable `repr`; tiles never differ by instance (coordinates come in as ports).
"""

import hashlib
import re
from collections.abc import Hashable
from typing import Any

from amaranth import ClockSignal, Instance, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In


def module_name(cls: type, config: Hashable) -> str:
    """Verilog module name of a tile: snake-case class and 8 hex digits of its configuration's hash."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
    text = f"{cls.__module__}.{cls.__qualname__}({config!r})"
    return f"{snake}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def port_name(path: tuple[str | int, ...]) -> str:
    """The name Amaranth gives a flattened port."""
    return "__".join(str(p) for p in path)


class Placed(wiring.Component):
    """Stands in for a tile: same signature, elaborates to an instance of the tile's module.

    Elaborates to the `Instance` itself, since a `Module` around it would add one wrapper module per placed tile.
    """

    def __init__(self, name: str, signature: wiring.Signature):
        self._name = name
        super().__init__(signature)

    def elaborate(self, platform: Any) -> Instance:
        ports: dict[str, Any] = {"i_clk": ClockSignal("sync"), "i_rst": ResetSignal("sync")}
        for path, member, value in self.signature.flatten(self):
            kind = "i" if member.flow == In else "o"
            ports[f"{kind}_{port_name(path)}"] = value
        return Instance(self._name, **ports)


class TileLibrary:
    """Collects the distinct tiles of a design.

    `inline=True` places real submodules and collects nothing. After the top has been converted, `entries` holds every
    distinct tile in first-placed order; converting an entry may place (and so add) further ones.
    """

    def __init__(self, *, inline: bool = False):
        self.inline = inline
        self.entries: dict[str, tuple[type, Hashable]] = {}
        self._signatures: dict[str, wiring.Signature] = {}

    def place(self, cls: type, config: Hashable) -> Any:
        """A component with the ports of `cls(config, tiles=self)`; see the class for what it elaborates to."""
        if self.inline:
            return cls(config, tiles=self)
        name = module_name(cls, config)
        if name not in self.entries:
            self.entries[name] = (cls, config)
            sample = cls(config, tiles=self)
            sample._MustUse__silence = (
                True  # asked for its ports only; the one that is converted is made by sim.emit
            )
            self._signatures[name] = sample.signature
        return Placed(name, self._signatures[name])


class ClockedTile(wiring.Component):
    """Base of tiles: guarantees `clk` and `rst` ports, which Amaranth leaves out of purely combinational modules.

    Call `self.keep_clock(m)` in `elaborate`.
    """

    @staticmethod
    def keep_clock(m: Any) -> None:
        """Register one bit that nothing reads, so that the module has clock and reset ports."""
        alive = Signal(name="alive")
        m.d.sync += alive.eq(1)
