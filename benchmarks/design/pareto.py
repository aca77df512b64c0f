"""How good and how quick is `pareto` beside NSGA-II on the README scenario, energy against time?

NSGA-II [Deb et al. 2002; pymoo] searches the same plans (batch, clock, coolant temperature, chips and every field of
the layout) with the model compiled for its whole population, and may keep fractions of replicas and micro-batches,
which `pareto` rounds. Prints time, hypervolume in the logarithms below the ends of `pareto`'s front, and its ratio.
"""

import argparse
import time

import jax
import numpy as np
from black_box import BlackBox
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import Problem
from pymoo.optimize import minimize

import energymodel as em
from energymodel.design.front import hypervolume

POPULATION = 200
OBJECTIVES = ("energy", "time")


class Plans(Problem):
    """The black box as pymoo wants it: layout genes are rounded."""

    def __init__(self, box: BlackBox) -> None:
        self.box = box
        upper = np.array([1.0] * box.continuous + [count - 1.0 for count in box.choices])
        super().__init__(n_var=len(upper), n_obj=len(OBJECTIVES), n_ieq_constr=1, xl=np.zeros(len(upper)), xu=upper)

    def _evaluate(self, x: np.ndarray, out: dict, *_: object, **__: object) -> None:
        outputs, excess = self.box.evaluate(np.resize(x, (POPULATION, x.shape[1])))
        out["F"] = np.stack([outputs[name] for name in OBJECTIVES], axis=1)[: len(x)]
        out["G"] = excess[: len(x), None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=float, nargs="*", default=[5e3, 2e4, 3e5])
    parser.add_argument("--points", type=int, default=64)
    asked = parser.parse_args()
    scenario = em.load_scenario("llama-3.1-405b-h100")
    start = time.perf_counter()
    em.pareto(scenario, OBJECTIVES, points=asked.points)
    first = time.perf_counter() - start
    start = time.perf_counter()
    front = em.pareto(scenario, OBJECTIVES, points=asked.points)
    second = time.perf_counter() - start
    ours = np.log(front.table())
    reference = ours.max(axis=0)
    volume = hypervolume(ours, reference)
    print(f"{'search':<24}{'evaluations':>13}{'s':>9}{'plans':>8}{'hypervolume':>13}{'of ours':>9}")
    print(f"{'energymodel pareto':<24}{'':>13}{second:>9.1f}{len(ours):>8}{volume:>13.5f}{1:>9.1%}")
    with jax.enable_x64(True):
        plans = Plans(BlackBox.of(scenario, free=OBJECTIVES))
        plans.evaluate(np.random.default_rng(0).random((POPULATION, plans.n_var)))  # compiles
        for evaluations in map(int, asked.evaluations):
            start = time.perf_counter()
            found = minimize(plans, NSGA2(pop_size=POPULATION), ("n_eval", evaluations), seed=1)
            took = time.perf_counter() - start
            values = np.empty((0, 2)) if found.F is None else np.atleast_2d(found.F)
            theirs = hypervolume(values, reference)
            print(
                f"{'NSGA-II':<24}{evaluations:>13,}{took:>9.1f}{len(values):>8}{theirs:>13.5f}{theirs / volume:>9.1%}"
            )
    print(f"The first call of pareto took {first:.1f} s.")


if __name__ == "__main__":
    main()
