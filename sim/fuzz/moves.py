"""Random shuffles and transpositions: how much they move, and where."""

import random

from models.config import ChipConfig
from models.isa import Opcode
from models.moves import STAYS, mask_field

MOST = 96
"""Elements of a partition, of four bytes, that a slot holds with room behind them."""


def move(config: ChipConfig, rng: random.Random, opcode: Opcode) -> tuple[tuple[int, int], int]:
    """((partitions, elements), mask) of one of MOVES."""
    quadrant = config.quadrant
    parts = quadrant * rng.randint(1, config.partitions // quadrant)
    stays = rng.choice([0.0, 0.2])
    mask = [STAYS if rng.random() < stays else rng.randrange(quadrant) for _ in range(quadrant)]
    if opcode == Opcode.LANE_TRANSPOSE:
        return (parts, quadrant * rng.randint(1, MOST // quadrant)), 0
    return (parts, rng.randint(1, 64)), mask_field(mask)
