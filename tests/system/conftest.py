"""Scenarios, and how their outputs respond to every number that they are made of."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.scenarios.scenario import Scenario, leaf_paths, load_scenario
from energymodel.system.evaluate import evaluate, evaluate_once
from gradients import interpreted

MEASURES = ("loss", "time", "energy", "money", "carbon")
PARTS = 4  # of the leaves whose differences are taken together
MOST_RUNS = 25  # whose gradients are taken together
STEP = 1e-4  # of a leaf; with differences of fourth order truncation and rounding are both below 1e-9
OFFSETS = np.arange(-4, 5)
FORWARD = np.array([-25.0 / 12.0, 4.0, -3.0, 4.0 / 3.0, -0.25])  # at 0, 1, 2, 3, 4 steps [Fornberg 1988, table 3]
CENTRAL = np.array([1.0 / 12.0, -2.0 / 3.0, 0.0, 2.0 / 3.0, -1.0 / 12.0])  # at -2 to 2 steps [Fornberg 1988, table 1]
LIMIT = np.array([4.0, -6.0, 4.0, -1.0])  # extrapolates from 1, 2, 3, 4 steps to 0, by a cubic


EXTREME_PLANS = {
    "ten million chips": {"chips": 1.28e7},
    "one chip": {"chips": 1.0, "layout.tensor": 1.0, "layout.pipeline": 1.0, "layout.virtual_stages": 1.0},
    "tiny batch": {"batch": 1.0},
    "huge batch": {"batch": 1e12},
    "few tokens": {"goal.tokens": 1e3},
    "many tokens": {"goal.tokens": 1e18},
    "lowest clock": {"clock": 0.01},
    "above the reference clock": {"clock": 1.2},
    "no power": {"power_cap": 1e-3},
    "hot coolant": {"coolant_temperature": 500.0},
    "frozen coolant": {"coolant_temperature": 200.0},
    "one long pipeline": {"layout.pipeline": 126.0, "layout.virtual_stages": 1.0, "chips": 1008.0},
    "no sequence parallelism": {"layout.sequence_parallel": 0.0},
}


class Response(NamedTuple):
    """How `MEASURES` respond to each leaf, per change by its size: its absolute value, `SIZE_OF_ZERO`, or 1."""

    leaves: list[str]
    value: np.ndarray
    gradient: np.ndarray
    central: np.ndarray
    backward: np.ndarray
    forward: np.ndarray
    jump: np.ndarray
    unread: np.ndarray

    def faults(self) -> list[str]:
        """Leaves whose gradient is not finite, not the slope, not between the slopes at a kink, or not exactly zero.

        Two numbers are the same if they differ by 1e-5 of the larger of the slope and a thousandth of the output.
        """
        allowed = 1e-5 * np.maximum(np.abs(self.gradient), 1e-3 * np.abs(self.value))
        smooth = np.abs(self.gradient - self.central) <= allowed
        lower, upper = np.minimum(self.backward, self.forward), np.maximum(self.backward, self.forward)
        between = (lower - allowed <= self.gradient) & (self.gradient <= upper + allowed)
        right = (smooth | between) & ~self.jump & np.isfinite(self.gradient)
        right &= ~self.unread | (self.gradient == 0.0)
        return [
            f"{self.leaves[i]} -> {MEASURES[k]}: gradient {self.gradient[i, k]:.9g}, central {self.central[i, k]:.9g}, "
            f"backward {self.backward[i, k]:.9g}, forward {self.forward[i, k]:.9g}, output {self.value[k]:.3g}"
            for i, k in zip(*np.nonzero(~right), strict=True)
            if self.leaves[i] not in WITHOUT_SIZE
        ]


WITHOUT_SIZE = {"system.network.bus_share"}
"""Numbers whose zero stands for none at all: next to it they are far too small."""

SIZE_OF_ZERO = {"system.network.topology.hop_latency": 1e-6, "system.node.collectives.start_latency": 1e-6}
"""Sizes [s] of numbers that may be zero and are far below 1."""


@pytest.fixture(scope="session")
def scenario() -> Callable[..., Scenario]:
    """Load a preset scenario, with changes as on the command line."""
    return lru_cache(lambda name, *changes: load_scenario(name, changes))


@pytest.fixture(scope="session")
def extreme_plans() -> Callable[[Any], dict[str, Any]]:
    """Plans at and beyond what can be built, from a plan of Llama 3.1 405B."""
    return lambda plan: {name: _changed(plan, changes) for name, changes in EXTREME_PLANS.items()}


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """`evaluate`, compiled once for each kind of system and plan, in the programs of the command line."""
    return evaluate_once


@pytest.fixture(scope="session")
def gradients() -> Callable[..., Any]:
    """Leaves of runs of one kind, and gradients of outputs by each per change by its size [run, leaf, output]."""
    slopes = interpreted(jax.vmap(_slopes))

    def gradients(runs: Sequence[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
        filled = [*runs, *[runs[-1]] * (MOST_RUNS - len(runs))]  # operations of one shape are compiled once
        gradient = np.asarray(slopes(*jax.tree.map(lambda *leaves: np.stack(leaves), *filled)))
        system, plan = runs[0]
        return np.array(leaf_paths(system, "system") + leaf_paths(plan, "plan")), gradient[: len(runs)]

    return gradients


@pytest.fixture(scope="session")
def respond(gradients: Callable[..., Any]) -> Callable[..., list[Response]]:
    """Compare the gradient of each output for each leaf of runs of one kind with differences of fourth order.

    `parts`: those of the leaves that are compared in each run, of which every `PARTS`th belongs to one.
    """
    values_near = interpreted(_values_near)

    def respond(runs: Sequence[tuple[Any, Any]], parts: Sequence[Sequence[int]]) -> list[Response]:
        leaves, gradient = gradients(runs)
        return [compare(leaves, *each) for each in zip(gradient, parts, runs, strict=True)]

    def compare(leaves: np.ndarray, gradient: np.ndarray, parts: Sequence[int], run: tuple[Any, Any]) -> Response:
        of_parts = [np.arange(part, len(leaves), PARTS) for part in parts]
        most = -(-len(leaves) // PARTS)
        near = np.concatenate([values_near(*run, np.resize(rows, most))[: len(rows)] for rows in of_parts])
        rows = np.concatenate(of_parts)
        values, without = near[:, :-1], near[:, -1]
        center = values[:, 4]
        slope = {
            "central": np.einsum("o,iok->ik", CENTRAL, values[:, 2:7]) / STEP,
            "backward": -np.einsum("o,iok->ik", FORWARD, values[:, 4::-1]) / STEP,
            "forward": np.einsum("o,iok->ik", FORWARD, values[:, 4:]) / STEP,
        }
        limits = np.einsum("o,iok->ik", LIMIT, values[:, 3::-1]), np.einsum("o,iok->ik", LIMIT, values[:, 5:])
        constant = np.all(values == center[:, None], axis=1)
        jump = np.any(np.abs(np.stack(limits) - center) > 1e-8 * np.abs(center), axis=0)
        unread = np.isfinite(without) & constant
        return Response(list(leaves[rows]), center[0], gradient[rows], **slope, jump=jump, unread=unread)

    return respond


def _measures(system: Any, plan: Any) -> jax.Array:
    outcome = evaluate(system, plan)
    return jnp.stack([outcome.loss, outcome.time, outcome.energy.total, outcome.money, outcome.carbon])


def _sizes(system: Any, plan: Any) -> list[jax.Array]:
    """Of each leaf, by which it is changed."""
    paths = leaf_paths(system, "system") + leaf_paths(plan, "plan")
    leaves = zip(paths, jax.tree.leaves((system, plan)), strict=True)
    return [jnp.where(leaf == 0.0, SIZE_OF_ZERO.get(path, 1.0), jnp.abs(leaf)) for path, leaf in leaves]


def _slopes(system: Any, plan: Any) -> jax.Array:
    """The Jacobian in reverse mode, times the size of each leaf [leaf, output]."""
    _, pull_back = jax.vjp(_measures, system, plan)
    slopes = jax.tree.leaves(jax.vmap(pull_back, out_axes=-1)(jnp.eye(len(MEASURES))))
    return jnp.concatenate(
        [jnp.reshape(size * slope, (1, -1)) for size, slope in zip(_sizes(system, plan), slopes, strict=True)]
    )


def _values_near(system: Any, plan: Any, rows: jax.Array) -> jax.Array:
    """Outputs at `OFFSETS` of some leaves, and last where the leaf is not a number [leaf, offset, output].

    Outputs that do not read the leaf stay as they are where it is not a number.
    """
    leaves, structure = jax.tree.flatten((system, plan))
    sizes = _sizes(system, plan)

    def moved(row: jax.Array, offset: jax.Array) -> jax.Array:
        steps = enumerate(zip(leaves, sizes, strict=True))
        changed = [leaf + jnp.where(row == index, offset * size, 0.0) for index, (leaf, size) in steps]
        return _measures(*jax.tree.unflatten(structure, changed))

    offsets = jnp.append(jnp.asarray(OFFSETS, float) * STEP, jnp.nan)
    return jax.vmap(jax.vmap(moved, in_axes=(None, 0)), in_axes=(0, None))(rows, offsets)


def _changed(plan: Any, changes: dict[str, float]) -> Any:
    for name, value in changes.items():
        holder, _, leaf = name.rpartition(".")

        def where(p: Any, holder: str = holder, leaf: str = leaf) -> Any:
            return getattr(getattr(p, holder) if holder else p, leaf)

        plan = eqx.tree_at(where, plan, np.full(np.shape(where(plan)), value))
    return plan
