"""One processing element: products with any partial sum, swap, load countdown, pass-through."""

from collections import deque

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from models.formats import DOUBLE_ROWS, FLOATS, FP32_PASSES, MAC_CLASSES, MAC_DTYPES, PACKED, DType
from rtl.pe.decode import DecoderConfig, OperandDecoder
from rtl.pe.operand import DOUBLE_CODES, FP32_CODES, WORD, PeConfig
from rtl.pe.pe import MOVE_SETTLE, PRODUCT_LATENCY, STEP_LATENCY, ProcessingElement
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate
from tb.models import exact

NAN = 0x7FC00000


class PeWithDecoders(wiring.Component):
    """A PE between operand decoders."""

    def __init__(self, pe):
        self.pe = pe
        super().__init__(
            {
                **{
                    f"{side}_{n}": In(w)
                    for side in ("m", "s")
                    for n, w in (("word", 32), ("scale", 8), ("dtype", 4))
                },
                **{"active": In(1), "swap": In(1), "load": In(1), "left": In(7)},
                **{
                    "psum_in": In(32),
                    "psum_out": Out(32),
                    "left_out": Out(7),
                    "moved": Out(1),
                    "loaded": Out(1),
                },
            }
        )

    def elaborate(self, platform):
        m = Module()
        tiles = TileLibrary(inline=True)
        m.submodules.pe = pe = ProcessingElement(self.pe, tiles=tiles)
        for side, active in (("m", self.active), ("s", self.load)):
            decode = OperandDecoder(DecoderConfig(pe=self.pe, stationary=side == "s"), tiles=tiles)
            m.submodules[f"decode_{side}"] = decode
            m.d.comb += [
                *(getattr(decode, n).eq(getattr(self, f"{side}_{n}")) for n in ("word", "scale", "dtype")),
                decode.active.eq(active),
                decode.swap.eq(self.swap if side == "m" else 0),
                (pe.moving if side == "m" else pe.load).eq(decode.operand),
            ]
        m.d.comb += [
            pe.left.eq(self.left),
            pe.psum_in.eq(self.psum_in),
            self.psum_out.eq(pe.psum_out),
            self.left_out.eq(pe.left_out),
            self.moved.eq(pe.moving_out.active),
            self.loaded.eq(pe.load_out.active),
        ]
        return m


def _lanes(dtype, double):
    return 4 if dtype in PACKED else 2 if double else 1


def _word(random, dtype, double):
    fmt = PACKED.get(dtype) or FLOATS[dtype]
    lanes = _lanes(dtype, double)
    word = 0
    for i in range(lanes):
        style = random.random()
        code = random.getrandbits(fmt.width)
        if style < 0.3:  # exponents near the middle, so that products meet the partial sum
            keep = (1 << fmt.man_bits) - 1 | 1 << fmt.width - 1
            code = code & keep | (fmt.bias << fmt.man_bits)
        elif style < 0.4:
            code = random.choice([0, 1 << fmt.width - 1, 1, fmt.max_code])
        word |= code << fmt.width * i
    return word


def _numbers(dtype, word, double):
    """What a word's elements stand for."""
    fmt = PACKED.get(dtype) or FLOATS[dtype]
    lanes = _lanes(dtype, double)
    return [
        exact.decode(exact.SPECS[fmt.name], word >> fmt.width * i & (1 << fmt.width) - 1)
        for i in range(lanes)
    ]


def _exact(psum, weight, moving, double):
    """psum and one step's products in rationals."""
    scales = [weight[2], moving[2]] if moving[0] in PACKED else []
    pairs = list(zip(_numbers(*weight[:2], double), _numbers(*moving[:2], double), strict=True))
    return exact.step(psum, pairs, scales)


def _psum(random):
    style = random.random()
    if style < 0.3:
        return random.choice(
            [0, 0x80000000, 1, 0x80000001, 0x7F800000, 0xFF800000, NAN, 0x7F7FFFFF, 0x00800000]
        )
    bits = random.getrandbits(32)
    if style < 0.8:
        bits = bits & 0x807FFFFF | random.randrange(110, 145) << 23
    return NAN if bits & 0x7FFFFFFF > 0x7F800000 else bits


