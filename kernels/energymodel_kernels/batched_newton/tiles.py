"""The choice between one lane and a whole program for a problem."""

from typing import NamedTuple

MOST_VARIABLES_OF_LANE = 12
"""Beyond this a triangle of numbers and its factor overflow the 255 registers of a GPU's thread."""

MOST_VARIABLES = 64
"""Beyond this a matrix does not fit the registers of a program."""

SADDLE_TRIAL = 2
"""A problem that this damping does not make definite has a direction that bends clearly downwards."""


class Tile(NamedTuple):
    """`block` problems per program, one per lane; or one problem per program if `block` is 1."""

    block: int
    warps: int = 4


def choose_tile(implementation: str, n: int, m: int) -> Tile:
    """A tile for problems of n variables and m rows.

    **Raises:** `ValueError` for problems that are too large for an implementation, naming the others.
    """
    small = 1 <= n <= MOST_VARIABLES_OF_LANE
    if not 1 <= n <= MOST_VARIABLES:
        raise ValueError(f"{n} variables: a kernel solves 1 to {MOST_VARIABLES}; xla takes more")
    if not small:
        return Tile(1, 1 if n <= 16 else 4)
    return Tile(1024 if implementation == "pallas_tpu" else 128)
