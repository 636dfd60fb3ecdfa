"""Front of the vector engine: takes instructions one by one, measures their patterns, checks their fields."""

from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from models.config import ChipConfig
from models.elements import (
    ALU_OPS,
    COPIES,
    DIVIDES,
    MOST_REDUCED,
    NO_OP0,
    NO_OP1,
    NO_SOURCE,
    PAIRS,
    READABLE,
    REDUCES,
    VECTOR_OPS,
    WRITABLE,
)
from models.formats import FLOATS, INTS, MX_PACK, MX_ROWS, PACKED, DType, MxRule
from models.fp import COMPARISONS, IDENTITY, PARTIALS
from models.isa import AP_DIMS, AluOp, Flag, Opcode, Space, StateOp
from models.moments import MOMENTS, MOST, TRIPLE
from models.moves import MOVES, STAYS
from models.ranking import EIGHT, GIVEN, INDEXES, LISTED, MOST_RANKED, RANKS
from models.xorwow import ALL, FRACTION, STATE_TYPES, WORDS
from rtl.access.check import one_of, pattern_ok
from rtl.access.size import LATENCY, PatternSize, SizeConfig
from rtl.interfaces import IssueLayout
from rtl.tiles import TileLibrary
from rtl.vector.groups import GROUP_BITS

SIZE = SizeConfig(bits=64)
"""Sizes are compared exactly: the largest product of four counts has 64 bits."""


