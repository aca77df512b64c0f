"""How long does a whole run take to compile with the project's options, against XLA's defaults?

Prints compile times of `evaluate` and of its gradient on the README scenario, their ratio, and the ratio of run times,
all measured in this process.
"""

import time
from collections.abc import Callable
from typing import Any

import jax

import energymodel as em
from energymodel.compilation import compiler_options

REPEATS = 20


def measure(function: Callable[..., Any], arguments: tuple, options: Any) -> tuple[float, float]:
    """Seconds to compile, and to run once compiled."""
    lowered = jax.jit(function).trace(*arguments).lower()
    start = time.perf_counter()
    compiled = lowered.compile(options)
    compiling = time.perf_counter() - start
    jax.block_until_ready(compiled(*arguments))
    start = time.perf_counter()
    for _ in range(REPEATS):
        jax.block_until_ready(compiled(*arguments))
    return compiling, (time.perf_counter() - start) / REPEATS


def main() -> None:
    scenario = em.load_scenario("llama-3.1-405b-h100")
    arguments = (scenario.system, scenario.plan)
    functions = {
        "evaluate": em.evaluate,
        "gradient": jax.grad(lambda system, plan: em.evaluate(system, plan).energy.total, argnums=(0, 1)),
    }
    print(f"{jax.default_backend()}, float64; compile [s], run [ms]")
    with jax.enable_x64(True):
        for name, function in functions.items():
            default, default_run = measure(function, arguments, None)
            ours, ours_run = measure(function, arguments, compiler_options())
            print(
                f"{name}: XLA default {default:.2f} s, {1e3 * default_run:.2f} ms; ours {ours:.2f} s, "
                f"{1e3 * ours_run:.2f} ms; {default / ours:.2f} times faster to compile, "
                f"{default_run / ours_run:.2f} times faster to run"
            )


if __name__ == "__main__":
    main()
