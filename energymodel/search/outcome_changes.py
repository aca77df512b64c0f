"""How do the outputs of a run move as its numbers do, by differences of two evaluations?

They are made by the program that evaluates the run itself: a hundred take less time than compiling a derivative.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from energymodel.search.training_run import TrainingRun
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import DERIVED, TrainingOutcome
from energymodel.system.outputs import output, parse_objective
from energymodel.system.own_outputs import own_outputs

STEP = 1e-4  # of a direction: the slope's error is as much of its curvature


class OutcomeChanges(NamedTuple):
    """An outcome, and how its outputs move along some directions, to first order.

    - `outcome`: in the middle.
    - `moved`: the same tree, each leaf with a change for each direction.
    """

    outcome: TrainingOutcome
    moved: TrainingOutcome

    def change(self, name: str) -> Float[np.ndarray, " directions"]:
        """Change of an output along each direction, in its unit; `energy` and `step_time` are totals."""
        if not own_outputs([name]) and name not in DERIVED:
            return np.asarray(output(self.moved, name))
        along = jax.vmap(lambda moved: jax.jvp(lambda one: output(one, name), (self.outcome,), (moved,))[1])
        return np.asarray(along(self.moved))

    def relative(self, objective: str) -> Float[np.ndarray, " directions"]:
        """Change of the logarithm of an output, or of a product of powers of outputs; zero where one is zero [1]."""
        factors = dict(parse_objective(objective).factors) if "*" in objective or "^" in objective else {objective: 1.0}
        factors = {"energy": 1.0, "time": 1.0} if objective == "etp" else factors
        return self.relative_product(factors)

    def relative_product(self, powers: Mapping[str, float]) -> Float[np.ndarray, " directions"]:
        """Change of the logarithm of a product of powers of outputs by name; zero where one is zero [1]."""
        changes = [power * self._logarithm(name) for name, power in powers.items()]
        return np.asarray(sum(changes[1:], start=changes[0]))

    def _logarithm(self, name: str) -> Float[np.ndarray, " directions"]:
        value, change = float(output(self.outcome, name)), self.change(name)
        return change / value if value else np.zeros_like(change)


def changes_along(run: TrainingRun, steps: Float[np.ndarray, "directions n"]) -> OutcomeChanges:
    """How the outputs of a run move along some directions, changes of its vector, in the caller's precision."""
    evaluate_numbers, structure = evaluate_once.of_numbers(run.system, run.plan)
    # Calls that mix arrays of NumPy and of JAX in another way each time take ten times as long.
    numbers, changes = jax.device_put((jax.tree.leaves(run), run.moved(STEP * steps)))
    moved = [[*map(changed.get, range(len(numbers)), numbers)] for changed in changes]
    own, *ends = [[*map(np.asarray, evaluate_numbers(one))] for one in (numbers, *moved)]
    with np.errstate(invalid="ignore"):  # infinite outputs have no slope
        slopes = [(np.array(others, np.float64) - middle) / STEP for middle, *others in zip(own, *ends, strict=True)]
    return OutcomeChanges(jax.tree.unflatten(structure, own), jax.tree.unflatten(structure, slopes))
