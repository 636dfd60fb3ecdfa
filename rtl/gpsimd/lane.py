"""One lane of the gpsimd engine: its number, comparison with zero, gather slots, casts."""

from typing import Any

from amaranth import Array, Module, Mux, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from models.formats import DType
from models.isa import AluOp
from rtl.fp import decode, encode
from rtl.gpsimd.gather import NUMBER_BITS, SLOTS
from rtl.interfaces import mac_code_bits
from rtl.tiles import ClockedTile, TileLibrary

VALUE_LATENCY = 1 + decode.LATENCY
"""Cycles from `raw` to `value`."""
LATENCY = VALUE_LATENCY + encode.LATENCY
"""Cycles from `raw` and `number` to `o`."""
LIMIT_BITS = NUMBER_BITS + 1
"""Bits of how many elements a source that is gathered from may have."""


class HeldLayout(data.StructLayout):
    """What stays the same while an instruction's elements are in the lanes.

    iota: the number is the element. choose: the number says, with `op`, whether the element or `rest` (FP32) goes on. gather: elements come
    from the slots. copy: bits go on as they are. limit: indices are below it.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "iota": unsigned(1),
                "choose": unsigned(1),
                "gather": unsigned(1),
                "copy": unsigned(1),
                "op": unsigned(4),
                "rest": unsigned(32),
                "dtype": unsigned(mac_code_bits()),
                "o_dtype": unsigned(mac_code_bits()),
                "saturate": unsigned(1),
                "limit": unsigned(LIMIT_BITS),
            }
        )


class CatchLayout(data.StructLayout):
    """put: `index` goes into slot `slot`. take: element `number` of the source is at `raw`. Otherwise slot `slot` is what goes on."""

    def __init__(self) -> None:
        super().__init__(
            {
                "put": unsigned(1),
                "take": unsigned(1),
                "slot": unsigned((SLOTS - 1).bit_length()),
                "number": unsigned(NUMBER_BITS),
            }
        )


class GpsimdLane(ClockedTile):
    """Members
    -------
    held: as above. raw: an element of src0, zero-extended. number, offset: INT32 whose sum is the element's number; `offset` is held.
    catch, index: gather slots. bad: a cycle after `put`, that index was not below the limit; seen: it.
    value: `raw`, or what a slot caught, as FP32. o: the result, zero-extended. One element a cycle, never stalls.
    """

    def __init__(self, config: None, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "held": In(HeldLayout()),
                "raw": In(32),
                "number": In(32),
                "offset": In(32),
                "catch": In(CatchLayout()),
                "index": In(32),
                "bad": Out(1),
                "seen": Out(32),
                "value": Out(32),
                "o": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        held = self.held
        m.submodules.decode = dec = self.tiles.place(decode.Decode, decode.DecodeConfig())
        m.submodules.encode = enc = self.tiles.place(encode.Encode, encode.EncodeConfig())
        caught = self._slots(m)
        element, total, bits = (Signal(32, name=n, reset_less=True) for n in ("element", "total", "bits"))
        m.d.sync += [
            element.eq(Mux(held.gather, caught, self.raw)),
            total.eq(self.number + self.offset),
        ]
        m.d.comb += [
            bits.eq(Mux(held.iota, total, element)),
            dec.raw.eq(bits),
            dec.dtype.eq(Mux(held.iota, DType.INT32.value, held.dtype)),
            self.value.eq(dec.o),
            enc.dtype.eq(held.o_dtype),
            enc.saturate.eq(held.saturate),
        ]
        holds = Signal()
        zero, negative = ~total.any(), total[31]
        conditions = {
            AluOp.IS_EQ: zero,
            AluOp.NOT_EQ: ~zero,
            AluOp.IS_GT: ~zero & ~negative,
            AluOp.IS_GE: ~negative,
            AluOp.IS_LT: negative,
            AluOp.IS_LE: zero | negative,
        }
        with m.Switch(held.op):
            for op, condition in conditions.items():
                with m.Case(op.value):
                    m.d.comb += holds.eq(condition)
        keeps, copied = holds, bits
        for n in range(decode.LATENCY):
            later = Signal(name=f"keeps{n}", reset_less=True)
            m.d.sync += later.eq(keeps)
            keeps = later
        for n in range(decode.LATENCY + encode.LATENCY):
            word = Signal(32, name=f"bits{n}", reset_less=True)
            m.d.sync += word.eq(copied)
            copied = word
        m.d.comb += [
            enc.x.eq(Mux(held.choose & ~keeps, held.rest, dec.o)),
            self.o.eq(Mux(held.copy, copied, enc.raw)),
        ]
        return m

    def _slots(self, m: Module) -> Any:
        """Indices and what they caught; returns the slot looked at."""
        catch, limit = self.catch, self.held.limit
        # reset: lanes beyond `parts` may name nothing, and what they then hold goes to the memory's port, masked
        index = [Signal(NUMBER_BITS, name=f"index{s}") for s in range(SLOTS)]
        kept = [Signal(32, name=f"kept{s}") for s in range(SLOTS)]
        for s in range(SLOTS):
            with m.If(catch.put & (catch.slot == s)):
                m.d.sync += index[s].eq(self.index)
            with m.If(catch.take & (index[s] == catch.number)):
                m.d.sync += kept[s].eq(self.raw)
        bad, seen = Signal(), Signal(32, reset_less=True)
        m.d.sync += [bad.eq(catch.put & (self.index >= limit)), seen.eq(self.index)]
        m.d.comb += [self.bad.eq(bad), self.seen.eq(seen)]
        return Array(kept)[catch.slot]
