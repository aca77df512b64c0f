"""The gradient search on the README scenario beside random search and Bayesian optimization.

Energy under the limits of the scenario. First within the layout of the best plan, where runs of the gradient search, of
random search and of Optuna's TPE with constraints [Bergstra et al. 2011] may evaluate the model equally often; then
over all layouts, where random search may evaluate it as often as `optimize`, and TPE as often as is asked for: each of
its trials takes longer than the last. A derivative along one variable counts as one evaluation. Prints the evaluations,
the time and the excess over the least energy known; medians of the runs, "none" where half of them find no plan
within the limits.
"""

import argparse
import time
from collections.abc import Callable

import jax
import numpy as np
import optuna
from black_box import BlackBox

import energymodel as em
from energymodel.search.layout_search import PROMISING, search_layouts
from energymodel.search.layouts import take
from energymodel.search.relaxation import COARSE, FINE, layout_bounds, solve_relaxed

CHUNK = 4096
RUNS = 5
TRIALS = 6  # step lengths that the interior point tries at once


def evaluations_of(iterations: int, variables: int) -> int:
    """Of the gradient search: a Jacobian at n + 1 points, and two rounds of trial steps, in each iteration."""
    return iterations * ((variables + 1) ** 2 + 2 * TRIALS)


def random_search(evaluate: Callable, draw: Callable, count: int, seed: int) -> float:
    """Least energy (logarithm) within the limits among so many random plans."""
    random, best = np.random.default_rng(seed), np.inf
    for first in range(0, count, CHUNK):
        energy, excess = evaluate(draw(random, CHUNK))
        part = slice(0, min(CHUNK, count - first))
        best = min(best, float(np.min(np.where(excess <= 0.0, energy, np.inf)[part])))
    return best


def tpe(evaluate: Callable, upper: np.ndarray, continuous: int, count: int, seed: int) -> float:
    """The same by so many trials of TPE."""
    sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=lambda trial: (trial.user_attrs["excess"],))
    study = optuna.create_study(sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        genes = [trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(continuous)]
        genes += [trial.suggest_int(f"x{i}", 0, int(upper[i])) for i in range(continuous, len(upper))]
        energy, excess = evaluate(np.array([genes]))
        trial.set_user_attr("excess", float(excess[0]))
        return float(np.nan_to_num(energy[0], nan=1e3))

    study.optimize(objective, n_trials=count)
    within = [trial.value for trial in study.trials if trial.user_attrs["excess"] <= 0.0]
    return min((value for value in within if value is not None), default=np.inf)


def line(name: str, evaluations: int, seconds: float, optima: list[float], least: float) -> str:
    excess = float(np.median(optima)) - least
    excess_text = f"{100.0 * np.expm1(excess):.3g} %" if np.isfinite(excess) else "none"
    return f"{name:<34}{evaluations:>13,}{seconds:>9.2f}{excess_text:>18}"


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="of TPE over all layouts")
    asked = parser.parse_args()
    scenario = em.load_scenario("llama-3.1-405b-h100")
    with jax.enable_x64(True):
        run(BlackBox.of(scenario), asked.trials)


def run(box: BlackBox, trials: int) -> None:
    problem, variables = box.problem, box.continuous
    search_layouts(problem, box.lattice)  # compiles
    start = time.perf_counter()
    searched = search_layouts(problem, box.lattice)
    seconds = time.perf_counter() - start
    best = searched.best
    least = float(searched.solution.value[best])
    index = int(box.layouts(box.genes_of(take(searched.lattice, np.array([best]))))[0])

    print(f"{'search':<34}{'evaluations':>13}{'s':>9}{'above the least':>18}")
    layout = take(box.lattice, np.array([index]))
    low, high = layout_bounds(problem, layout)
    starts = np.random.default_rng(0).random((RUNS, variables))
    start = time.perf_counter()
    alone = [solve_relaxed(problem, layout, low + share * (high - low)) for share in starts]
    took = (time.perf_counter() - start) / RUNS
    count = evaluations_of(int(np.median([search.iterations[0] for search in alone])), variables)
    print("within the layout of the best plan, medians of", RUNS, "runs")
    print(line("  gradient search", count, took, [float(search.value[0]) for search in alone], least))
    genes = box.genes_of(layout)

    def within(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return box.energy(np.concatenate([shares, np.repeat(genes, len(shares), axis=0)], axis=1))

    compare(within, np.ones(variables), variables, count, count, RUNS, least)

    print("over all layouts")
    points = [len(box.lattice.tensor) * count_of(COARSE), PROMISING * count_of(FINE)]
    count = sum(points) + evaluations_of(int(np.sum(searched.solution.iterations)), variables)
    print(line("  gradient search", count, seconds, [least], least))
    upper = np.array([1.0] * variables + [choices - 1.0 for choices in box.choices])
    compare(box.energy, upper, variables, count, trials, 1, least)


def compare(
    evaluate: Callable, upper: np.ndarray, continuous: int, count: int, trials: int, runs: int, least: float
) -> None:
    """Lines of the searches without gradients."""

    def draw(random: np.random.Generator, lines: int) -> np.ndarray:
        shares = random.random((lines, len(upper)))
        return np.where(np.arange(len(upper)) < continuous, shares, np.floor(shares * (upper + 1.0)))

    for name, search, allowed in (
        ("  random search", lambda seed: random_search(evaluate, draw, count, seed), count),
        ("  Optuna TPE", lambda seed: tpe(evaluate, upper, continuous, trials, seed), trials),
    ):
        start = time.perf_counter()
        result = [search(seed) for seed in range(runs)]
        print(line(name, allowed, (time.perf_counter() - start) / runs, result, least))


def count_of(steps: dict[str, np.ndarray]) -> int:
    """Points of a grid."""
    return int(np.prod([len(values) for values in steps.values()]))


if __name__ == "__main__":
    main()