@pytest.mark.parametrize("formats", [MAC_DTYPES, (DType.E2M1X4,), (DType.BF16,)], ids=str)
def test_words(formats):
    """A weight's word or the partial sum, bit for bit, between products; the swap as soon after as it may be."""
    dut = PeWithDecoders(PeConfig(formats=formats))
    random = rng()

    async def bench(ctx):
        ctx.set(dut.s_dtype, WORD)
        expected: deque[int | None] = deque()
        pending: deque[tuple[bool, int] | None] = deque()
        word = shadow = settle = 0
        for n in range(600):
            load = n == 0 or random.random() < 0.3
            swap = n == 1 or (n > 1 and settle == 0 and random.random() < 0.5)
            move = n > 0 and random.random() < 0.6
            gives, active = random.random() < 0.5, random.random() < 0.8
            if swap:
                word = shadow
            if load:
                shadow = random.getrandbits(32)
                ctx.set(dut.s_word, shadow)
            settle = MOVE_SETTLE if move else max(settle - 1, 0)
            ctx.set(dut.m_dtype, WORD if move else formats[0].value)
            ctx.set(dut.m_word, random.getrandbits(32) & ~1 | gives)
            for name, value in (("load", load), ("swap", swap), ("active", active), ("left", 0)):
                ctx.set(getattr(dut, name), value)
            pending.append((gives and active, word) if move else None)
            psum = random.choice([0x7F800001, 0x80000000, 1, random.getrandbits(32)])
            ctx.set(dut.psum_in, psum)
            if n >= PRODUCT_LATENCY:
                step = pending.popleft()
                expected.append(None if step is None else step[1] if step[0] else psum)
            if n >= PRODUCT_LATENCY + STEP_LATENCY:
                want = expected.popleft()
                assert want is None or ctx.get(dut.psum_out) == want
            await ctx.tick()

    simulate(dut, bench)


ALL = PeConfig(formats=MAC_DTYPES, double=DOUBLE_ROWS)
KINDS = [(kinds, False, ALL) for kinds in MAC_CLASSES]
# two products also where nothing else would make the PE's sum or its multipliers wide enough
KINDS += [
    (frozenset(DOUBLE_ROWS), True, pe) for pe in (ALL, PeConfig(formats=DOUBLE_ROWS, double=DOUBLE_ROWS))
]
KINDS += [
    (frozenset({f}), True, PeConfig(formats=(f, *more), double=(f,)))
    for f in DOUBLE_ROWS
    for more in ((), (DType.BF16,))
]


def _name(part):
    if isinstance(part, PeConfig):
        return f"of-{len(part.formats)}-formats"
    return "-".join(sorted(k.name for k in part)) if isinstance(part, frozenset) else "double" * part


@pytest.mark.parametrize(("kinds", "double", "pe"), KINDS, ids=_name)
def test_steps_against_rationals(kinds, double, pe):
    dut = PeWithDecoders(pe)
    random = rng()

    async def bench(ctx):
        weight = shadow = None
        first = FP32_PASSES if DType.FP32 in kinds else 1
        turn = -1
        expected: deque[int] = deque()
        pending: deque[tuple[bool, tuple, tuple]] = deque()
        for n in range(700):
            load = n == 0 or random.random() < 0.2
            m_dtype = random.choice(sorted(kinds))
            passes = FP32_PASSES if m_dtype == DType.FP32 else 1
            turn = (turn + 1) % passes
            swap = turn == 0 and (n == first or random.random() < 0.2)
            if turn == 0:
                active = random.random() < 0.9
                moving = (
                    m_dtype,
                    _word(random, m_dtype, double),
                    random.choice([0, 120, 127, 130, 254, 255]),
                )
            if swap:
                weight = shadow
            s_dtype = random.choice(sorted(kinds))
            stationary = (s_dtype, _word(random, s_dtype, double), random.choice([0, 120, 127, 130, 254]))
            left = random.choice([0, 0, 3]) if n else 0
            for side, (dtype, word, scale) in (("m", moving), ("s", stationary)):
                wide = side == "m" and dtype == DType.FP32
                code = DOUBLE_CODES[dtype] if double else dtype.value
                ctx.set(getattr(dut, f"{side}_dtype"), FP32_CODES[turn] if wide else code)
                ctx.set(getattr(dut, f"{side}_word"), word)
                ctx.set(getattr(dut, f"{side}_scale"), scale)
            ctx.set(dut.active, active)
            ctx.set(dut.swap, swap)
            ctx.set(dut.load, load)
            ctx.set(dut.left, left)
            if load and left == 0:
                shadow = stationary
            pending.append((active, weight, moving) if weight and turn == passes - 1 else None)
            psum = _psum(random)
            ctx.set(dut.psum_in, psum)
            if n >= PRODUCT_LATENCY:
                step = pending.popleft()
                if step is None:
                    expected.append(None)
                elif step[0]:
                    expected.append(_exact(psum, step[1], step[2], double))
                else:
                    expected.append(psum)
            if n >= PRODUCT_LATENCY + STEP_LATENCY:
                want = expected.popleft()
                if want is not None:
                    assert ctx.get(dut.psum_out) == want, f"{ctx.get(dut.psum_out):08x}, not {want:08x}"
            await ctx.tick()
            assert ctx.get(dut.moved) == active
            assert ctx.get(dut.loaded) == load
            assert ctx.get(dut.left_out) == (left - 1) % 128

    simulate(dut, bench)
