"""Aligner: beats at the source's offset become beats at the target's offset, with byte strobes."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from rtl.dma.chunks import CHUNK_BITS, beats
from rtl.dma.source import BeatLayout
from rtl.interfaces import BEAT_BYTES
from rtl.tiles import ClockedTile, TileLibrary

OFFSET_BITS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignConfig:
    """Nothing to choose."""


class AlignLayout(data.StructLayout):
    """A chunk's offsets within a beat, its bytes, and its row's source address, for error reports."""

    def __init__(self) -> None:
        super().__init__(
            {
                "src": unsigned(OFFSET_BITS),
                "dst": unsigned(OFFSET_BITS),
                "bytes": unsigned(CHUNK_BITS),
                "row": unsigned(64),
            }
        )


class StrobedLayout(data.StructLayout):
    """16 bytes and which of them to write."""

    def __init__(self) -> None:
        super().__init__({"data": unsigned(8 * BEAT_BYTES), "strb": unsigned(BEAT_BYTES)})


class Aligner(ClockedTile):
    """Members
    -------
    chunk: AlignLayout stream. beat: source beats. out: StrobedLayout stream, one a target beat.
    mute: all strobes are low, so that what is under way can run out without writing.
    error_valid, error_row: a beat of the row from this source address came with an error (one cycle a beat); strobes are low from it on.

    One beat a cycle; a chunk whose source offset is the larger one takes a cycle more, and so does each chunk's start.
    """

    def __init__(self, config: AlignConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "chunk": In(stream.Signature(AlignLayout())),
                "beat": In(stream.Signature(BeatLayout())),
                "out": Out(stream.Signature(StrobedLayout())),
                "mute": In(1),
                "error_valid": Out(1),
                "error_row": Out(64),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        job = Signal(AlignLayout())
        turn = Signal(OFFSET_BITS)
        active, prime, first, poisoned = Signal(), Signal(), Signal(), Signal()
        ins, outs = Signal(9), Signal(9)
        chunk = self.chunk.payload
        previous = Signal(8 * BEAT_BYTES, reset_less=True)
        turned = Signal(8 * BEAT_BYTES)
        m.d.comb += turned.eq(self._rotate(self.beat.payload.data, turn))

        need, take, give, last = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            need.eq(ins != 0),
            last.eq(outs == 1),
            self.out.valid.eq(active & ~prime & (~need | self.beat.valid)),
            give.eq(self.out.valid & self.out.ready),
            take.eq(self.beat.valid & self.beat.ready),
            self.beat.ready.eq(active & need & (prime | self.out.ready)),
            self.chunk.ready.eq(~active | (give & last)),
            self.error_valid.eq(take & self.beat.payload.error),
            self.error_row.eq(job.row),
        ]
        low = [turn > i for i in range(BEAT_BYTES)]  # bytes that come from the beat before
        end = Signal(OFFSET_BITS)
        m.d.comb += end.eq(job.dst + job.bytes[:OFFSET_BITS] - 1)
        strobe = Cat([(~first | (job.dst <= i)) & (~last | (end >= i)) for i in range(BEAT_BYTES)])
        # What is offered must not depend on whether it is taken, so not on `take`.
        silent = self.mute | poisoned | (need & self.beat.valid & self.beat.payload.error)
        m.d.comb += [
            self.out.payload.data.eq(
                Cat(
                    [
                        Mux(low[i], previous[8 * i : 8 * i + 8], turned[8 * i : 8 * i + 8])
                        for i in range(BEAT_BYTES)
                    ]
                )
            ),
            self.out.payload.strb.eq(Mux(silent, 0, strobe)),
        ]
        with m.If(take):
            m.d.sync += [previous.eq(turned), ins.eq(ins - 1), prime.eq(0)]
        with m.If(self.error_valid):
            m.d.sync += poisoned.eq(1)
        with m.If(give):
            m.d.sync += [first.eq(0), outs.eq(outs - 1)]
            with m.If(last):
                m.d.sync += active.eq(0)
        with m.If(self.chunk.valid & self.chunk.ready):
            m.d.sync += [
                job.eq(chunk),
                active.eq(1),
                first.eq(1),
                poisoned.eq(0),
                turn.eq(chunk.dst - chunk.src),
                prime.eq(chunk.dst < chunk.src),
                ins.eq(beats(chunk.src, chunk.bytes)),
                outs.eq(beats(chunk.dst, chunk.bytes)),
            ]
        return m

    @staticmethod
    def _rotate(value: Value, amount: Value) -> Value:
        """Bytes moved up by `amount`, around."""
        for bit in range(OFFSET_BITS):
            by = 8 << bit
            value = Mux(amount[bit], Cat(value[-by:], value[:-by]), value)
        return value