class CheckedLayout(data.StructLayout):
    """An instruction that may run. `legal` low: ILLEGAL_FIELD, nothing else means anything.

    copy: same type on both sides. pair: src1 is read, element by element. second: for op1, not for op0. scalar: src1 is read once.
    choose: src1 says which elements are written. reduce: groups of `group` elements give one result each. scan: each result goes into the next. fill: no source, `count` elements.
    exponential, divide: what is done beside the ALUs. select, span: which elements are taken, by src1, by their number. accumulate: results go into the
    accumulators. recall: these are the source. scale, pack: MX_SCALE and MX_CAST, four elements of src0 for one of dst. rank, given, listed: see
    rtl.vector.top8. shuffle, transpose: see
    rtl.vector.shuffle. moments, triples: see rtl.vector.moments. random: the elements are random words, or states; draws: each takes a word;
    drop: src0 or a zero; load, seed: of the states.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "issue": IssueLayout(),
                "legal": unsigned(1),
                "copy": unsigned(1),
                "pair": unsigned(1),
                "second": unsigned(1),
                "scalar": unsigned(1),
                "reduce": unsigned(1),
                "fill": unsigned(1),
                "choose": unsigned(1),
                "scan": unsigned(1),
                "exponential": unsigned(1),
                "divide": unsigned(1),
                "select": unsigned(1),
                "span": unsigned(1),
                "accumulate": unsigned(1),
                "recall": unsigned(1),
                "scale": unsigned(1),
                "pack": unsigned(1),
                "rank": unsigned(1),
                "given": unsigned(1),
                "listed": unsigned(1),
                "shuffle": unsigned(1),
                "transpose": unsigned(1),
                "moments": unsigned(1),
                "triples": unsigned(1),
                "random": unsigned(1),
                "draws": unsigned(1),
                "drop": unsigned(1),
                "load": unsigned(1),
                "seed": unsigned(1),
                "group": unsigned(GROUP_BITS),
                "count": unsigned(SIZE.bits),
            }
        )


def _bit(flag: Flag) -> int:
    return flag.bit_length() - 1


class VectorFront(wiring.Component):
    """Ports: issue (instructions), checked (one item for each), clear, idle. LATENCY + 2 cycles an instruction.

    checked.valid comes LATENCY + 1 cycles after an instruction was accepted; the next is accepted after that item was taken. clear: for as
    long as it is high nothing is accepted or comes out, and what is under way is forgotten.
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "issue": In(stream.Signature(IssueLayout())),
                "checked": Out(stream.Signature(CheckedLayout())),
                "clear": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        item = Signal(CheckedLayout())
        instr = item.issue.instr
        wait = Signal(range(LATENCY + 1))
        sizes = {}
        given = self.issue.payload.instr
        reduces = given.opcode == Opcode.TENSOR_REDUCE
        inner, outer = [], []
        for n in range(AP_DIMS):
            count, is_inner = getattr(given.src0, f"count{n}"), given.axes > AP_DIMS - 1 - n
            inner.append(Mux(is_inner, count, 1))
            outer.append(Mux(reduces & is_inner, 1, count))
        # A reduction has no src1: that operand's unit measures its groups.
        counts = {
            "dst": [getattr(given.dst, f"count{n}") for n in range(AP_DIMS)],
            "src0": outer,
            "src1": [Mux(reduces, i, getattr(given.src1, f"count{n}")) for n, i in enumerate(inner)],
        }
        for name, four in counts.items():
            unit = self.tiles.place(PatternSize, SIZE)
            m.submodules[f"size_{name}"] = unit
            m.d.comb += [
                unit.start.eq(self.issue.valid & self.issue.ready),
                *(unit.counts[n].eq(value) for n, value in enumerate(four)),
            ]
            sizes[name] = unit.size
        fills, drop = instr.opcode == Opcode.RANDOM, instr.opcode == Opcode.DROPOUT
        state = instr.opcode == Opcode.RANDOM_STATE
        load = state & (instr.op0 == StateOp.LOAD)
        moves = (one_of(instr.opcode, COPIES) | drop) & (instr.dst.dtype == instr.src0.dtype)
        copy = moves | state | (fills & one_of(instr.dst.dtype, INTS))
        scan = instr.opcode == Opcode.TENSOR_TENSOR_SCAN
        last = (instr.opcode == Opcode.SCALAR_TENSOR_TENSOR) | scan
        pair = one_of(instr.opcode, (*PAIRS, Opcode.MX_CAST))
        scalar_bit = _bit(Flag.SRC1_SCALAR)
        span, recall = instr.opcode == Opcode.RANGE_SELECT, instr.opcode == Opcode.READ_ACCUMULATOR
        moments = one_of(instr.opcode, MOMENTS)
        scalar = (instr.flags[scalar_bit] & ~pair) | span
        legal = self._legal(m, instr, sizes, copy, pair, scalar)
        m.d.comb += self.checked.payload.eq(item)
        with m.FSM() as fsm:
            m.d.comb += [
                self.idle.eq(fsm.ongoing("IDLE")),
                self.issue.ready.eq(self.idle & ~self.clear),
                self.checked.valid.eq(fsm.ongoing("CHECKED") & ~self.clear),
            ]
            with m.State("IDLE"):
                with m.If(self.issue.valid & ~self.clear):
                    m.d.sync += [item.issue.eq(self.issue.payload), wait.eq(LATENCY - 1)]
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(self.clear):
                    m.next = "IDLE"
                with m.Elif(wait == 0):
                    m.d.sync += [
                        item.legal.eq(legal),
                        item.copy.eq(copy),
                        item.pair.eq(pair),
                        item.second.eq(last),
                        item.scan.eq(scan),
                        item.scalar.eq(scalar),
                        item.reduce.eq(one_of(instr.opcode, REDUCES)),
                        item.choose.eq(instr.opcode == Opcode.TENSOR_COPY_PREDICATED),
                        item.fill.eq(one_of(instr.opcode, NO_SOURCE) | (state & ~load)),
                        item.exponential.eq(instr.opcode == Opcode.EXPONENTIAL),
                        item.divide.eq(one_of(instr.opcode, DIVIDES) & (instr.op0 == AluOp.DIVIDE)),
                        item.select.eq(instr.opcode == Opcode.SELECT),
                        item.span.eq(span),
                        item.accumulate.eq(instr.flags[_bit(Flag.ACCUMULATE)]),
                        item.recall.eq(recall),
                        item.scale.eq(instr.opcode == Opcode.MX_SCALE),
                        item.pack.eq(instr.opcode == Opcode.MX_CAST),
                        item.rank.eq(one_of(instr.opcode, RANKS)),
                        item.given.eq(one_of(instr.opcode, GIVEN)),
                        item.listed.eq(one_of(instr.opcode, LISTED)),
                        item.shuffle.eq(instr.opcode == Opcode.STREAM_SHUFFLE),
                        item.transpose.eq(instr.opcode == Opcode.LANE_TRANSPOSE),
                        item.moments.eq(moments),
                        item.triples.eq(instr.opcode == Opcode.BN_AGGR),
                        item.group.eq(Mux(recall, PARTIALS, Mux(moments, sizes["src0"], sizes["src1"]))),
                        item.random.eq(fills | (state & ~load)),
                        item.draws.eq(fills | drop),
                        item.drop.eq(drop),
                        item.load.eq(load),
                        item.seed.eq(state & (instr.op0 == StateOp.SEED)),
                        item.count.eq(Mux(recall, PARTIALS, Mux(load, WORDS, sizes["dst"]))),
                    ]
                    m.next = "CHECKED"
            with m.State("CHECKED"):
                with m.If(self.checked.ready | self.clear):
                    m.next = "IDLE"
        return m

    def _pattern(self, m: Module, name: str, ap: Any, parts: Value, scale: Value | int = 0) -> Value:
        """The rules of any pattern; with `scale` those of MX scales, which lie at an offset in their quadrants."""
        p = self.config.partitions
        plain = pattern_ok(m, name, ap, parts, partitions=p, dtypes=DType)
        offset = (ap.part[:2] == 0) & (ap.part[4:] == 0) if p >= 32 else ap.part == 0
        return Mux(scale, offset & (ap.dtype == DType.E8M0) & (ap.space == Space.SBUF), plain)

    def _moves(self, instr: Any, size: Value) -> Value:
        """The rules of what goes from partition to partition: whole quadrants, whole blocks, entries of a mask."""
        q = self.config.quadrant
        entries = [instr.mask[8 * n : 8 * n + 8] for n in range(q)]
        named = Cat((entry == STAYS) | (entry < q) for entry in entries).all()
        return (
            (~one_of(instr.opcode, MOVES) | ((instr.parts & (q - 1)) == 0))
            & ((instr.opcode != Opcode.STREAM_SHUFFLE) | named)
            & ((instr.opcode != Opcode.LANE_TRANSPOSE) | ((size & (q - 1)) == 0))
        )

    def _legal(
        self, m: Module, instr: Any, sizes: dict[str, Value], copy: Value, pair: Value, scalar: Value
    ) -> Signal:
        """The field rules of models.machine for this engine's own opcodes."""
        dst, src0, src1, parts = instr.dst, instr.src0, instr.src1, instr.parts
        reduce, fill = instr.opcode == Opcode.TENSOR_REDUCE, one_of(instr.opcode, NO_SOURCE)
        span, recall = instr.opcode == Opcode.RANGE_SELECT, instr.opcode == Opcode.READ_ACCUMULATOR
        # All eight bits: the complement of a narrower constant would let the upper ones pass.
        allowed = Signal(8)
        with m.Switch(instr.opcode):
            for opcode, flags in VECTOR_OPS.items():
                with m.Case(opcode.value):
                    m.d.comb += allowed.eq(flags)
        state = instr.opcode == Opcode.RANDOM_STATE
        rank, given = one_of(instr.opcode, RANKS), one_of(instr.opcode, GIVEN)
        listed, indexes = one_of(instr.opcode, LISTED), instr.opcode == Opcode.FIND_INDEX8
        second = pair | scalar | given
        sums, fresh, reverse1 = (instr.flags[_bit(f)] for f in (Flag.ACCUMULATE, Flag.FRESH, Flag.REVERSE1))
        op1_reduces = one_of(instr.op1, IDENTITY) & ~reverse1
        op1_free = ~one_of(instr.opcode, (*NO_OP1, Opcode.MX_CAST)) | (instr.op1 == 0)
        compares = one_of(instr.op0, COMPARISONS) & one_of(instr.op1, COMPARISONS)
        to_scale, to_pack = instr.opcode == Opcode.MX_SCALE, instr.opcode == Opcode.MX_CAST
        mx = to_scale | to_pack
        plain = (
            (one_of(instr.op0, ALU_OPS) | ((instr.op0 == AluOp.DIVIDE) & one_of(instr.opcode, DIVIDES)))
            & one_of(instr.op1, ALU_OPS)
            & ~(one_of(instr.opcode, (*NO_OP0, Opcode.MX_CAST)) & (instr.op0 != 0))
            & ~(one_of(instr.opcode, REDUCES) & ~one_of(instr.op0, IDENTITY))
            & Mux(span, compares, Mux(sums, op1_reduces, op1_free))
        )
        scaling = one_of(instr.op0, PACKED) & (instr.op1 <= max(MxRule))
        fields = (
            (parts >= 1)
            & (parts <= self.config.partitions)
            & ((instr.flags & ~allowed) == 0)
            & Mux(to_scale, scaling, Mux(state, (instr.op0 <= max(StateOp)) & (instr.op1 == 0), plain))
            & self._random_fields(instr)
            & ~(mx & (parts[: MX_ROWS.bit_length() - 1] != 0))
            & (sums | ~fresh)
            & ~(reduce & ~((instr.axes >= 1) & (instr.axes <= AP_DIMS)))
        )
        quadrant = self.config.quadrant - 1
        floats = one_of(src0.dtype, FLOATS)
        element = (
            copy | (one_of(dst.dtype, sorted(WRITABLE)) & (fill | one_of(src0.dtype, sorted(READABLE))))
        ) & (~second | (one_of(src1.dtype, sorted(READABLE)) & (~span | (src1.dtype == DType.FP32))))
        element &= ~indexes | one_of(dst.dtype, INDEXES)
        element &= (instr.opcode != Opcode.DROPOUT) | one_of(dst.dtype, sorted(WRITABLE))
        types = Mux(
            to_scale,
            floats & ((src0.part & quadrant) == 0),
            Mux(to_pack, floats & one_of(dst.dtype, PACKED) & ((dst.part & quadrant) == 0), element),
        )
        moments, triples = one_of(instr.opcode, MOMENTS), instr.opcode == Opcode.BN_AGGR
        due = Mux(
            listed,
            EIGHT,
            Mux(moments, Mux(triples, MOMENTS[Opcode.BN_AGGR], MOMENTS[Opcode.BN_STATS]), sizes["src0"]),
        )
        shape = (
            (~recall | (sizes["dst"] == 1))
            & (fill | (Mux(mx, sizes["dst"] << (MX_PACK.bit_length() - 1), sizes["dst"]) == due))
            & (~second | (sizes["src1"] == Mux(span, 2, Mux(scalar, 1, Mux(given, EIGHT, sizes["dst"])))))
            & (~moments | self._moments(m, sizes["src0"], triples))
            & (~rank | ((sizes["src0"] >= EIGHT) & (sizes["src0"] <= MOST_RANKED)))
            & (~reduce | ((sizes["src1"] != 0) & (sizes["src1"] <= MOST_REDUCED)))
        )
        legal = Signal()
        m.d.comb += legal.eq(
            fields
            & Mux(state, self._state(instr, sizes), types & shape & self._moves(instr, sizes["dst"]))
            & self._pattern(m, "dst", dst, parts, to_scale)
            & (fill | self._pattern(m, "src0", src0, parts))
            & (~second | self._pattern(m, "src1", src1, parts, to_pack))
        )
        return legal

    def _random_fields(self, instr: Any) -> Value:
        """What RANDOM and DROPOUT ask of their fields."""
        whole = one_of(instr.dst.dtype, INTS)
        bare = (instr.op0 == 0) & (instr.op1 == 0) & (instr.axes == 0)
        return ((instr.opcode != Opcode.RANDOM) | Mux(whole, bare, instr.axes <= FRACTION)) & (
            (instr.opcode != Opcode.DROPOUT) | (instr.imm0 <= ALL)
        )

    def _state(self, instr: Any, sizes: dict[str, Value]) -> Value:
        """Sizes and types of a RANDOM_STATE's patterns, of which it uses one or none."""
        ok: Value = C(1, 1)
        for name, op in (("dst", StateOp.STORE), ("src0", StateOp.LOAD)):
            used = instr.op0 == op
            words = (sizes[name] == WORDS) & one_of(getattr(instr, name).dtype, STATE_TYPES)
            ok &= Mux(used, words, sizes[name] == 0)
        return ok

    def _moments(self, m: Module, size: Value, triples: Value) -> Value:
        """Whether BN_STATS and BN_AGGR go through that many elements."""
        most = max(MOST.values())
        # modulo 3 a number is the sum of its digits to the base of 4, which is below 32 here; so is that
        low = size[: most.bit_length() + most.bit_length() % 2]
        digits = Signal(5)
        m.d.comb += digits.eq(sum((low[n : n + 2] for n in range(0, len(low), 2)), start=C(0, 1)))
        whole = one_of(digits, range(0, 32, TRIPLE))
        return (size != 0) & Mux(
            triples, (size <= MOST[Opcode.BN_AGGR]) & whole, size <= MOST[Opcode.BN_STATS]
        )
