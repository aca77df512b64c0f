"""Does annealing find the best layout of the README scenario with fewer evaluations than comparing all?

The cost of a layout is its best merit on the fine grid of `optimize`'s screening. Prints, for simulated and
path-integral annealing at growing budgets, the share of 64 runs that find the best layout, the median excess of the
others, and the share of the lattice that a run asks for.
"""

import jax
import numpy as np

import energymodel as em
from energymodel.codesign.annealing import anneal, neighbors
from energymodel.design.layouts import take
from energymodel.design.problem import formulate
from energymodel.design.relaxation import FINE, fitting_layouts, screen

BUDGETS = (100, 1_000, 10_000)


def main() -> None:
    scenario = em.load_scenario("llama-3.1-405b-h100")
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, jax.jit(em.evaluate)(scenario.system, scenario.plan))
        problem = formulate(scenario, baseline)
        lattice, _ = fitting_layouts(problem)
        costs = screen(problem, lattice, FINE).merit
    finite = np.isfinite(costs)
    costs, lattice = costs[finite], take(lattice, finite)
    moves = neighbors(np.stack([np.log2(np.maximum(leaf, 0.5)) for leaf in jax.tree.leaves(lattice)], axis=1))
    print(f"{len(costs)} layouts; enumeration asks for all of them once and is exact")
    for method in ("simulated", "path-integral"):
        for steps in BUDGETS:
            found = anneal(costs, moves, steps=steps, method=method)
            excess = np.expm1(found.cost - costs.min())
            best, asked = np.mean(excess < 1e-12), np.mean(found.asked) / len(costs)
            print(
                f"{method:>13}, {steps:>6} moves: best found by {best:4.0%} of 64 runs, median excess "
                f"{100 * np.median(excess):6.2f} %, {asked:5.1%} of the layouts asked for"
            )


if __name__ == "__main__":
    main()
