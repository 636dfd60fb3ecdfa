"""Places of tiles: every element has one place, packs lie side by side, and what walks over tiles walks in their order."""

import itertools

import numpy as np
import pytest

from models.formats import DType
from sim.workloads.tiled import Packed, Tiled


def numbers(ap, place):
    """Elements' numbers in the order of a pattern."""
    return (ap.addresses() - place.addr) // 4


@pytest.mark.parametrize(("tiles", "width", "pack"), list(itertools.product((1, 2, 4, 8), (1, 5), (1, 4))))
def test_tiles_share_no_element(tiles, width, pack):
    place = Tiled(64, DType.FP32, tiles, width, pack)
    whole = np.concatenate([numbers(place.tile(t), place) for t in range(tiles)])
    assert len(set(whole)) == tiles * width
    assert whole.max() < place.size == numbers(place.all(), place).size
    if tiles % pack == 0:
        assert sorted(whole) == list(range(place.size))
    for t, x in itertools.product(range(tiles), range(width)):
        assert numbers(place.tile(t, x, 1), place)[0] == (t // pack * width + x) * pack + t % pack


@pytest.mark.parametrize(("t", "tiles", "pack"), [(0, 8, 1), (3, 2, 1), (0, 8, 4), (4, 4, 4), (0, 2, 4)])
def test_some_walks_tile_by_tile(t, tiles, pack):
    place = Tiled(0, DType.FP32, 8, 6, pack)
    want = np.concatenate([numbers(place.tile(t + i, 2, 3), place) for i in range(tiles)])
    assert (numbers(place.some(t, tiles, 2, 3), place) == want).all()


def test_span_is_what_whole_packs_have():
    place = Tiled(0, DType.FP32, 8, 6, 4)
    want = sorted(np.concatenate([numbers(place.tile(t), place) for t in range(4, 8)]))
    assert (numbers(place.span(4, 4), place) == want).all()


def test_part_of_a_pack_and_more():
    with pytest.raises(ValueError, match="at most 4 or a multiple of it, not 6"):
        Tiled(0, DType.FP32, 8, 6, 4).some(0, 6)


def test_packed():
    place = Packed.of(128, 512, DType.E4M3X4, 2, 16)
    assert [(p.addr, p.dtype, p.size) for p in (place.words, place.scales)] == [
        (128, DType.E4M3X4, 32),
        (512, DType.E8M0, 32),
    ]
