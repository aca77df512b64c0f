"""A system and a plan as one vector of named numbers, with outputs at such vectors, their derivatives and changes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from energymodel.numerics import Numeric
from energymodel.runtime.compilation import Compiled, concurrently
from energymodel.scenarios.scenario import leaf_paths
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.outcome import DERIVED, Slack, TrainingOutcome
from energymodel.system.outputs import (
    AT_LEAST,
    OUTPUTS,
    OwnOutput,
    limited_values,
    output,
    own_outputs,
    parse_objective,
)
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

CHUNK = 64  # vectors in one call of the compiled model
_SLACKS = tuple(f"slack.{field.name}" for field in dataclasses.fields(Slack))
UNITS: Mapping[str, str] = {**OUTPUTS, **dict.fromkeys(_SLACKS, "1")}
"""Unit of each output; `slack.*` is limit over value, not its logarithm."""
LIMITS_OF_SYSTEM = tuple(f"slack.{field.name}" for field in dataclasses.fields(Slack) if field.name != "information")
STEP = 1e-4  # of a direction: the error of a slope is as much of its curvature
MICROBATCHES = "microbatches"
"""The smallest batch of a layout, one micro-batch for each replica, over the batch [1]."""
NAMES = (*UNITS, MICROBATCHES)
SLOWDOWN = "system.production_slowdown"
"""The number that scatters as step times do around their prediction."""


class TrainingRun(eqx.Module):
    """A system and a plan, whose numbers are one vector; a batch schedule is one number that scales all its knots."""

    system: TrainingSystem
    plan: TrainingPlan

    def number(self, path: str) -> float:
        """The number at a dotted path."""
        return float(np.reshape(_leaf(self, path), ()))

    @property
    def paths(self) -> list[str]:
        """Dotted paths of the numbers."""
        return leaf_paths(self.system, "system") + leaf_paths(self.plan, "plan")

    @property
    def values(self) -> dict[str, float]:
        """The numbers by path, in SI; of a batch schedule the mean of its knots."""
        return {path: float(np.mean(leaf)) for path, leaf in zip(self.paths, jax.tree.leaves(self), strict=True)}

    @property
    def vector(self) -> Float[np.ndarray, " n"]:
        """All leaves, one after the other."""
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(self)])

    @property
    def differences(self) -> frozenset[str]:
        """Paths of the temperatures that are differences."""
        return frozenset((*_differences(self.system, "system"), *_differences(self.plan, "plan")))

    @property
    def places(self) -> dict[str, slice]:
        """Slice of each number in the vector."""
        ends = np.cumsum([np.size(leaf) for leaf in jax.tree.leaves(self)]).tolist()
        return {path: slice(*ends) for path, *ends in zip(self.paths, [0, *ends[:-1]], ends, strict=True)}

    def changed(self, path: str, value: float) -> Float[np.ndarray, " n"]:
        """The vector with another value of one number; a batch schedule keeps its shape."""
        vector, numbers = self.vector, self.places[path]
        schedule = numbers.stop - numbers.start > 1
        vector[numbers] = vector[numbers] * (value / float(np.mean(vector[numbers]))) if schedule else value
        return vector

    def at(self, vector: Float[np.ndarray, " n"]) -> "TrainingRun":
        """The run that holds the numbers of a vector."""
        leaves, structure = jax.tree.flatten(self)
        parts = [vector[numbers] for numbers in self.places.values()]
        return jax.tree.unflatten(structure, map(np.reshape, parts, map(np.shape, leaves)))

    def moved(self, steps: Float[np.ndarray, "steps n"]) -> list[dict[int, np.ndarray]]:
        """The leaves that each step of the vector changes, by their index among all."""
        parts = list(enumerate(zip(jax.tree.leaves(self), self.places.values(), strict=True)))
        return [
            {i: leaf + step[numbers].reshape(np.shape(leaf)) for i, (leaf, numbers) in parts if step[numbers].any()}
            for step in steps
        ]


def in_float64(run: TrainingRun) -> TrainingRun:
    """The run with NumPy numbers."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), run)


def replace_leaf(tree: Any, path: str, value: Numeric) -> Any:
    """The same tree with another leaf at a dotted path; shape and structure stay."""
    return eqx.tree_at(lambda node: _leaf(node, path), tree, jnp.reshape(value, jnp.shape(_leaf(tree, path))))


def _leaf(node: Any, path: str) -> Any:
    for part in path.split("."):
        node = getattr(node, part)
    return node


def _differences(component: Any, path: str) -> list[str]:
    fields = dataclasses.fields(component)
    own = [f"{path}.{field.name}" for field in fields if field.metadata.get("difference")]
    parts = [(f"{path}.{field.name}", getattr(component, field.name)) for field in fields]
    return own + [each for name, part in parts if dataclasses.is_dataclass(part) for each in _differences(part, name)]


def is_gain(name: str) -> bool:
    """Whether more of an output is better."""
    return name in AT_LEAST or name in _SLACKS


