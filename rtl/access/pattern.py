"""Address walker: the elements of an access pattern, one byte address a cycle, without a multiplier."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from models.isa import AP_DIMS, Space
from rtl.interfaces import ApLayout
from rtl.tiles import ClockedTile, TileLibrary

ADDRESS_BITS = 36
"""Signed: an address in range plus one stride of 4-byte elements, or any start address."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WalkerConfig:
    """Bytes of an SBUF and of a PSUM partition, powers of two; None where a pattern may not point there (its user checks that)."""

    sbuf_bytes: int | None
    psum_bytes: int | None

    def __post_init__(self) -> None:
        for key, value in (("sbuf_bytes", self.sbuf_bytes), ("psum_bytes", self.psum_bytes)):
            if value is not None and (value < 16 or value & (value - 1)):
                raise ValueError(f"{key} must be a power of two from 16, not {value!r}")
        if self.sbuf_bytes is None and self.psum_bytes is None:
            raise ValueError("sbuf_bytes and psum_bytes must not both be None")

    @property
    def addr_bits(self) -> int:
        """Bits of a byte address in the larger memory."""
        return (max(self.sbuf_bytes or 0, self.psum_bytes or 0) - 1).bit_length()


class StartLayout(data.StructLayout):
    """A pattern to walk and the log2 of its element's bytes; `addr` is a multiple of those bytes."""

    def __init__(self) -> None:
        super().__init__({"ap": ApLayout(), "size": unsigned(2)})


class ElementLayout(data.StructLayout):
    """One element: byte address, whether it is the pattern's first, and its last."""

    def __init__(self, addr_bits: int) -> None:
        super().__init__({"addr": unsigned(addr_bits), "first": unsigned(1), "last": unsigned(1)})


class PatternWalker(ClockedTile):
    """Walks one pattern after the other.

    Members
    -------
    start: StartLayout; accepted when nothing is left to walk, or with the last element of the pattern before: no idle cycle between.
    out: ElementLayout, in order, outermost dimension slowest; the first one the cycle after `start`. An empty pattern gives none.
    error_valid, error_addr: one cycle, at the first element that is not inside its partition; nothing more comes until `clear`.
    idle: nothing under way. clear: one cycle; forget everything.
    """

    def __init__(self, config: WalkerConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "start": In(stream.Signature(StartLayout())),
                "out": Out(stream.Signature(ElementLayout(config.addr_bits))),
                "error_valid": Out(1),
                "error_addr": Out(32),
                "idle": Out(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg = self.config
        active, failed, first, psum = Signal(), Signal(), Signal(), Signal()
        at = Signal(signed(ADDRESS_BITS))
        base = [Signal(signed(ADDRESS_BITS), name=f"base{d}") for d in range(AP_DIMS - 1)]
        stride = [Signal(signed(34), name=f"stride{d}") for d in range(AP_DIMS)]
        count = [Signal(16, name=f"count{d}") for d in range(AP_DIMS)]
        left = [Signal(16, name=f"left{d}") for d in range(AP_DIMS)]

        ends = [Signal(name=f"end{d}") for d in range(AP_DIMS)]
        inside, step, last = Signal(), Signal(), Signal()
        m.d.comb += [e.eq(n == 1) for e, n in zip(ends, left, strict=True)]
        m.d.comb += [
            inside.eq(~at[self._limit_bits(Space.SBUF) :].any()),
            last.eq(Cat(ends).all()),
            self.out.valid.eq(active & inside & ~failed),
            self.out.payload.addr.eq(at),
            self.out.payload.first.eq(first),
            self.out.payload.last.eq(last),
            step.eq(self.out.valid & self.out.ready),
            self.error_valid.eq(active & ~inside & ~failed & ~self.clear),
            self.error_addr.eq(at),
            self.idle.eq(~active),
            self.start.ready.eq(~failed & ~self.clear & (~active | (step & last))),
        ]
        if cfg.psum_bytes is not None and cfg.sbuf_bytes != cfg.psum_bytes:
            bits = self._limit_bits(Space.PSUM)
            with m.If(psum if cfg.sbuf_bytes is not None else 1):
                m.d.comb += inside.eq(~at[bits:].any())
        with m.If(self.error_valid):
            m.d.sync += failed.eq(1)
        with m.If(step):
            m.d.sync += first.eq(0)
            with m.If(last):
                m.d.sync += active.eq(0)
            self._advance(m, at, base, stride, count, left, ends)
        with m.If(self.start.valid & self.start.ready):
            ap, size = self.start.payload.ap, self.start.payload.size
            strides = [ap.stride0, ap.stride1, ap.stride2, ap.stride3]
            counts = [ap.count0, ap.count1, ap.count2, ap.count3]
            m.d.sync += [
                active.eq(Cat([c.any() for c in counts]).all()),
                first.eq(1),
                psum.eq(ap.space == Space.PSUM),
                at.eq(ap.addr),
                *(b.eq(ap.addr) for b in base),
                *(
                    s.eq(Mux(size[1], new << 2, Mux(size[0], new << 1, new)))
                    for s, new in zip(stride, strides, strict=True)
                ),
                *(c.eq(new) for c, new in zip(count, counts, strict=True)),
                *(c.eq(new) for c, new in zip(left, counts, strict=True)),
            ]
        with m.If(self.clear):
            m.d.sync += [active.eq(0), failed.eq(0)]
        return m

    def _limit_bits(self, space: Space) -> int:
        limit = self.config.sbuf_bytes if space == Space.SBUF else self.config.psum_bytes
        return ((limit or self.config.sbuf_bytes or self.config.psum_bytes or 0) - 1).bit_length()

    def _advance(
        self,
        m: Module,
        at: Signal,
        base: list[Signal],
        stride: list[Signal],
        count: list[Signal],
        left: list[Signal],
        ends: list[Signal],
    ) -> None:
        """Next element: the innermost dimension that has not ended steps, those inside it start again from there."""
        inner = AP_DIMS - 1
        with m.If(~ends[inner]):
            m.d.sync += [at.eq(at + stride[inner]), left[inner].eq(left[inner] - 1)]
        for d in reversed(range(inner)):
            with m.Elif(~ends[d]):
                there = Signal(signed(ADDRESS_BITS), name=f"there{d}")
                m.d.comb += there.eq(base[d] + stride[d])
                m.d.sync += [at.eq(there), left[d].eq(left[d] - 1)]
                m.d.sync += [b.eq(there) for b in base[d:]]
                m.d.sync += [left[i].eq(count[i]) for i in range(d + 1, AP_DIMS)]
