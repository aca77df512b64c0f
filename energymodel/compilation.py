"""How is a large model compiled in seconds?"""

from functools import lru_cache

import jax


@lru_cache(maxsize=1)
def compiler_options() -> dict[str, bool] | None:
    """Options for `jax.jit` of a whole training run.

    XLA's fusion emitters for CPU take most of a minute on the thousands of scalar operations of a run and its
    derivatives, and the code is no faster for it (benchmarks/compile_time.py): they are left out on CPU.
    """
    return {"xla_cpu_use_fusion_emitters": False} if jax.default_backend() == "cpu" else None