def expand(
    run: TrainingRun, names: tuple[str, ...], vectors: Float[np.ndarray, "k n"]
) -> tuple[Float[np.ndarray, "k outputs"], Float[np.ndarray, "outputs n"]]:
    """Outputs at many vectors of numbers, and their derivatives by all numbers of the run, in SI [forward mode].

    One program does both, in chunks of one compiled size: a chunk takes milliseconds, and a program seconds to compile.
    """
    own, vector = own_outputs(names), run.vector
    points = np.concatenate([vectors, np.tile(vector, (vector.size, 1))])
    directions = np.concatenate([np.zeros_like(vectors), np.eye(vector.size)])
    values, slopes = in_chunks(lambda index: _expansion(run, points[index], directions[index], own), len(points), CHUNK)
    columns = [(*NAMES, *(own_output.name for own_output in own)).index(name) for name in names]
    return values[: len(vectors), columns], slopes[len(vectors) :, columns].T


def outputs_at(run: TrainingRun, vectors: Float[np.ndarray, "k n"]) -> Mapping[str, Float[np.ndarray, " k"]]:
    """All outputs of `NAMES` at many vectors of numbers, by name, in SI; one program for whichever numbers differ."""
    numbers = [np.asarray(leaf) for leaf in jax.tree.leaves(run)]
    call, _ = _values.of_numbers(run, np.tile(run.vector, (CHUNK, 1)))
    (columns,) = in_chunks(lambda index: call([*numbers, vectors[index]]), len(vectors), CHUNK)
    return dict(zip(NAMES, columns.T, strict=True))


def in_chunks(call: Callable[[np.ndarray], Sequence[Array]], count: int, size: int) -> list[np.ndarray]:
    """Rows of results for the indices of so many points, in chunks of one size, several at once."""

    def chunk(first: int) -> tuple[np.ndarray, ...]:
        return tuple(map(np.asarray, call(np.minimum(np.arange(first, first + size), count - 1))))

    chunks = concurrently(chunk, range(0, count, size)) if count > size else [chunk(0)]
    return [np.concatenate(parts)[:count] for parts in zip(*chunks, strict=True)]


def output_gradient(run: TrainingRun, weights: Mapping[str, float]) -> Float[np.ndarray, " n"]:
    """Derivatives of a weighted sum of outputs, one of `NAMES` or of a user, by all numbers at once, in SI."""
    return np.array(list(weights.values())) @ expand(run, tuple(weights), run.vector[None])[1]


def _outputs(run: TrainingRun, own: tuple[OwnOutput, ...]) -> Array:
    """All outputs, those of a user last. One function for any choice of them, so that it compiles once."""
    system, plan = run.system, run.plan
    outcome = evaluate(system, plan)
    values = limited_values(system, plan, outcome)
    slacks = [jnp.exp(getattr(outcome.slack, name.removeprefix("slack."))) for name in _SLACKS]
    microbatches = plan.layout.smallest_batch(plan.chips, system.workload.sequence) / jnp.mean(plan.batch)
    own_values = [own_output.function(outcome) for own_output in own]
    return jnp.stack([*(values[name] for name in OUTPUTS), *slacks, microbatches, *own_values])


@partial(Compiled, once=True)
def _expansion(run: TrainingRun, vectors: Array, directions: Array, own: tuple[OwnOutput, ...]) -> tuple[Array, Array]:
    _, build = ravel_pytree(run)
    push = partial(jax.jvp, lambda vector: _outputs(build(vector), own))
    return jax.vmap(lambda vector, direction: push((vector,), (direction,)))(vectors, directions)


@partial(Compiled, once=True)
def _values(run: TrainingRun, vectors: Array) -> Array:
    _, build = ravel_pytree(run)
    return jax.vmap(lambda vector: _outputs(build(vector), ()))(vectors)


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
        along = jax.vmap(lambda moved: jax.jvp(lambda outcome: output(outcome, name), (self.outcome,), (moved,))[1])
        return np.asarray(along(self.moved))

    def relative(self, objective: str | Mapping[str, float]) -> Float[np.ndarray, " directions"]:
        """Change of the logarithm of an output, or of a product of powers of outputs; zero where one is zero [1]."""
        if isinstance(objective, str):
            composed = "*" in objective or "^" in objective or objective == "etp"
            objective = dict(parse_objective(objective).factors) if composed else {objective: 1.0}
        parts = []
        for name, power in objective.items():
            value, change = float(output(self.outcome, name)), self.change(name)
            parts.append(power * (change / value if value else np.zeros_like(change)))
        return np.sum(parts, axis=0)


def changes_along(run: TrainingRun, steps: Float[np.ndarray, "directions n"]) -> OutcomeChanges:
    """Changes of the outputs of a run along some directions of its vector, by differences, in the caller's precision.

    The program that evaluates the run makes them: a hundred evaluations take less time than compiling a derivative.
    """
    evaluate_numbers, structure = evaluate_once.of_numbers(run.system, run.plan)
    # Calls that mix arrays of NumPy and of JAX in another way each time take ten times as long.
    numbers, changes = jax.device_put((jax.tree.leaves(run), run.moved(STEP * steps)))
    moved = [[*map(changed.get, range(len(numbers)), numbers)] for changed in changes]
    own, *ends = [[*map(np.asarray, evaluate_numbers(point))] for point in (numbers, *moved)]
    with np.errstate(invalid="ignore"):  # infinite outputs have no slope
        slopes = [(np.array(others, np.float64) - middle) / STEP for middle, *others in zip(own, *ends, strict=True)]
    return OutcomeChanges(jax.tree.unflatten(structure, own), jax.tree.unflatten(structure, slopes))
