"""Tensor engine: LOAD_STATIONARY, MATMUL and TRANSPOSE. Loads run behind matmuls; columns stream one a cycle; PSUM hazards are kept off at issue."""

from typing import Any

from amaranth import Array, C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out, connect, flipped

from models.config import ChipConfig
from models.formats import FP32_PASSES, DType
from models.isa import Engine, ErrorCode, Flag
from rtl.access.pattern import PatternWalker, WalkerConfig
from rtl.access.reader import LaneReader, LaneReaderConfig
from rtl.array.array import TensorArray, array_latency
from rtl.array.row import ArrayConfig
from rtl.interfaces import (
    EngineSignature,
    LaneReadSignature,
    PsumAccumulateSignature,
    UpdateLayout,
    mac_code_bits,
    psum_addr_bits,
    sbuf_addr_bits,
)
from rtl.lib.queue import Queue, QueueConfig
from rtl.memory.psum import PSUM_HAZARD
from rtl.pe.operand import FP32_CODES, WORD, WORD_BITS, PeConfig
from rtl.pe.pe import MOVE_SETTLE
from rtl.tensor.collect import ResultCollector
from rtl.tensor.front import SIZE_BITS, TensorFront
from rtl.tensor.operand import OperandColumn
from rtl.tiles import TileLibrary

MATMULS = 2
"""Matmuls whose operands are being read: the next one's first columns are there when the last one's end."""
PENDING = 16
"""Instructions between their start and their update."""
READERS = ("moving", "moving_scale", "stationary", "stationary_scale")


class _MatmulLayout(data.StructLayout):
    """A matmul that waits for its columns or streams them."""

    def __init__(self, partitions: int) -> None:
        super().__init__(
            {
                "rows": unsigned(partitions.bit_length()),
                "lanes": unsigned(partitions.bit_length()),
                "quarter": unsigned(2),
                "accumulate": unsigned(1),
                "swap": unsigned(1),
                "both": unsigned(1),
                "double": unsigned(1),
                "offset": unsigned(2),
                "size": unsigned(2),
                "dtype": unsigned(mac_code_bits()),
            }
        )


class _PendingLayout(data.StructLayout):
    """An instruction that has started: when it is done, and the update it gives then."""

    def __init__(self) -> None:
        super().__init__({"load": unsigned(1), "columns": unsigned(SIZE_BITS), "update": UpdateLayout()})


