"""Which programs of a search can be compiled, or loaded, while it is busy with something else?"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import jax
import numpy as np

from energymodel.design.finish import finish, finished_plan
from energymodel.design.layout_search import layout_bounds, solve_lanes
from energymodel.design.layouts import Lattice, take
from energymodel.design.problem import Problem
from energymodel.presets.scenario import Scenario
from energymodel.solver.minimize_many import round_all

_GLANCE = 0.02  # [s] between two looks at whether the solver is traced


@contextmanager
def solver_foreseen() -> Iterator[None]:
    """Load the solver that was used last in a thread, while something else is done."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(round_all.preload)
        yield


@contextmanager
def programs_ahead(scenario: Scenario, problem: Problem, layout: Lattice) -> Iterator[None]:
    """Make the solver and what tells plan and outcome ready in threads, in the first search of a process.

    Tracing needs the interpreter for itself; the compiler does not, and it takes longest on the solver. So the solver
    is traced before anything else (`benchmarks/second_run.py`).
    """
    with ThreadPoolExecutor() as threads:
        if finish.unused:
            solver = threads.submit(_load_solver, problem, layout)
            while not (round_all.traced or solver.done()):
                time.sleep(_GLANCE)
            threads.submit(_load_finish, scenario, problem, layout)
        yield


def _load_solver(problem: Problem, layout: Lattice) -> None:
    """Compile the solver by using it; what fails here fails again where it is needed."""
    with jax.enable_x64(True):  # a thread starts with the default
        solve_lanes(problem, layout, _middle(problem, layout), iterations=1)


def _load_finish(scenario: Scenario, problem: Problem, layout: Lattice) -> None:
    """Compile what tells plan and outcome of a point."""
    with jax.enable_x64(True):
        point = _middle(problem, layout)[0]
        finished_plan(scenario, problem, point, None, take(layout, np.array(0)), problem.target)


def _middle(problem: Problem, layout: Lattice) -> np.ndarray:
    least, most = layout_bounds(problem, layout)
    return 0.5 * (least + most)
