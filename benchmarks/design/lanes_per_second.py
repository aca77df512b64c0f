"""The batched search beside loops of SLSQP, CasADi with Ipopt and (if installed) cyipopt.

All solve the same random scenarios of a design problem with 12 variables and 20 inequalities, from the same start, in
this process, in turns, and the best of `--repeats` counts. CPU time is that of all cores (user and system), which the
load of others disturbs least; the batch uses all cores, each peer one. The residual is that of the optimality
conditions of the problem as stated, from each solver's own multipliers; those of SLSQP's bounds are what its gradient
leaves. The second table asks who calls which of the tight scenarios infeasible.
"""

import argparse
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import casadi
import jax
import numpy as np
import scipy.optimize

from energymodel.solver import RESULTS, Solution, Values, minimize_many

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from solver import reference_problem as reference

CYIPOPT: Any = import_module("cyipopt") if find_spec("cyipopt") else None  # its wheels are for few machines
TOLERANCE = 1e-8
SIZE, ROWS = 12, 20
NEAR = 1e-6  # distance at which a bound is taken to hold a variable


class End(NamedTuple):
    """What a peer returns: x, multipliers of the rows, of the lower and of the upper bounds, iterations, success."""

    x: np.ndarray
    y: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    iterations: int
    success: bool


def objective(x: Any, scenario: Any) -> Values:
    return Values(*reference.problem(x, scenario))


f = jax.jit(lambda x, s: reference.problem(x, s)[0])
g = jax.jit(lambda x, s: reference.problem(x, s)[1])
df, dg = jax.jit(jax.grad(f)), jax.jit(jax.jacobian(g))
hessian = jax.jit(jax.hessian(lambda x, s, y, factor: factor * f(x, s) + y @ g(x, s)))


def batched(scenarios: np.ndarray) -> Solution:
    start = np.tile(reference.START, (len(scenarios), 1))
    return minimize_many(objective, start, (scenarios,), bounds=(reference.LOWER, reference.UPPER))


def slsqp(s: np.ndarray) -> End:
    answer = scipy.optimize.minimize(
        lambda x: float(f(x, s)),
        reference.START,
        jac=lambda x: np.asarray(df(x, s)),
        bounds=np.stack([reference.LOWER, reference.UPPER], axis=1),
        constraints={"type": "ineq", "fun": lambda x: -np.asarray(g(x, s)), "jac": lambda x: -np.asarray(dg(x, s))},
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )
    pull = np.asarray(df(answer.x, s)) + answer.multipliers @ np.asarray(dg(answer.x, s))
    lower = np.where(answer.x - reference.LOWER < NEAR, np.maximum(pull, 0.0), 0.0)
    upper = np.where(reference.UPPER - answer.x < NEAR, np.maximum(-pull, 0.0), 0.0)
    return End(answer.x, answer.multipliers, lower, upper, answer.nit, answer.success)


class CasadiNumbers:
    """The functions that the problem needs, in CasADi."""

    exp, log, tanh, sum = casadi.exp, casadi.log, casadi.tanh, casadi.sum1

    @staticmethod
    def concatenate(parts: Any) -> Any:
        """One vector of many parts."""
        return casadi.vertcat(*parts)


def casadi_ipopt() -> Callable[[np.ndarray], End]:
    """One solver for all scenarios: they are its parameters."""
    x, p = casadi.SX.sym("x", SIZE), casadi.SX.sym("p", SIZE)
    value, rows = reference.problem(x, p, CasadiNumbers)
    silent = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": TOLERANCE}
    solver = casadi.nlpsol("solver", "ipopt", {"x": x, "p": p, "f": value, "g": rows}, silent)

    def solve(s: np.ndarray) -> End:
        bounds = {"lbx": reference.LOWER, "ubx": reference.UPPER, "lbg": -np.inf, "ubg": 0.0}
        answer = solver(x0=reference.START, p=s, **bounds)
        x, y, dual = (np.asarray(answer[name])[:, 0] for name in ("x", "lam_g", "lam_x"))
        stats = solver.stats()
        return End(x, y, np.maximum(-dual, 0), np.maximum(dual, 0), stats["iter_count"], stats["success"])

    return solve


def cyipopt_jax(s: np.ndarray) -> End:
    triangle = np.tril_indices(SIZE)
    steps = [0]

    class Problem:
        def objective(self, x: np.ndarray) -> float:
            return float(f(x, s))

        def gradient(self, x: np.ndarray) -> np.ndarray:
            return np.asarray(df(x, s))

        def constraints(self, x: np.ndarray) -> np.ndarray:
            return np.asarray(g(x, s))

        def jacobian(self, x: np.ndarray) -> np.ndarray:
            return np.asarray(dg(x, s)).ravel()

        def hessianstructure(self) -> Any:
            return triangle

        def hessian(self, x: np.ndarray, y: np.ndarray, factor: float) -> np.ndarray:
            return np.asarray(hessian(x, s, y, factor))[triangle]

        def intermediate(self, mode: int, iteration: int, *_: float) -> bool:
            steps[0] = iteration
            return True

    limits = np.full(ROWS, -np.inf), np.zeros(ROWS)
    solver = CYIPOPT.Problem(SIZE, ROWS, Problem(), reference.LOWER, reference.UPPER, *limits)
    for name, value in {"print_level": 0, "sb": "yes", "tol": TOLERANCE}.items():
        solver.add_option(name, value)
    x, info = solver.solve(reference.START)
    return End(x, info["mult_g"], info["mult_x_L"], info["mult_x_U"], steps[0], info["status"] == 0)


