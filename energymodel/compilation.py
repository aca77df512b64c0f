"""How is a large model compiled in seconds?"""

from typing import Any

import jax


def compiler_options(*, once: bool = False) -> Any:
    """Options for `jax.jit` of a whole training run.

    XLA's fusion emitters for CPU double the time to compile the thousands of scalar operations of a run and its
    derivatives, and save a third of the milliseconds that a run takes (`benchmarks/compile_time.py`): they are left out
    on CPU. `once` also leaves out the optimization of machine code, for a function that runs for a shorter time than
    that takes.
    """
    if jax.default_backend() != "cpu":
        return None
    return {"xla_cpu_use_fusion_emitters": False} | ({"xla_backend_optimization_level": 0} if once else {})
