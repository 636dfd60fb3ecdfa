"""`tesela accuracy`: the scalar engine's functions against FP64 references, over all BF16 arguments and many FP32 ones."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

from models import cast
from models.formats import DType
from models.functions import SLOPED, ActFunc, library
from models.functions import evaluate as evaluate_function

F64 = NDArray[np.float64]
OUT = Path(__file__).parent.parent / "build" / "accuracy.json"
BF16_WRONG = 0.001
"""Share of BF16 arguments whose BF16 result may be off by one place."""
MAX_ULP = 2.0
"""Largest error of an FP32 result, in units of its last place."""
FAR = 1e4
"""Beyond this, references that would compute Inf * 0 are taken at the limit."""


def _phi(x: F64) -> F64:
    return 0.5 * special.erfc(-x / np.sqrt(2))


def _near(x: F64) -> F64:
    return np.clip(x, -FAR, FAR)


def _bell(x: F64) -> F64:
    e = np.exp(-np.abs(x))
    return e / (1 + e) ** 2


SLOPE = 0.3
"""Of PRELU and its derivative; taken as FP32."""


def evaluate(f: ActFunc, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The model's results, with SLOPE where a slope is asked for."""
    return evaluate_function(f, x, SLOPE if f in SLOPED else None)


def _d_gelu_tanh(x: F64) -> F64:
    x = _near(x)
    a, c = 2 * np.sqrt(2 / np.pi), 0.044715
    u = a * (x + c * x**3)
    return special.expit(u) * (1 + x * special.expit(-u) * a * (1 + 3 * c * x * x))


def _d_mish(x: F64) -> F64:
    """tanh(softplus(x)) + x sech(softplus(x))**2 sigmoid(x), from e = e**-|x|."""
    x = _near(x)
    e, below = np.exp(-np.abs(x)), x < 0
    n = np.where(below, e * (e + 2), 1 + 2 * e)
    d = n + np.where(below, 2, 2 * e * e)
    return (n + 4 * x * (np.where(below, e, e * e) * (1 + e) / d)) / d


def _mish(x: F64) -> F64:
    """x tanh(softplus(x)) without cancellation."""
    e = np.exp(-np.abs(x))
    n = np.where(x < 0, e * (e + 2), 1 + 2 * e)
    return x * (n / (n + np.where(x < 0, 2, 2 * e * e)))


REFERENCES: dict[ActFunc, Callable[[F64], F64]] = {
    ActFunc.COPY: lambda x: x,
    ActFunc.SQUARE: lambda x: x * x,
    ActFunc.ABS: np.abs,
    ActFunc.SIGN: np.sign,
    ActFunc.RELU: lambda x: np.maximum(x, 0.0),
    ActFunc.RECIPROCAL: lambda x: 1 / x,
    ActFunc.SQRT: np.sqrt,
    ActFunc.RSQRT: lambda x: 1 / np.sqrt(x),
    ActFunc.EXP: np.exp,
    ActFunc.LOG: np.log,
    ActFunc.SIGMOID: special.expit,
    ActFunc.TANH: np.tanh,
    ActFunc.SILU: lambda x: np.maximum(x, -FAR) * special.expit(x),
    ActFunc.GELU: lambda x: np.maximum(x, -FAR) * _phi(x),
    ActFunc.GELU_TANH: lambda x: (
        np.maximum(x, -FAR) * special.expit(2 * np.sqrt(2 / np.pi) * (_near(x) + 0.044715 * _near(x) ** 3))
    ),
    ActFunc.ERF: special.erf,
    ActFunc.SOFTPLUS: lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    ActFunc.MISH: lambda x: _mish(np.maximum(x, -FAR)),
    ActFunc.D_RELU: lambda x: (x > 0).astype(np.float64),
    ActFunc.D_SIGMOID: _bell,
    ActFunc.D_TANH: lambda x: 4 * _bell(2 * x),
    ActFunc.D_SILU: lambda x: special.expit(x) * (1 + _near(x) * special.expit(-x)),
    ActFunc.D_GELU: lambda x: _phi(x) + _near(x) * np.exp(-(_near(x) ** 2) / 2) / np.sqrt(2 * np.pi),
    ActFunc.D_SOFTPLUS: special.expit,
    ActFunc.PRELU: lambda x: np.where(x < 0, x * np.float64(np.float32(SLOPE)), x),
    ActFunc.D_PRELU: lambda x: np.where(x > 0, 1.0, np.float64(np.float32(SLOPE))),
    ActFunc.SIN: np.sin,
    ActFunc.COS: np.cos,
    ActFunc.ARCTAN: np.arctan,
    ActFunc.D_ERF: lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),
    ActFunc.D_GELU_TANH: _d_gelu_tanh,
    ActFunc.D_MISH: _d_mish,
}