def residual(end: End, s: np.ndarray) -> float:
    """Largest violation of the optimality conditions [Nocedal & Wright 2006, theorem 12.1]."""
    rows = np.asarray(g(end.x, s))
    stationarity = np.asarray(df(end.x, s)) + end.y @ np.asarray(dg(end.x, s)) - end.lower + end.upper
    products = [end.y * rows, end.lower * (end.x - reference.LOWER), end.upper * (reference.UPPER - end.x)]
    return float(np.max(np.abs(np.concatenate([stationarity, np.maximum(rows, 0.0), *products]))))


class Timed(NamedTuple):
    """Milliseconds of CPU and of wall for each problem."""

    cpu: float
    wall: float


def timed(solve: Callable[[], Any], count: int) -> tuple[Any, Timed]:
    """What a solver returns for so many problems, and its times."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = solve()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return result, Timed(1e3 * cpu / count, 1e3 * wall / count)


def line(name: str, times: list[Timed], ends: list[End], scenarios: np.ndarray, ours: list[Timed]) -> str:
    residuals = np.array([residual(end, s) for end, s in zip(ends, scenarios, strict=True)])
    iterations = np.array([end.iterations for end in ends])
    (cpu, wall), (our_cpu, our_wall) = (np.min(own, axis=0) for own in (times, ours))
    return (
        f"{name:<24}{len(ends):>8}{cpu:>9.3f}{cpu / our_cpu:>7.1f}{wall:>9.3f}{wall / our_wall:>7.1f}"
        f"{np.mean(residuals <= TOLERANCE):>13.1%}{np.median(residuals):>17.1e}"
        f"{np.median(iterations):>12.0f}{iterations.max():>6}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", type=int, default=4096)
    parser.add_argument("--loop", type=int, default=64, help="scenarios that each peer solves")
    parser.add_argument("--tight", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    sizes = parser.parse_args()
    with jax.enable_x64(True):
        run(sizes.lanes, sizes.loop, sizes.tight, sizes.repeats)


def run(lanes: int, loop: int, tight: int, repeats: int) -> None:
    scenarios = reference.scenarios(lanes)
    _, first = timed(lambda: batched(scenarios), 1)
    ipopt = casadi_ipopt()
    peers = {"loop of SLSQP": slsqp, "loop of CasADi + Ipopt": ipopt, "loop of cyipopt": cyipopt_jax}
    if CYIPOPT is None:
        del peers["loop of cyipopt"]
    for solve in peers.values():
        solve(scenarios[0])  # compiles
    solution, ours, result = batched(scenarios), [], {}
    times: dict[str, list[Timed]] = {name: [] for name in peers}
    for _ in range(repeats):
        solution, spent = timed(lambda: batched(scenarios), lanes)
        ours.append(spent)
        for name, solve in peers.items():
            result[name], spent = timed(lambda solve=solve: [solve(s) for s in scenarios[:loop]], loop)
            times[name].append(spent)
    m = solution.multipliers
    parts = (solution.x, m.inequalities, m.lower, m.upper, solution.iterations, solution.result == RESULTS.successful)
    ends = [End(*parts) for parts in zip(*map(np.asarray, parts), strict=True)]
    print(f"{'solver':<24}{'solved':>8}{'CPU ms':>9}{'times':>7}{'wall ms':>9}{'times':>7}{'KKT <= 1e-8':>13}", end="")
    print(f"{'median residual':>17}{'iterations':>12}{'most':>6}")
    print(line("energymodel", ours, ends, scenarios, ours))
    for name in peers:
        print(line(name, times[name], result[name], scenarios[:loop], ours))
    print("" if CYIPOPT else f"{'loop of cyipopt':<24} not installed")
    compiled = first.cpu - lanes * min(timing.cpu for timing in ours)
    print(f"The first call took {first.cpu / 1e3:.1f} CPU-seconds, of which {compiled / 1e3:.1f} to compile.\n")

    scenarios = reference.tight_scenarios(tight)
    solution = batched(scenarios)
    infeasible = np.asarray(solution.result == RESULTS.infeasible)
    ended = infeasible | np.asarray(solution.result == RESULTS.successful)
    theirs = np.array([not ipopt(s).success for s in scenarios])
    print(
        f"{tight} tight scenarios: {np.sum(infeasible)} infeasible, {np.sum(~ended)} without a verdict, at most "
        f"{solution.iterations.max()} iterations; the verdict of Ipopt on {np.sum(ended & (infeasible == theirs))}"
    )


if __name__ == "__main__":
    main()
