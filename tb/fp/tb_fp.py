"""The FP32 tiles against the models: corner pairs and random vectors, one a cycle."""

import random
from typing import Any

import cocotb
import ml_dtypes
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from models import cast, fp
from models.exponential import exponential
from models.formats import FLOATS, INTS, DType
from rtl.fp import add, decode, divide, encode, mul, step
from rtl.fp import exponential as exp_unit
from rtl.fp.round import EXP_BITS
from sim.runner import params
from tb.fp import exact as oracle
from tb.fp.vectors import corners, near, pairs, pipeline, random_bits, seeded

OTHERS = {
    DType.BF16: ml_dtypes.bfloat16,
    DType.FP16: np.float16,
    DType.E4M3: ml_dtypes.float8_e4m3fn,
    DType.E5M2: ml_dtypes.float8_e5m2,
}
"""The narrow floats as another project has them."""


@cocotb.test()
async def exact(dut: Any) -> None:
    """All that the tile of this run is for."""
    benches = {
        "add": _add,
        "mul": _mul,
        "extreme": _extreme,
        "round": _round,
        "step": _step,
        "decode": _decode,
        "encode": _encode,
        "divide": _divide,
        "exponential": _exponential,
    }
    await benches[params()["tile"]](dut, seeded(cocotb.RANDOM_SEED))


def same_class(mine: np.ndarray, other: np.ndarray) -> bool:
    """Equal bits, or NaN on both sides: projects differ in a NaN's sign and payload."""
    x, y = mine.astype(np.float32), other.astype(np.float32)
    return bool(np.all((x.view(np.uint32) == y.view(np.uint32)) | (np.isnan(x) & np.isnan(y))))


async def _add(dut: Any, rng: np.random.Generator) -> None:
    a, b = pairs(rng, params()["vectors"])
    want = fp.add(a.view(np.float32), b.view(np.float32))
    await pipeline(dut, {"a": a, "b": b}, "o", want.view(np.uint32), add.LATENCY)


async def _mul(dut: Any, rng: np.random.Generator) -> None:
    a, b = pairs(rng, params()["vectors"])
    # products that land among the subnormals
    n = a.size // 4
    exp = (np.uint32(127 + 127) - (a[-n:] >> np.uint32(23) & np.uint32(255))) - np.uint32(127 + 10)
    b[-n:] = ((exp & np.uint32(255)) << np.uint32(23)) | (b[-n:] & np.uint32(0x807FFFFF))
    want = fp.mul(a.view(np.float32), b.view(np.float32))
    await pipeline(dut, {"a": a, "b": b}, "o", want.view(np.uint32), mul.LATENCY)


