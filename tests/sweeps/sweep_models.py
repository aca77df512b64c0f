"""Models that tests sweep, and grids small enough to check by brute force."""

import jax.numpy as jnp
import numpy as np

import sweep_model as specification
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.reductions import AbstractReduction

OUTPUTS = ("energy", "time", "temperature", "power")
LIMITS = {"time": 2.0e4, "power": 2.0e6, "temperature": 70.0}


def sweep_model(batch, clock, nodes, voltage):
    """The specification as a function of its axes."""
    return dict(zip(OUTPUTS, specification.sweep_model(batch, clock, nodes, voltage, jnp), strict=True))


def axes(*sizes):
    """Its axes with so many values each."""
    b, c, n, v = sizes
    return [
        Axis.log("batch", 0.05, 64.0, b),
        Axis.linear("clock", 0.5, 2.2, c),
        Axis.log("nodes", 4.0, 1024.0, n),
        Axis.linear("voltage", 0.6, 1.15, v),
    ]


def everywhere(grid_axes):
    """All outputs on the whole grid by NumPy in float64, and which points obey the limits."""
    mesh = np.meshgrid(*(axis.values for axis in grid_axes), indexing="ij")
    outputs: dict[str, np.ndarray] = dict(zip(OUTPUTS, specification.sweep_model(*mesh, xp=np), strict=True))
    feasible = np.all([outputs[name] <= limit for name, limit in LIMITS.items()], axis=0)
    return outputs, feasible


class Sum(AbstractReduction):
    """A reduction of a person's own."""

    def pick(self, outputs):
        return outputs["y"]

    def init(self, grid):
        return jnp.zeros(())

    def update(self, state, picked, chunk):
        return state + jnp.sum(picked if chunk.valid is None else jnp.where(chunk.valid, picked, 0.0))

    def merge(self, first, second):
        return first + second

    def result(self, state, grid):
        return float(state)