@dataclass(frozen=True, slots=True)
class Errors:
    """Largest error in FP32 ulp and its argument; results that are NaN, Inf or a number where the reference is not."""

    max_ulp: float
    at: float
    wrong_specials: int


def reference(f: ActFunc, x: NDArray[np.float32]) -> F64:
    """FP64 values."""
    with np.errstate(all="ignore"):
        return REFERENCES[f](x.astype(np.float64))


def _arguments(count: int, seed: int) -> NDArray[np.float32]:
    """Half of all bit patterns, half of ordinary sizes."""
    rng = np.random.default_rng(seed)
    any_bits = rng.integers(0, 1 << 32, count // 2, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ordinary = rng.standard_normal(count - count // 2) * rng.choice([0.1, 1, 5, 30], count - count // 2)
    return np.concatenate([any_bits, ordinary.astype(np.float32)])


def fp32_errors(f: ActFunc, count: int, seed: int) -> Errors:
    """`count` random FP32 arguments."""
    x = _arguments(count, seed)
    got, want = evaluate(f, x), reference(f, x)
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        ulp = np.maximum(np.spacing(np.abs(rounded)).astype(np.float64), 2.0**-149)
        error = np.abs(got.astype(np.float64) - want) / ulp
    finite = np.isfinite(rounded) & np.isfinite(got)
    error = np.where(finite, error, 0.0)
    same = (np.isnan(got) == np.isnan(rounded)) & (np.isinf(got) == np.isinf(rounded))
    worst = int(np.argmax(error))
    return Errors(float(error[worst]), float(x[worst]), int((~same).sum()))


def bf16_errors(f: ActFunc, *, step: int = 1) -> tuple[float, int]:
    """(share of results that are not the correctly rounded BF16, most places that one is off) over every `step`-th BF16 argument."""
    codes = np.arange(0, 1 << 16, step, dtype=np.uint32)
    x = cast.decode(DType.BF16, codes)
    got = cast.encode(DType.BF16, evaluate(f, x), saturate=False).astype(np.int64)
    want_value = reference(f, x)
    with np.errstate(over="ignore"):
        low = want_value.astype(np.float32)
    # the FP32 neighbour on the exact value's side, its last bit set: rounding that to BF16 rounds the exact value once
    with np.errstate(all="ignore"):
        exact = low.astype(np.float64) == want_value
        towards = np.where(np.abs(low.astype(np.float64)) > np.abs(want_value), -1, 0)
    bits = low.view(np.uint32).astype(np.int64)
    sticky = (
        np.where(exact | ~np.isfinite(low), bits, (bits + towards) | 1).astype(np.uint32).view(np.float32)
    )
    want = cast.encode(DType.BF16, sticky, saturate=False).astype(np.int64)
    number = ~np.isnan(want_value)
    off = np.abs((got & 0x7FFF) - (want & 0x7FFF))[number]
    return float((off != 0).mean()), int(off.max())


@dataclass(frozen=True, slots=True)
class Row:
    """A function's line: microcode steps and what was measured."""

    function: str
    steps: int
    max_ulp: float
    at: float
    wrong_specials: int
    bf16_wrong: float
    bf16_off: int
    ok: bool


def measure(count: int, seed: int = 1, *, progress: Callable[[str], None] | None = None) -> list[Row]:
    """Every function, `count` FP32 arguments each."""
    programs, _ = library()
    rows = []
    for f in ActFunc:
        if progress is not None:
            progress(f.name.lower())
        errors = fp32_errors(f, count, seed)
        wrong, off = bf16_errors(f)
        ok = errors.max_ulp <= MAX_ULP and errors.wrong_specials == 0 and wrong <= BF16_WRONG and off <= 1
        rows.append(
            Row(
                f.name.lower(),
                len(programs[f]),
                errors.max_ulp,
                errors.at,
                errors.wrong_specials,
                wrong,
                off,
                ok,
            )
        )
    return rows


def save(rows: list[Row], count: int, seed: int) -> None:
    """Write build/accuracy.json."""
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(
        json.dumps({"arguments": count, "seed": seed, "functions": [asdict(r) for r in rows]}, indent=1)
        + "\n"
    )


def page(rows: list[Row], count: int, seed: int) -> str:
    """docs/accuracy.md."""
    lines = [
        "# Accuracy of the scalar engine's functions",
        "",
        f"Generated by `tesela accuracy --page`: {count:,} FP32 arguments each (seed {seed}), half of any bits, half of ordinary size, and all BF16 arguments, against",
        "FP64 references. An error of 0.5 ulp is a correctly rounded result. `prelu` and `d_prelu` have slope 0.3.",
        "Cycles are for an element of every lane; an instruction adds about 40.",
        "",
        "| function | cycles | largest FP32 error (ulp) | at | BF16 results not correctly rounded |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.function} | {r.steps + 1} | {r.max_ulp:.3f} | {r.at:.6g} | {r.bf16_wrong:.4%}, by {r.bf16_off} at most |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"
