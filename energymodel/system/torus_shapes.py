"""Which tori can be built of whole blocks, with sides that the formulas of a torus hold for?

`performance.topology.Torus` takes all sides as equal, `a = n^(1/d)`. With sides up to 1 : 2 its bisection is at most
`2^((d - 1)/d)` times that of the true torus, 1.6 for three dimensions. Thirteen blocks are a ring.
"""

import math
from functools import cache

from energymodel.performance.topology import Torus
from energymodel.system.training_system import TrainingSystem

LONGEST = 2.0  # longest over shortest side
WHOLE = 1e-6


@cache
def torus_sides(blocks: int, dimensions: int) -> tuple[int, ...]:
    """Sides of the torus of so many blocks whose longest side is shortest, in ascending order."""
    if dimensions <= 1:
        return (blocks,)
    choices = (
        tuple(sorted((side, *torus_sides(blocks // side, dimensions - 1))))
        for side in range(1, round(blocks ** (1.0 / dimensions)) + 1)
        if blocks % side == 0
    )
    return min(choices, key=lambda sides: (sides[-1], -sides[0]))


def torus_fault(system: TrainingSystem, chips: float) -> str | None:
    """What is wrong with the torus of so many chips; None if it can be built, or if the network is none."""
    topology, block = system.network.topology, float(system.node.chips)
    if not isinstance(topology, Torus) or chips <= block:
        return None
    blocks = chips / block
    if abs(blocks - round(blocks)) > WHOLE * blocks:
        return f"{chips:g} chips are {blocks:.4g} blocks of {block:g}, but a torus is of whole blocks"
    sides = torus_sides(round(blocks), round(float(topology.dimensions)))
    if sides[-1] <= LONGEST * sides[0]:
        return None
    shape = " x ".join(str(side) for side in sides)
    return (
        f"{chips:g} chips make a torus of {shape} blocks of {block:g}, whose sides differ by more than 1 : {LONGEST:g}"
    )


def torus_chips(system: TrainingSystem, chips: float, most: float, group: int = 1) -> list[float]:
    """Numbers of chips up to `most` that make a torus, in whole groups: the nearest to `chips` below and above."""
    block = round(float(system.node.chips))
    whole = math.lcm(block, group)
    possible = [float(n * whole) for n in range(1, math.floor(most / whole + WHOLE) + 1)]
    possible = [one for one in possible if torus_fault(system, one) is None]
    below = [one for one in possible if one <= chips * (1.0 + WHOLE)]
    return below[-1:] + [one for one in possible if one > chips * (1.0 + WHOLE)][:1]
