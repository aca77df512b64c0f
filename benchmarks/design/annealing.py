"""Annealing for the best layout of the README scenario, against comparing all.

Simulated annealing, and path-integral annealing, which lets a ring of replicas tunnel [docs/physics.md A0.14 b]. The
cost of a layout is its best merit on the fine grid of `optimize`'s screening. Prints, for both methods at growing
budgets, the share of 64 runs that find the best layout, the median excess of the others, and the share of the lattice
that a run asks for; then the energy of the best plan that the interior point of `optimize` finds, and what it finds in
the layout that annealing chose.
"""

import time
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

import energymodel as em
from energymodel.search.layout_search import search_layouts
from energymodel.search.layouts import fitting_layouts, take
from energymodel.search.problem import DesignProblem, formulate
from energymodel.search.relaxation import FINE, screen, solve_relaxed
from energymodel.system.evaluate import evaluate_once

BUDGETS = (100, 1_000, 10_000)
COLDEST = 1e-4  # of the spread of costs: the last temperature
REPLICAS = 8
FIELD = 1.0  # of the spread of costs: the first transverse field


class Annealed(NamedTuple):
    """Where the walkers ended: best place and cost of each, and how many different places it evaluated."""

    position: Int[np.ndarray, " walkers"]
    cost: Float[np.ndarray, " walkers"]
    asked: Int[np.ndarray, " walkers"]


def neighbors(coordinates: Float[np.ndarray, "places fields"]) -> Int[np.ndarray, "places moves"]:
    """Places that one step along one coordinate reaches; places without a neighbor there point to themselves.

    Two moves for each coordinate that varies, down and up to the next place with all else equal.
    """
    count, fields = coordinates.shape
    moves = []
    for field in range(fields):
        if np.ptp(coordinates[:, field]) == 0.0:
            continue
        others = np.delete(coordinates, field, axis=1)
        order = np.lexsort((coordinates[:, field], *others.T))
        same = np.all(others[order[1:]] == others[order[:-1]], axis=1)
        up, down = np.arange(count), np.arange(count)
        up[order[:-1][same]], down[order[1:][same]] = order[1:][same], order[:-1][same]
        moves += [down, up]
    return np.stack(moves, axis=1) if moves else np.arange(count)[:, None]


def anneal(
    costs: Float[np.ndarray, " places"],
    moves: Int[np.ndarray, "places moves"],
    *,
    steps: int,
    walkers: int = 64,
    method: Literal["simulated", "path-integral"] = "simulated",
    seed: int = 0,
) -> Annealed:
    """Walk downhill with noise that dies away, by Metropolis steps [Kirkpatrick et al. 1983].

    Simulated: the temperature falls geometrically from the spread of the costs. Path-integral: at a low temperature T,
    P replicas of a walker on a ring attract each other where they stand at the same place, with the strength
    `J = -T/2 ln tanh(G / (P T))` of a transverse field G that falls to zero [Martonak et al. 2002].

    **Arguments:**

    - `costs`: finite costs of all places, such as the logarithm of energy of every layout [1].
    - `moves`: from `neighbors`.
    - `steps`: moves that each walker tries; a replica counts as a walker's moves, so both methods cost the same.
    - `walkers`: independent runs, which show the chance of success.

    **Raises:** `ValueError` for a cost that is not finite.
    """
    if not np.all(np.isfinite(costs)):
        raise ValueError("anneal: a cost is not finite. Leave those places out, or give them a large finite cost.")
    random = np.random.default_rng(seed)
    replicas = REPLICAS if method == "path-integral" else 1
    spread = float(np.ptp(costs)) or 1.0
    position = random.integers(len(costs), size=(walkers, replicas))
    seen = np.zeros((walkers, len(costs)), bool)
    best, who = position.copy(), np.arange(walkers)
    sweeps = max(1, steps // replicas)
    for sweep in range(sweeps):
        left = 1.0 - sweep / sweeps
        temperature = spread * COLDEST ** (1.0 - left) if replicas == 1 else spread * COLDEST**0.5
        field = max(FIELD * spread * left, 1e-12)
        coupling = -0.5 * temperature * np.log(np.tanh(field / (replicas * temperature)))
        for replica in range(replicas):
            now = position[:, replica]
            asked = moves[now, random.integers(moves.shape[1], size=walkers)]
            rise = (costs[asked] - costs[now]) / replicas
            if replicas > 1:
                ring = position[:, [replica - 1, (replica + 1) % replicas]]
                rise += coupling * (_agree(ring, now) - _agree(ring, asked))
            accepted = random.random(walkers) < np.exp(-np.maximum(rise, 0.0) / temperature)
            seen[who, asked] = True
            position[:, replica] = np.where(accepted, asked, now)
            better = costs[position[:, replica]] < costs[best[:, replica]]
            best[:, replica] = np.where(better, position[:, replica], best[:, replica])
    winner = best[who, np.argmin(costs[best], axis=1)]
    return Annealed(winner, costs[winner], seen.sum(axis=1))


def _agree(ring: Int[np.ndarray, "walkers two"], position: Int[np.ndarray, " walkers"]) -> Int[np.ndarray, " walkers"]:
    same: Bool[np.ndarray, "walkers two"] = ring == position[:, None]
    return same.sum(axis=1)


def main() -> None:
    scenario = em.load_scenario("llama-3.1-405b-h100")
    with jax.enable_x64(True):
        run(formulate(scenario, jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))))


def run(problem: DesignProblem) -> None:
    lattice, _ = fitting_layouts(problem)
    screened = screen(problem, lattice, FINE)
    finite = np.isfinite(screened.merit)
    costs, lattice, starts = screened.merit[finite], take(lattice, finite), screened.start[finite]
    moves = neighbors(np.stack([np.log2(np.maximum(leaf, 0.5)) for leaf in jax.tree.leaves(lattice)], axis=1))
    print(f"{len(costs)} layouts; enumeration asks for all of them once and is exact")
    position = 0
    for method in ("simulated", "path-integral"):
        for steps in BUDGETS:
            start = time.perf_counter()
            result = anneal(costs, moves, steps=steps, method=method)
            seconds = time.perf_counter() - start
            position = int(result.position[np.argmin(result.cost)])
            excess = np.expm1(result.cost - costs.min())
            best, asked = np.mean(excess < 1e-12), np.mean(result.asked) / len(costs)
            print(
                f"{method:>13}, {steps:>6} moves: best found by {best:4.0%} of 64 runs, median excess "
                f"{100 * np.median(excess):6.2f} %, {asked:5.1%} of the layouts asked for, {seconds:.2f} s"
            )
    start = time.perf_counter()
    searched = search_layouts(problem, lattice)
    seconds = time.perf_counter() - start
    least = searched.solution.value[searched.best]
    within = solve_relaxed(problem, take(lattice, np.array([position])), starts[[position]]).value[0]
    print(
        f"interior point: {seconds:.0f} s with compilation, {np.exp(least):.5g} J; in the layout that annealing found, "
        f"{100.0 * np.expm1(within - least):.2f} % more"
    )


if __name__ == "__main__":
    main()
