"""The number of plans that one program advances."""

from typing import NamedTuple


class Tile(NamedTuple):
    """`block` plans per program, by `warps`; one or two plans per thread keep the state in registers."""

    block: int
    warps: int = 4


def choose_tile(implementation: str, plans: int) -> Tile:
    """A tile for an ensemble: a TPU takes whole registers of 1024, a GPU a plan per thread."""
    if implementation == "pallas_tpu":
        return Tile(1024)
    return Tile(256 if plans > 2**17 else 128)
