"""How is a plan evaluated within milliseconds: one compiled program, whose argument is the vector of all numbers."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from energymodel.explorer.view import BATCHES, CLOCKS, View, view_of
from energymodel.runtime.compilation import compiler_options
from energymodel.runtime.fusion_barriers import with_barriers
from energymodel.search.training_run import TrainingRun


class Evaluator:
    """The view of any run that has the structure of this one, compiled once; numbers are float64.

    A layout is numbers, so that another layout is the same program.
    """

    def __init__(self, run: TrainingRun) -> None:
        leaves, structure = jax.tree.flatten(run)
        shapes = [np.shape(leaf) for leaf in leaves]
        ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
        results: list[Any] = []

        def view(vector: Array, factors: Array, clocks: Array) -> Float[Array, " results"]:
            parts = jax.numpy.split(vector, ends)
            shaped = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
            found, built = jax.tree.flatten(view_of(jax.tree.unflatten(structure, shaped), factors, clocks))
            results[:] = [built, [np.shape(one) for one in found]]
            # One array comes back: a hundred of them would take as long to fetch as to compute.
            return jax.numpy.concatenate([jax.numpy.ravel(one) for one in found])

        with jax.enable_x64(True):
            sizes = (sum(map(np.size, leaves)), BATCHES, CLOCKS)
            examples = [jax.ShapeDtypeStruct((size,), np.float64) for size in sizes]
            lowered = jax.jit(with_barriers(view), compiler_options=compiler_options()).lower(*examples)
            self._program = lowered.compile()
        self._structure, self._shapes = results
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]

    def __call__(
        self,
        vector: Float[np.ndarray, " numbers"],
        factors: Float[np.ndarray, " batches"],
        clocks: Float[np.ndarray, " clocks"],
    ) -> View:
        """The view at a vector of numbers, as NumPy numbers.

        **Arguments:**

        - `factors`, `clocks`: `BATCHES` and `CLOCKS` of them, as in `view_of`.
        """
        with jax.enable_x64(True):
            found = np.asarray(self._program(vector, factors, clocks))
        parts = np.split(found, self._ends)
        shaped = [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        return jax.tree.unflatten(self._structure, shaped)


def is_finite(view: View) -> bool:
    """Whether a plan has an outcome: energy, time, money and loss are finite numbers."""
    outcome = view.outcome
    return all(np.all(np.isfinite(one)) for one in (outcome.loss, outcome.time, outcome.money, outcome.energy.total))
