"""Cycles of whole programs: told within 5 % of what the chip takes."""

import functools
import itertools

import numpy as np
import pytest

from models.config import find
from models.image import Image, ImageError
from models.isa import Cond, Engine, Opcode
from models.timing import sequencer
from models.timing.chip import estimate
from models.timing.clock import TimingError
from sim.fuzz.check import program
from sim.fuzz.schedule import build
from sim.workloads import digits, gemm, mlp, train
from sim.workloads.train_shape import Options
from tb.lib.simulate import rng
from tb.models.timing.chips import both, image_of

LIMIT = 0.05
NANO, MINI = find("nano"), find("mini")
DATA = functools.cache(mlp.digits)


def within(config, image, latency=20):
    found = both(config, image, latency)
    assert abs(found.error) < LIMIT, (found.took, found.told)
    return found


@pytest.mark.parametrize(
    ("config", "fmt", "images"),
    [
        *itertools.product([NANO, MINI], ["mxfp8", "bf16"], [40, 300]),
    ],
    ids=lambda v: getattr(v, "name", v),
)
def test_digits(config, fmt, images):
    data = DATA()
    within(config, digits.build(config, mlp.trained(data), data.x[:images], fmt).image)


@pytest.mark.parametrize("fmt", ["bf16", "mxfp8"])
def test_train(fmt):
    found = within(MINI, train.build(MINI, DATA(), Options(steps=2, format=fmt)).image)
    for engine in (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.SYNC):
        took, told = found.busy(engine)
        assert told == pytest.approx(took, rel=LIMIT), engine


@pytest.mark.parametrize("config", [NANO, MINI], ids=lambda c: c.name)
def test_gemm(config):
    random = np.random.default_rng(rng().randint(0, 1 << 30))
    for dtype in config.tensor.formats:
        for k, m, n in ((40, 6, 9), (64, 32, 100)):
            a, b = (gemm.operand(dtype, random.standard_normal((k, c))) for c in (m, n))
            within(config, gemm.build(config, a, b).image)


@pytest.mark.parametrize("config", [NANO, MINI], ids=lambda c: c.name)
def test_random_programs(config):
    random = rng()
    for _ in range(4):
        seed = random.randint(0, 1 << 30)
        within(config, build(config, program(config, seed, 20), seed))


@pytest.mark.parametrize("latency", [1, 100])
def test_other_latencies(latency):
    data = DATA()
    within(MINI, digits.build(MINI, mlp.trained(data), data.x[:100], "bf16").image, latency)


def refused(fill, text, config=NANO):
    with pytest.raises(TimingError, match=text):
        estimate(config, image_of(config, fill))


def test_what_waits_for_ever():
    refused(
        lambda p: (p.vector.nop(), p.vector.nop(wait=p.semaphore("a").ge(3))),
        r"core 0 vector\[1\] waits for ever for semaphore 0 to be 3",
    )


def test_what_never_ends(monkeypatch):
    monkeypatch.setattr(sequencer, "SPIN_LIMIT", 1000)

    def spin(p):
        p.scalar.emit(Opcode.BRANCH, {"cond": Cond.ALWAYS, "target": 0})

    refused(spin, r"core 0 scalar\[0\] never ends")
    image = image_of(NANO, lambda p: [p.sync.nop() for _ in range(100)])
    with pytest.raises(TimingError, match="has not ended after 500 cycles"):
        estimate(NANO, image, limit=500)


def test_what_is_no_program():
    image = Image.empty(NANO)
    image.entries.append((0, Engine.TENSOR, 0x1000))
    with pytest.raises(TimingError, match=r"core 0 tensor\[0\]: opcode 0x00 is unknown"):
        estimate(NANO, image)
    with pytest.raises(ImageError, match="made for configuration"):
        estimate(MINI, image)


def test_nothing_to_run():
    told = estimate(NANO, Image.empty(NANO))
    assert told.cycles == 0
    assert told.cores == {}