async def _divide(dut: Any, rng: np.random.Generator) -> None:
    a, b = pairs(rng, params()["vectors"])
    # quotients that land among the subnormals, and exact ones
    n = a.size // 4
    exp = (a[-n:] >> np.uint32(23) & np.uint32(255)) + np.uint32(127 + 10)
    b[-n:] = (np.minimum(exp, 254) << np.uint32(23)) | (b[-n:] & np.uint32(0x807FFFFF))
    whole = slice(a.size - n - n // 2, a.size - n)
    a[whole] = fp.mul(b[whole].view(np.float32), np.float32(rng.integers(1, 9))).view(np.uint32)
    want = fp.divide(a.view(np.float32), b.view(np.float32)).view(np.uint32)
    # one every PACE cycles at the fastest, with other operands at the ports in between
    waits = divide.PACE + rng.integers(0, 2, a.size) * rng.integers(0, 4, a.size)
    Clock(dut.clk, 10, unit="ns", impl="gpi").start()
    dut.rst.value, dut.start.value = 1, 0
    await FallingEdge(dut.clk)
    dut.rst.value = 0
    due: list[tuple[int, int]] = []
    cycle, following, n = 0, 0, 0
    while n < a.size or due:
        if due and due[0][0] == cycle:
            _, k = due.pop(0)
            got = int(dut.o.value)
            assert got == want[k], f"{a[k]:#010x} / {b[k]:#010x}: {got:#010x}, not {want[k]:#010x}"
        go = n < a.size and cycle >= following
        dut.start.value = int(go)
        dut.a.value, dut.b.value = (int(a[n]), int(b[n])) if go else (0x3F800000, 0x40400000)
        if go:
            due.append((cycle + divide.LATENCY, n))
            following, n = cycle + int(waits[n]), n + 1
        await FallingEdge(dut.clk)
        cycle += 1


async def _exponential(dut: Any, rng: np.random.Generator) -> None:
    n = params()["vectors"]
    ordinary = rng.uniform(-110, 95, n).astype(np.float32).view(np.uint32)
    small = (rng.standard_normal(n) * 0.01).astype(np.float32).view(np.uint32)
    x = np.concatenate([corners(), random_bits(rng, n), ordinary, small])
    want = exponential(x.view(np.float32)).view(np.uint32)
    await pipeline(dut, {"x": x, "on": np.ones_like(x)}, "o", want, exp_unit.LATENCY)


async def _extreme(dut: Any, rng: np.random.Generator) -> None:
    a, b = pairs(rng, params()["vectors"])
    b[::7] = a[::7]
    largest = rng.integers(0, 2, a.size).astype(np.uint32)
    x, y = a.view(np.float32), b.view(np.float32)
    want = np.where(largest == 1, fp.maximum(x, y), fp.minimum(x, y))
    # where the order of equals and NaN play no part, NumPy's own must agree
    with np.errstate(invalid="ignore"):
        plain = ~(np.isnan(x) | np.isnan(y)) & (x != y)
        assert np.array_equal(want[plain], np.where(largest == 1, np.fmax(x, y), np.fmin(x, y))[plain])
    await pipeline(dut, {"a": a, "b": b, "largest": largest}, "o", want.view(np.uint32), 1)


async def _round(dut: Any, rng: np.random.Generator) -> None:
    bits, n = params()["bits"], params()["vectors"]
    mags, negs, lsbs, infs, nans, want = [], [], [], [], [], []
    for _ in range(n):
        length = random.choice([0, 1, 2, 23, 24, 25, 26, bits, bits, random.randint(0, bits)])
        mag = random.getrandbits(length) if length else 0
        if random.random() < 0.4:  # ties and their neighbours
            mag = (random.getrandbits(25) << max(length - 25, 0)) + random.choice([-1, 0, 1])
        mag = min(max(mag, 0), (1 << bits) - 1)
        top = random.choice([-151, -150, -149, -127, -126, -125, 0, 127, 128, random.randint(-170, 140)])
        lsb = random.choice(
            [random.randint(-600, 600), top - mag.bit_length() + 1, top - mag.bit_length() + 1]
        )
        inf, nan = int(random.random() < 0.05), int(random.random() < 0.05)
        neg = random.getrandbits(1)
        mags.append(mag)
        negs.append(neg)
        lsbs.append(lsb & (1 << EXP_BITS) - 1)
        infs.append(inf)
        nans.append(nan)
        finite = oracle.rounded(-mag if neg else mag, lsb, zero_sign=neg)
        want.append(oracle.NAN if nan else oracle.INF | neg << 31 if inf else finite)
    inputs = {"mag": mags, "neg": negs, "lsb": lsbs, "inf": infs, "nan": nans}
    arrays = {name: np.array(values, dtype=np.uint64) for name, values in inputs.items()}
    await pipeline(dut, arrays, "o", np.array(want, dtype=np.uint32), 1)


async def _step(dut: Any, rng: np.random.Generator) -> None:
    bits, n = params()["bits"], params()["vectors"]
    words, want = [], []
    a = np.concatenate([np.tile(corners(), 40), random_bits(rng, n)])
    a[-n // 3 :] = near(rng, np.full(n - n * 2 // 3, 0x3F800000, dtype=np.uint32), 10)
    for x in a.tolist():
        neg, inf, nan = random.getrandbits(1), int(random.random() < 0.03), int(random.random() < 0.03)
        style = random.random()
        if style < 0.1:
            mag, exp = 0, random.randint(-600, 400)
        elif style < 0.25:
            mag, exp = random.getrandbits(bits), -149
        else:
            mag = (1 << bits - 1) | random.getrandbits(random.choice([bits - 1, random.randint(0, bits - 1)]))
            if random.random() < 0.3:  # opposite of a, or a last place away from it, or half of one
                mag = oracle.parts(x)[0] if not oracle.is_inf(x) and not oracle.is_nan(x) else 1
                mag, neg = abs(mag) or 1, x >> 31 ^ random.choice([1, 1, 0])
                mag = mag << max(bits - mag.bit_length(), 0) >> max(mag.bit_length() - bits, 0)
                mag = min(max(mag + random.choice([-1, 0, 1]), 1 << bits - 1), (1 << bits) - 1)
            exp = (x >> 23 & 255) - 127 - bits + random.randint(-60, 60) * random.choice([0, 1, 1, 1])
            exp = exp + 1 if random.random() < 0.5 else exp
            exp = random.randint(-600, 400) if random.random() < 0.1 else exp
        words.append(
            mag | neg << bits | (exp & (1 << EXP_BITS) - 1) << bits + 1 | inf << bits + 13 | nan << bits + 14
        )
        want.append(oracle.sum_rounded(x, mag, neg, exp, inf, nan))
    inputs = {"a": a, "addend": np.array(words, dtype=object)}
    await pipeline(dut, inputs, "o", np.array(want, dtype=np.uint32), step.LATENCY)


async def _decode(dut: Any, rng: np.random.Generator) -> None:
    raws, types, want = [], [], []
    for dtype in (*FLOATS, *INTS, DType.E8M0):
        bits = (
            32
            if dtype == DType.FP32
            else FLOATS[dtype].width
            if dtype in FLOATS
            else INTS.get(dtype, (8, False))[0]
        )
        if bits == 8:
            raw = np.arange(256, dtype=np.uint32)
        elif bits == 16 and params()["exhaustive"]:
            raw = np.arange(1 << 16, dtype=np.uint32)
        else:
            raw = np.concatenate([corners(), random_bits(rng, params()["vectors"])]) >> np.uint32(32 - bits)
        raws.append(raw)
        types.append(np.full(raw.size, dtype, dtype=np.uint32))
        value = cast.decode(dtype, raw)
        if dtype in OTHERS:
            bytes_ = raw.astype(f"<u{bits // 8}")
            assert same_class(value, bytes_.view(OTHERS[dtype])), dtype.name
        elif dtype == DType.E8M0:
            assert same_class(value, raw.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)), dtype.name
        want.append(value.view(np.uint32))
    inputs = {"raw": np.concatenate(raws), "dtype": np.concatenate(types)}
    await pipeline(dut, inputs, "o", np.concatenate(want), decode.LATENCY)


def boundaries(dtype: DType) -> np.ndarray:
    """Values at, and one FP32 step beside, the codes of a narrow type and their midpoints."""
    if dtype in INTS:
        bits, _ = INTS[dtype]
        edge = 2.0 ** np.arange(bits + 1)
        v = np.concatenate([edge, edge - 0.5, edge + 0.5, edge - 1, np.arange(20) / 2]).astype(np.float32)
    else:
        fmt = FLOATS[dtype]
        codes = (
            np.arange(fmt.max_code + 1, dtype=np.uint32)
            if fmt.width == 8
            else np.array([0, 1, fmt.max_code - 1, fmt.max_code])
        )
        x = cast.decode_float(fmt, codes).astype(np.float64)
        with np.errstate(over="ignore"):
            v = np.concatenate(
                [x, (x[1:] + x[:-1]) / 2, [x[-1] * (1 + 2.0 ** -(fmt.man_bits + 1)), x[-1] * 1.5]]
            ).astype(np.float32)
    bits_ = v.view(np.uint32)
    both = np.concatenate([bits_, bits_ + 1, np.maximum(bits_, 1) - 1]).astype(np.uint32)
    return np.concatenate([both, both | np.uint32(1 << 31)])


async def _encode(dut: Any, rng: np.random.Generator) -> None:
    xs, types, flags, want = [], [], [], []
    for dtype in (*FLOATS, *INTS):
        n = params()["vectors"]
        x = np.concatenate([corners(), boundaries(dtype), random_bits(rng, n)])
        # most random numbers within reach of the type
        exp = rng.integers(100, 160, n).astype(np.uint32) << np.uint32(23)
        x = np.concatenate([x, (random_bits(rng, n) & np.uint32(0x807FFFFF)) | exp])
        for saturate in (False, True):
            xs.append(x)
            types.append(np.full(x.size, dtype, dtype=np.uint32))
            flags.append(np.full(x.size, saturate, dtype=np.uint32))
            raw = cast.encode(dtype, x.view(np.float32), saturate=saturate)
            if dtype in OTHERS and not saturate:
                with np.errstate(all="ignore"):
                    other = x.view(np.float32).astype(OTHERS[dtype])
                assert same_class(cast.decode(dtype, raw), other), dtype.name
            want.append(raw)
    inputs = {"x": np.concatenate(xs), "dtype": np.concatenate(types), "saturate": np.concatenate(flags)}
    await pipeline(dut, inputs, "raw", np.concatenate(want), encode.LATENCY)
