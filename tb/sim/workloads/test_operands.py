"""Operands that the host quantises: elements and scales lie where the tensor engine takes them."""

import numpy as np

from models import cast
from models.formats import DType
from sim.workloads.operands import mx_operands
from tb.lib.simulate import rng


def test_blocks_of_eight_partitions_by_four():
    random = np.random.default_rng(rng().randrange(1 << 30))
    values = random.standard_normal((2, 16, 4, 5)) * np.exp2(random.integers(-20, 20, (2, 16, 1, 1)))
    found = mx_operands(values, DType.E4M3X4)
    assert (found.words.shape, found.scales.shape) == ((2, 16, 5), (2, 2, 5))
    for tile, group, column in np.ndindex(2, 2, 5):
        block = values[tile, 8 * group : 8 * group + 8, :, column].astype(np.float32)
        codes, scale = cast.quantize_mx(block.reshape(32), DType.E4M3X4, rule="ocp")
        assert found.scales[tile, group, column] == scale
        words = found.words[tile, 8 * group : 8 * group + 8, column]
        assert (cast.unpack_x4(DType.E4M3X4, words).ravel() == codes).all()
