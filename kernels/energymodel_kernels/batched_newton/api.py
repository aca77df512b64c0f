"""Newton steps of thousands of small constrained problems at once."""

import jax
import jax.numpy as jnp

from energymodel_kernels.backends import BACKENDS, resolve
from energymodel_kernels.batched_newton import by_lane, by_program, reference
from energymodel_kernels.batched_newton.system import Step, System
from energymodel_kernels.batched_newton.tiles import Tile, choose_tile


def batched_newton(systems: System, *, implementation: str = "auto", tile: Tile | None = None) -> Step:
    """One step of the interior point of `energymodel.solver` for many problems of one size.

    The condensed matrix is assembled, factorized by Cholesky with increasing damping until it is positive definite, and
    solved; see `System` for the equations.

    **Arguments:**

    - `systems`: matrices and right-hand sides, one leading axis over problems, all of one precision.
    - `implementation`: one of `backends.IMPLEMENTATIONS`, or `"auto"`.
    - `tile`: problems per program, chosen by default.

    **Returns:** steps of variables and multipliers.

    **Raises:** `ValueError` for sizes that an implementation does not take.
    """
    chosen = resolve(implementation)
    _, m, n = systems.jacobian.shape
    kinds = {name: str(jnp.result_type(part)) for name, part in systems._asdict().items()}
    if len(set(kinds.values())) > 1:
        raise ValueError(f"parts of different precision: {kinds}")
    if m < 1:
        raise ValueError("problems without constraint rows: a kernel needs at least one, add a row of zeros")
    if chosen != "xla" and tile is None:
        tile = choose_tile(chosen, n, m)
    return _step(systems, chosen, tile)


def _solve(systems: System, implementation: str, tile: Tile | None) -> Step:
    if tile is None or implementation == "xla":
        return reference.solve(systems)
    backend = BACKENDS[implementation]()
    return (by_program if tile.block == 1 else by_lane).solve(systems, backend, tile)


_step = jax.jit(_solve, static_argnums=(1, 2))