class TensorEngine(wiring.Component):
    """Ports: ctl (EngineSignature), moving, moving_scale, stationary, stationary_scale (SBUF lane reads), accumulate (PSUM), columns
    (a pulse for each moving column that enters the array).

    Instructions start in order. A load waits with its first weight until the matmul before it has taken its own weights; reading goes
    on behind that. A column is issued when its operands are there, no column with the same PSUM address that it adds to was issued less
    than PSUM_HAZARD cycles ago, and PSUM has not asked for a free slot; one of FP32 goes on for FP32_PASSES cycles once it has begun. A TRANSPOSE loads its words as weights and streams the columns
    of an identity matrix, which it makes itself; its elements are written into the bytes of PSUM words that they belong to. An update comes when the weights are in the array, or when
    the last column is readable in PSUM.

    Errors: ILLEGAL_FIELD once everything before has been done; SBUF_RANGE or PSUM_RANGE at the first bad element, by when some of the
    instruction's columns may have been written. Columns in the array are still written after an error and after `clear`.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        sbuf = LaneReadSignature(sbuf_addr_bits(config), config.partitions)
        ports: dict[str, Any] = {name: Out(sbuf) for name in READERS}
        ports |= {
            "ctl": Out(EngineSignature()),
            "accumulate": Out(PsumAccumulateSignature(psum_addr_bits(config), config.partitions)),
            "columns": Out(1),
        }
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cfg, p = self.config, self.config.partitions
        m.submodules.front = self.front = self.tiles.place(TensorFront, cfg)
        reader_config = LaneReaderConfig(
            partitions=p, sbuf_addr_bits=sbuf_addr_bits(cfg), psum_addr_bits=None
        )
        self.readers: dict[str, Any] = {}
        for name in READERS:
            m.submodules[name] = reader = self.tiles.place(LaneReader, reader_config)
            self.readers[name] = reader
            connect(m, reader.sbuf, flipped(getattr(self, name)))
        m.submodules.walker = self.walker = self.tiles.place(
            PatternWalker, WalkerConfig(sbuf_bytes=None, psum_bytes=cfg.psum.bytes_per_partition)
        )
        pe = PeConfig(formats=cfg.tensor.formats, double=cfg.tensor.double_row)
        array_config = ArrayConfig(partitions=p, pe=pe)
        m.submodules.array = self.array = self.tiles.place(TensorArray, array_config)
        self.matmuls = self._queue(m, "matmuls", _MatmulLayout(p).size, MATMULS)
        m.submodules.collector = self.collector = self.tiles.place(ResultCollector, cfg)
        m.d.comb += [
            self.collector.result_valid.eq(self.array.result_valid),
            self.collector.result.eq(self.array.result),
            self.accumulate.valid.eq(self.collector.valid),
            self.accumulate.column.eq(self.collector.column),
        ]
        self.pending = self._queue(m, "pending", _PendingLayout().size, PENDING)

        self.flush, self.dead, self.quiet = Signal(), Signal(), Signal()
        self.full, self.swaps = Signal(), Signal(range(MATMULS + 2))
        self.load_busy, self.load_wait = Signal(), Signal(range(MATMULS + 2))
        self.load_both, self.load_double = Signal(), Signal()
        self.load_offset, self.load_size = Signal(2), Signal(2)
        self.load_dtype, self.load_index = Signal(mac_code_bits()), Signal(range(p))
        self.swapped, self.loaded = Signal(), Signal()
        self._dispatch(m)
        self._load(m)
        self._stream(m)
        self._complete(m)
        self._faults(m)
        return m

    def _queue(self, m: Module, name: str, width: int, depth: int) -> Any:
        m.submodules[name] = queue = self.tiles.place(Queue, QueueConfig(width=width, depth=depth))
        return queue

    # --- start -------------------------------------------------------------------------------------------------
    def _dispatch(self, m: Module) -> None:
        """Start a checked instruction's readers, all in one cycle."""
        p = self.config.partitions
        front, checked = self.front, self.front.checked.payload
        instr = checked.issue.instr
        connect(m, flipped(self.ctl.issue), front.issue)
        ready = {n: r.start.ready for n, r in self.readers.items()}
        # src1: scales or second rows
        both = checked.packed | checked.double
        can_load = ~self.load_busy & ready["stationary"] & (~both | ready["stationary_scale"])
        empty = checked.columns == 0
        can_read = checked.words | (ready["moving"] & (~both | ready["moving_scale"]))
        can_stream = empty | (self.matmuls.i.ready & self.walker.start.ready & can_read)
        go, load, matmul = Signal(), Signal(), Signal()
        m.d.comb += [
            go.eq(
                front.checked.valid
                & checked.legal
                & self.pending.i.ready
                & ~self.dead
                & ~self.flush
                & (~checked.load | can_load)
                & (~checked.stream | can_stream)
            ),
            load.eq(go & checked.load),
            matmul.eq(go & checked.stream & ~empty),
            front.checked.ready.eq(go),
        ]
        for name, start in (
            ("stationary", load),
            ("stationary_scale", load & both),
            ("moving", matmul & ~checked.words),
            ("moving_scale", matmul & both),
        ):
            reader = self.readers[name]
            scale = name.endswith("scale")
            m.d.comb += [
                reader.clear.eq(self.flush),
                reader.start.valid.eq(start),
                reader.start.payload.ap.eq(instr.src1 if scale else instr.src0),
                reader.start.payload.size.eq(0 if scale else checked.size),
            ]
            # scales lie with the quadrants of the operand; the offset in a quadrant is taken off later
            if scale:
                part = Mux(checked.packed, instr.src0.part, instr.src1.part)
                m.d.comb += reader.start.payload.ap.part.eq(part)
        step = (p // 4).bit_length() - 1
        entry = Signal(_MatmulLayout(p))
        pending = Signal(_PendingLayout())
        m.d.comb += [
            self.walker.clear.eq(self.flush),
            self.walker.start.valid.eq(matmul),
            self.walker.start.payload.ap.eq(instr.dst),
            self.walker.start.payload.size.eq(entry.size),
            entry.rows.eq(instr.parts),
            entry.lanes.eq(instr.cols),
            entry.quarter.eq(instr.dst.part[step : step + 2]),
            entry.accumulate.eq(instr.flags[Flag.ACCUMULATE.bit_length() - 1]),
            entry.swap.eq(checked.swap),
            entry.both.eq(both),
            entry.double.eq(checked.double),
            entry.offset.eq(instr.src1.part[2:4]),
            entry.size.eq(Mux(checked.words, checked.size, 2)),
            entry.dtype.eq(checked.code),
            self.matmuls.i.valid.eq(matmul),
            self.matmuls.i.payload.eq(entry),
            pending.load.eq(~checked.stream),
            pending.columns.eq(checked.columns),
            pending.update.mode.eq(instr.update_mode),
            pending.update.sem.eq(instr.update_sem),
            pending.update.value.eq(instr.update_value),
            self.pending.i.valid.eq(go),
            self.pending.i.payload.eq(pending),
        ]
        swaps_left = Signal.like(self.swaps)
        m.d.comb += swaps_left.eq(self.swaps - self.swapped)
        m.d.sync += self.swaps.eq(swaps_left + (matmul & checked.swap))
        with m.If(self.swapped):
            m.d.sync += self.full.eq(0)
            with m.If(self.load_wait != 0):
                m.d.sync += self.load_wait.eq(self.load_wait - 1)
        with m.If(self.loaded):
            m.d.sync += [self.full.eq(1), self.load_busy.eq(0)]
        with m.If(load):
            m.d.sync += [
                self.load_busy.eq(1),
                self.load_wait.eq(swaps_left),
                self.load_both.eq(both),
                self.load_double.eq(checked.double),
                self.load_offset.eq(instr.src1.part[2:4]),
                self.load_size.eq(checked.size),
                self.load_dtype.eq(checked.code),
                self.load_index.eq(0),
            ]
            # weights that no matmul is going to use are no longer whole
            with m.If(swaps_left == 0):
                m.d.sync += self.full.eq(0)
        self.index_load, self.index_matmul = Signal(32), Signal(32)
        with m.If(load):
            m.d.sync += self.index_load.eq(checked.issue.index)
        with m.If(matmul):
            m.d.sync += self.index_matmul.eq(checked.issue.index)
        with m.If(self.flush):
            m.d.sync += [self.full.eq(0), self.swaps.eq(0), self.load_busy.eq(0), self.load_wait.eq(0)]

    def _operand(self, m: Module, name: str, size: Value, offset: Value, double: Value) -> Any:
        """The column that the operand `name` has for the array."""
        m.submodules[f"{name}_column"] = unit = self.tiles.place(OperandColumn, self.config)
        m.d.comb += [
            unit.words.eq(self.readers[name].out.payload.data),
            unit.others.eq(self.readers[f"{name}_scale"].out.payload.data),
            unit.size.eq(size),
            unit.offset.eq(offset),
            unit.double.eq(double),
        ]
        return unit

    # --- weights -----------------------------------------------------------------------------------------------
    def _load(self, m: Module) -> None:
        words, others = self.readers["stationary"].out, self.readers["stationary_scale"].out
        operand = self._operand(m, "stationary", self.load_size, self.load_offset, self.load_double)
        push = Signal()
        m.d.comb += [
            push.eq(
                self.load_busy
                & (self.load_wait == 0)
                & words.valid
                & (~self.load_both | others.valid)
                & ~self.flush
            ),
            words.ready.eq(push),
            others.ready.eq(push & self.load_both),
            self.loaded.eq(push & words.payload.last),
            self.array.load_valid.eq(push),
            self.array.load.dtype.eq(self.load_dtype),
            self.array.load.index.eq(self.load_index),
            self.array.load.column.eq(operand.column),
        ]
        with m.If(push):
            m.d.sync += self.load_index.eq(self.load_index + 1)

    # --- columns -----------------------------------------------------------------------------------------------
    def _stream(self, m: Module) -> None:
        p = self.config.partitions
        words, others = self.readers["moving"].out, self.readers["moving_scale"].out
        target = self.walker.out
        entry = data.View(_MatmulLayout(p), self.matmuls.o.payload)
        operand = self._operand(m, "moving", C(2, 2), entry.offset, entry.double)
        first, can, hazard, hold = Signal(init=1), Signal(), Signal(), Signal()
        # A column enters the array in a cycle, or in FP32_PASSES, and is given up with the last one.
        enter, fire, swap = Signal(), Signal(), Signal()
        code, last, later = self._passes(m, entry.dtype, enter)
        m.d.comb += swap.eq(first & entry.swap & ~later)
        addr, place = target.payload.addr[2:], target.payload.addr[:2]
        # a TRANSPOSE's columns are those of an identity matrix
        words_move, turn = entry.dtype == WORD, Signal(range(p))
        moved = Signal(MOVE_SETTLE)
        # addresses of the last cycles, valid or not
        recent = []
        previous, was = addr, fire
        for age in range(1, PSUM_HAZARD):
            old, old_valid = Signal(len(addr), name=f"recent{age}"), Signal(name=f"recent_valid{age}")
            m.d.sync += [old.eq(previous), old_valid.eq(was)]
            recent.append(old_valid & (old == addr))
            previous, was = old, old_valid
        # A free slot takes the array's whole latency to get to PSUM: do not ask for a second one before that.
        patience = Signal(range(array_latency(p) + 8))
        m.d.comb += hold.eq(self.accumulate.pause & (patience == 0))
        with m.If(patience != 0):
            m.d.sync += patience.eq(patience - 1)
        with m.Elif(hold):
            m.d.sync += patience.eq(array_latency(p) + 7)
        m.d.comb += [
            hazard.eq(entry.accumulate & Cat(recent).any()),
            can.eq(
                self.matmuls.o.valid
                & (words_move | (words.valid & (~entry.both | others.valid)))
                & target.valid
                & self.collector.places.ready
                & (~(first & entry.swap) | (self.full & ~moved.any()))
                & ~hazard
                & ~hold
            ),
            enter.eq((can | later) & ~self.flush),
            fire.eq(enter & last),
            self.swapped.eq(enter & swap),
            words.ready.eq(fire & ~words_move),
            others.ready.eq(fire & entry.both),
            target.ready.eq(fire),
            self.matmuls.o.ready.eq(fire & target.payload.last),
            self.columns.eq(fire),
        ]
        m.d.sync += moved.eq(Cat(fire & words_move, moved[:-1]))
        with m.If(fire):
            m.d.sync += [first.eq(target.payload.last), turn.eq(Mux(target.payload.last, 0, turn + 1))]
        with m.If(self.flush):
            m.d.sync += [first.eq(1), turn.eq(0)]
        moving = self.array.moving
        m.d.comb += [
            self.array.moving_valid.eq(enter),
            moving.column.data.eq(
                Cat(Mux(words_move, C(0, WORD_BITS) | (turn == k), operand.column.data[k]) for k in range(p))
            ),
            moving.column.scale.eq(operand.column.scale),
            moving.rows.eq(entry.rows),
            moving.swap.eq(swap),
            moving.dtype.eq(code),
        ]
        result = self.collector.places.payload
        m.d.comb += [
            result.addr.eq(addr),
            result.accumulate.eq(entry.accumulate),
            result.mask.eq(Mux(entry.size[1], 0xF, Mux(entry.size[0], 3, 1) << place)),
            result.lanes.eq(entry.lanes),
            result.quarter.eq(entry.quarter),
            self.collector.places.valid.eq(fire),
        ]

    def _passes(self, m: Module, dtype: Value, enter: Value) -> tuple[Value, Value, Value]:
        """(the column's code in this cycle, whether this is its last pass, whether it has begun in an earlier cycle)."""
        if DType.FP32 not in self.config.tensor.formats:
            return dtype, C(1, 1), C(0, 1)
        turn, codes, several = Signal(range(FP32_PASSES)), Array(FP32_CODES), Signal()
        m.d.comb += several.eq(dtype == DType.FP32)
        with m.If(self.flush):
            m.d.sync += turn.eq(0)
        with m.Elif(enter & several):
            m.d.sync += turn.eq(turn + 1)
        return Mux(several, codes[turn], dtype), ~several | (turn == FP32_PASSES - 1), turn != 0

    # --- end ---------------------------------------------------------------------------------------------------
    def _complete(self, m: Module) -> None:
        """Updates in order."""
        head = data.View(_PendingLayout(), self.pending.o.payload)
        written, loads = Signal(SIZE_BITS + 4), Signal(range(PENDING + 2))
        done = Signal()
        m.d.comb += [
            self.ctl.update.valid.eq(
                self.pending.o.valid & Mux(head.load, loads != 0, written >= head.columns) & ~self.flush
            ),
            self.ctl.update.payload.eq(head.update),
            self.pending.o.ready.eq(self.ctl.update.valid & self.ctl.update.ready),
            done.eq(self.pending.o.valid & self.pending.o.ready),
        ]
        # Columns whose instruction was flushed still come out, before all others, and belong to nobody.
        bits = range(array_latency(self.config.partitions) + 32)
        flight, stale, counted = Signal(bits), Signal(bits), Signal()
        flight_next = Signal(bits)
        m.d.comb += [
            flight_next.eq(flight + self.columns - self.accumulate.done),
            counted.eq(self.accumulate.done & (stale == 0)),
            self.quiet.eq((flight == 0) & ~self.pending.o.valid & (self.pending.level == 0)),
        ]
        m.d.sync += [
            flight.eq(flight_next),
            written.eq(written + counted - Mux(done & ~head.load, head.columns, 0)),
            loads.eq(loads + (self.loaded & (self.load_dtype != WORD)) - (done & head.load)),
        ]
        with m.If((stale != 0) & self.accumulate.done):
            m.d.sync += stale.eq(stale - 1)
        with m.If(self.flush):
            m.d.sync += [written.eq(0), loads.eq(0), stale.eq(flight_next)]
        busy_readers = Cat([~r.idle for r in self.readers.values()]).any()
        m.d.comb += self.ctl.busy.eq(~self.front.idle | ~self.quiet | busy_readers)

    def _faults(self, m: Module) -> None:
        """The first fault: report it, forget what is under way, and stay dead until `clear`."""
        checked = self.front.checked
        illegal = checked.valid & ~checked.payload.legal & self.quiet
        faults: list[tuple[Value, ErrorCode, Value, Value]] = [
            (illegal, ErrorCode.ILLEGAL_FIELD, checked.payload.issue.index, C(0, 32)),
            (self.walker.error_valid, ErrorCode.PSUM_RANGE, self.index_matmul, self.walker.error_addr),
        ]
        for name in READERS:
            index = self.index_load if name.startswith("stationary") else self.index_matmul
            reader = self.readers[name]
            faults.append((reader.error_valid, ErrorCode.SBUF_RANGE, index, reader.error_addr))
        dead, flush_next = Signal(), Signal()
        valid, error = Signal(), self.ctl.error
        m.d.comb += [
            valid.eq(Cat([f[0] for f in faults]).any() & ~dead & ~self.ctl.clear),
            self.ctl.error_valid.eq(valid),
            error.engine.eq(Engine.TENSOR),
            self.flush.eq(flush_next | self.ctl.clear),
            self.dead.eq(dead),
            self.front.clear.eq(self.flush | dead),
        ]
        for n, (fault, code, index, addr) in enumerate(faults):
            with m.If(fault) if n == 0 else m.Elif(fault):
                m.d.comb += [error.code.eq(code), error.index.eq(index), error.addr.eq(addr)]
        for queue in (self.matmuls, self.pending):
            m.d.comb += queue.clear.eq(self.flush)
        m.d.sync += flush_next.eq(valid)
        with m.If(valid):
            m.d.sync += dead.eq(1)
        with m.If(self.ctl.clear):
            m.d.sync += dead.eq(0)
