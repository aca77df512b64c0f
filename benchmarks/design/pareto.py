"""`pareto` beside NSGA-II on the README scenario, energy against time.

NSGA-II [Deb et al. 2002; pymoo] searches the same plans (batch, clock, coolant temperature, chips and every field of
the layout) with the model compiled for its whole population, and may keep fractions of replicas and micro-batches,
which `pareto` rounds. Prints time, hypervolume in the logarithms below the worst of all fronts, and its ratio.
"""

import argparse
import time

import jax
import numpy as np
from black_box import BlackBox
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import Problem
from pymoo.indicators.hv import HV
from pymoo.optimize import minimize

import energymodel as em

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
    result, times = {"energymodel pareto": np.log(front.table())}, [second]
    with jax.enable_x64(True):
        plans = Plans(BlackBox.of(scenario, free=OBJECTIVES))
        plans.evaluate(np.random.default_rng(0).random((POPULATION, plans.n_var)))  # compiles
        for evaluations in map(int, asked.evaluations):
            start = time.perf_counter()
            best = minimize(plans, NSGA2(pop_size=POPULATION), ("n_eval", evaluations), seed=1).F
            times.append(time.perf_counter() - start)
            result[f"NSGA-II, {evaluations:,} evaluations"] = np.empty((0, 2)) if best is None else np.atleast_2d(best)
    reference = np.max(np.concatenate(list(result.values())), axis=0)
    volumes = [HV(ref_point=reference)(values) if len(values) else 0.0 for values in result.values()]
    print(f"{'search':<32}{'s':>9}{'plans':>8}{'hypervolume':>13}{'of ours':>9}")
    for (name, values), took, volume in zip(result.items(), times, volumes, strict=True):
        print(f"{name:<32}{took:>9.1f}{len(values):>8}{volume:>13.5f}{volume / volumes[0]:>9.1%}")
    print(f"The first call of pareto took {first:.1f} s.")


if __name__ == "__main__":
    main()
