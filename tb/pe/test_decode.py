"""Operand decoder: every code of every format has its exact value."""

from fractions import Fraction

import numpy as np
import pytest

from models import cast
from models.formats import DOUBLE_ROWS, FLOATS, MAC_DTYPES, PACKED, DType
from rtl.pe.decode import DecoderConfig, OperandDecoder
from rtl.pe.operand import DIGITS, DOUBLE_CODES, FP32_CODES, WORD, WORD_BITS, PeConfig
from rtl.tiles import TileLibrary
from tb.lib.simulate import rng, simulate


def _value(ctx, operand, pe, lane=None):
    """The number that an operand's digits make: of one lane, or of all, each in its mode."""
    lanes = [lane] if lane is not None else range(DIGITS)
    total = Fraction(0)
    for i in lanes:
        sign = -1 if ctx.get(operand.neg) >> i & 1 else 1
        total += sign * ctx.get(operand.sig[i]) * Fraction(2) ** (pe.max_shift - ctx.get(operand.right[i]))
    return total * Fraction(2) ** ctx.get(operand.exp)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("dtype", [d for d in MAC_DTYPES if d != DType.FP32])
def test_values(dtype, stationary):
    pe = PeConfig()
    dut = OperandDecoder(DecoderConfig(pe=pe, stationary=stationary), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        ctx.set(dut.dtype, dtype.value)
        fmt = PACKED.get(dtype) or FLOATS[dtype]
        codes = (
            list(range(1 << fmt.width)) if fmt.width <= 8 else [random.getrandbits(16) for _ in range(1500)]
        )
        if fmt.width == 16:
            codes += [0, 0x8000, 1, 0x7F80, 0xFF80, 0x7FC0, 0x7C00, 0xFC00, 0x7E00, fmt.max_code]
        for code in codes:
            scale = random.choice([0, 1, 127, 254, 255, random.randrange(256)])
            words = [random.randrange(1 << fmt.width) for _ in range(DIGITS)]
            lane = random.randrange(DIGITS)
            words[lane] = code
            raw = sum(w << fmt.width * i for i, w in enumerate(words)) if dtype in PACKED else code
            ctx.set(dut.word, raw)
            ctx.set(dut.scale, scale)
            ctx.set(dut.active, random.randrange(2))
            await ctx.delay(1e-9)
            values = cast.decode_float(
                fmt, np.array(words if dtype in PACKED else [code], dtype=np.uint32)
            ).astype(float)
            nan = bool(np.isnan(values).any()) or (dtype in PACKED and scale == 255)
            assert ctx.get(dut.operand.nan) == nan
            value = values[lane] if dtype in PACKED else values[0]
            bit = lane if dtype in PACKED else 0
            assert (ctx.get(dut.operand.inf) >> bit & 1) == np.isinf(value)
            assert (ctx.get(dut.operand.zero) >> bit & 1) == (value == 0)
            if dtype not in PACKED:
                assert ctx.get(dut.operand.zero) >> 1 == 0
            if nan or np.isinf(value):
                continue
            if dtype in PACKED:
                want = Fraction(value) * Fraction(2) ** (scale - 127)
                assert _value(ctx, dut.operand, pe, lane) == want
            else:
                # digits 0 and 3 are the low and the high one, in either arrangement; the pair in the middle tells them apart
                low, high = (_value(ctx, dut.operand, pe, i) for i in (0, 3))
                assert low + high == Fraction(value)
                middle = (ctx.get(dut.operand.sig[1]), ctx.get(dut.operand.sig[2]))
                ends = (ctx.get(dut.operand.sig[0]), ctx.get(dut.operand.sig[3]))
                assert middle == (ends if stationary else ends[::-1])
            assert (ctx.get(dut.operand.neg) >> bit & 1) == np.signbit(value)

    simulate(dut, bench)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("formats", [MAC_DTYPES, (DType.FP32,)], ids=["all", "fp32"])
def test_fp32_quarters(formats, stationary):
    """The four digits of a stationary operand, or those of a moving one's passes, are its value; specials are told in every pass."""
    pe = PeConfig(formats=formats)
    dut = OperandDecoder(DecoderConfig(pe=pe, stationary=stationary), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        corners = [0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001]
        for word in corners + [random.getrandbits(32) for _ in range(400)]:
            ctx.set(dut.word, word)
            total = Fraction(0)
            value = float(np.array([word], dtype=np.uint32).view(np.float32)[0])
            for turn, code in enumerate(FP32_CODES[:1] if stationary else FP32_CODES):
                ctx.set(dut.dtype, code)
                await ctx.delay(1e-9)
                operand = dut.operand
                assert ctx.get(operand.nan) == np.isnan(value)
                assert ctx.get(operand.inf) == np.isinf(value)
                assert ctx.get(operand.zero) == (value == 0)
                assert ctx.get(operand.more) == (turn > 0)
                assert ctx.get(operand.move) == 0
                assert ctx.get(operand.neg) == (15 if word >> 31 else 0)
                parts = [_value(ctx, operand, pe, i) for i in range(DIGITS)]
                if not stationary:
                    assert parts == parts[:1] * DIGITS
                total += sum(parts) if stationary else parts[0]
            if np.isfinite(value):
                assert total == Fraction(value)

    simulate(dut, bench)


@pytest.mark.parametrize("formats", [MAC_DTYPES, (DType.E2M1X4,), (DType.E4M3,)], ids=str)
@pytest.mark.parametrize("stationary", [False, True])
def test_words(stationary, formats):
    """A stationary word lies below `active`; a moving one's row is active only where bit 0 is set."""
    dut = OperandDecoder(
        DecoderConfig(pe=PeConfig(formats=formats), stationary=stationary), tiles=TileLibrary(inline=True)
    )
    random = rng()

    async def bench(ctx):
        ctx.set(dut.dtype, WORD)
        for _ in range(200):
            word, active = random.getrandbits(32), random.getrandbits(1)
            ctx.set(dut.word, word)
            ctx.set(dut.scale, random.getrandbits(8))
            ctx.set(dut.active, active)
            await ctx.delay(1e-9)
            assert ctx.get(dut.operand.move) == 1
            assert ctx.get(dut.operand.active) == (active if stationary else active & word)
            if stationary:
                assert ctx.get(dut.operand.as_value()[:WORD_BITS]) == word

    simulate(dut, bench)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("dtype", DOUBLE_ROWS)
def test_double_rows(dtype, stationary):
    """Two elements on digits 0 and 1 whatever else the word and the scale are; the idle digits are zeros with the same signs."""
    pe = PeConfig(double=DOUBLE_ROWS)
    dut = OperandDecoder(DecoderConfig(pe=pe, stationary=stationary), tiles=TileLibrary(inline=True))
    random = rng()

    async def bench(ctx):
        ctx.set(dut.dtype, DOUBLE_CODES[dtype])
        for code in range(512):
            codes = [code & 255, random.getrandbits(8)]
            if code & 256:
                codes.reverse()
            ctx.set(dut.word, codes[0] | codes[1] << 8 | random.getrandbits(16) << 16)
            ctx.set(dut.scale, random.choice([127, 255, random.getrandbits(8)]))
            await ctx.delay(1e-9)
            o = dut.operand
            values = cast.decode_float(FLOATS[dtype], np.array(codes, dtype=np.uint32)).astype(float)
            assert ctx.get(o.nan) == np.isnan(values).any()
            assert ctx.get(o.neg) == 5 * (codes[0] >> 7) | 10 * (codes[1] >> 7)
            for i, value in enumerate(values):
                assert ctx.get(o.inf) >> i & 1 == np.isinf(value)
                assert ctx.get(o.zero) >> i & 1 == (value == 0)
                if np.isfinite(value):
                    assert _value(ctx, o, pe, i) == Fraction(value)
            for i in (2, 3):
                assert (ctx.get(o.sig[i]), ctx.get(o.inf) >> i & 1, ctx.get(o.zero) >> i & 1) == (0, 0, 0)

    simulate(dut, bench)


def test_a_type_that_was_not_built_is_zero():
    pe = PeConfig(formats=(DType.BF16,))
    dut = OperandDecoder(DecoderConfig(pe=pe, stationary=False), tiles=TileLibrary(inline=True))

    async def bench(ctx):
        ctx.set(dut.dtype, DType.E4M3.value)
        ctx.set(dut.word, 0xFFFFFFFF)
        await ctx.delay(1e-9)
        assert [ctx.get(dut.operand.sig[i]) for i in range(DIGITS)] == [0] * DIGITS

    simulate(dut, bench)
