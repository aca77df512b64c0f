"""The programs that a search compiles, their sizes and their costs.

Prints for each program of `optimize` on the README scenario its equations, its lines of HLO, CPU seconds to trace and
lower it, and CPU seconds to compile and milliseconds to run it: with the project's options, with and without optimized
machine code, and with XLA's defaults. Then the gradient of the energy of a run by all numbers, by `jax.jit` and by
`em.jit`, and the equations of `evaluate` by the function that makes them, those of the functions it calls among them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import energymodel as em
from energymodel.runtime.compilation import Compiled, compiler_options
from energymodel.runtime.operations import CALLS, with_barriers
from energymodel.search.problem import formulate
from energymodel.search.relaxation import CHUNK, EXPANDED, model_expansion, model_values, pack
from energymodel.system.evaluate import evaluate_once

REPEATS = 20
SHOWN = 40  # functions
PACKAGE = "/energymodel/"


class Cost(NamedTuple):
    """Size of a program, CPU seconds to make it, and by options those to compile it and to run it once."""

    equations: int
    lines: int
    trace: float
    lower: float
    compiled: dict[str, tuple[float, float]]


def equations(jaxpr: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """For each equation of a program the functions of this package that it stands in, the outermost first."""
    for equation in jaxpr.eqns:
        traceback = equation.source_info.traceback
        frames = reversed(traceback.frames) if traceback else ()
        stack = above + tuple(
            f"{frame.file_name.rpartition(PACKAGE)[2]}: {frame.function_name}"
            for frame in frames
            if PACKAGE in frame.file_name
        )
        inner = [value.jaxpr for value in equation.params.values() if hasattr(value, "jaxpr")]
        if equation.primitive.name not in CALLS:
            yield stack
        for part in inner:
            yield from equations(part, stack)


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """A result, and CPU seconds of all threads until it is there."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def measure(program: Compiled, *arguments: Any) -> Cost:
    """Make a program as `Compiled` does, but from nothing and in steps."""
    leaves, signature = program._signature(arguments)

    def tracing() -> Any:
        return program._trace(signature, lambda flat, shapes: jax.jit(with_barriers(flat)).trace(*shapes))[0]

    traced, trace = timed(tracing)
    lowered, lower = timed(traced.lower)
    count = sum(1 for _ in equations(traced.jaxpr.jaxpr))
    result = {}
    for name, options in (
        ("as it is", compiler_options(once=True)),
        ("optimized", compiler_options()),
        ("XLA's defaults", None),
    ):
        compiled, compiling = timed(partial(lowered.compile, options))
        jax.block_until_ready(compiled(*leaves))
        _, run = timed(lambda compiled=compiled: [jax.block_until_ready(compiled(*leaves)) for _ in range(REPEATS)])
        result[name] = (compiling, run / REPEATS)
    return Cost(count, lowered.as_text().count("\n"), trace, lower, result)


def gradient_by_all_numbers(jit: Callable[..., Any], scenario: em.Scenario) -> Any:
    """Derivatives of the energy of a run by each number of its plan and its system, as a user would ask for them."""

    def energy(plan: em.TrainingPlan, system: em.TrainingSystem) -> Any:
        return em.evaluate(system, plan).energy.total

    return jax.block_until_ready(jit(jax.grad(energy, argnums=(0, 1)))(scenario.plan, scenario.system))


def main() -> None:
    scenario = em.load_scenario("llama-3.1-405b-h100").with_question()
    system, plan = scenario.system, scenario.plan
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(system, plan))
        problem = formulate(scenario, baseline)
        point = np.log([problem.start(path) for path in problem.formulation.paths])
        layout = jax.tree.map(lambda leaf: np.full(1, float(leaf)), plan.layout)
        model, run = pack((layout, jax.tree.map(lambda leaf: leaf[None], problem.criteria)), 1), pack(problem.run)

        def lanes(count: int) -> tuple[Any, ...]:
            own = np.zeros(count, int)
            return problem.formulation, np.tile(point, (count, 1)), model.take(own), run

        costs = {
            "evaluate": measure(evaluate_once, system, plan),
            f"values at {CHUNK} points": measure(model_values, *lanes(CHUNK)),
            f"derivatives at {EXPANDED} points": measure(model_expansion, *lanes(EXPANDED)),
        }
        slopes = {jit: timed(partial(gradient_by_all_numbers, jit, scenario))[1] for jit in (jax.jit, em.jit)}
        jaxpr = jax.make_jaxpr(em.evaluate)(system, plan).jaxpr
    print(f"{jax.default_backend()}, float64; CPU seconds, and milliseconds to run")
    for name, cost in costs.items():
        print(f"{name}: {cost.equations} equations, {cost.lines} lines; trace {cost.trace:.2f}, lower {cost.lower:.2f}")
        for options, (compiling, run) in cost.compiled.items():
            print(f"    {options}: compile {compiling:.2f}, run {1e3 * run:.1f}")
    plain, own = slopes[jax.jit], slopes[em.jit]
    print(f"first gradient by all numbers: jax.jit {plain:.1f}, em.jit {own:.1f}, ratio {plain / own:.1f}")
    counts = Counter(function for stack in equations(jaxpr) for function in dict.fromkeys(stack))
    print("equations of evaluate by function:")
    for function, count in counts.most_common(SHOWN):
        print(f"{count:6d}  {function}")


if __name__ == "__main__":
    main()
