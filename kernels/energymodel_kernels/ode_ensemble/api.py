"""The evolution of many plans in time, from the right-hand side of one."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel_kernels.backends import resolve
from energymodel_kernels.ode_ensemble import kernel, reference
from energymodel_kernels.ode_ensemble.tiles import Tile, choose_tile


def ode_ensemble(
    rate: Callable[[Any, Any, Any], Any],
    initial: Any,
    parameters: Any,
    *,
    step: Any,
    steps: int,
    saves: int = 1,
    implementation: str = "auto",
    dtype: Any = jnp.float32,
    approximate: bool = False,
    tile: Tile | None = None,
) -> Any:
    """Solutions of `dy/dt = rate(t, y, parameters)` from t = 0 over many plans, by `steps` Runge-Kutta steps.

    Every number among `initial`, `parameters` and `step` is either a scalar, the same for all plans, or a vector with
    one element per plan.

    **Arguments:**

    - `rate`: derivative of one plan, of scalars: time [s], state, parameters.
    - `initial`: state at the start, a pytree of numbers.
    - `parameters`: pytree of numbers, such as a component.
    - `step`: length of a step [s].
    - `steps`: how many [1].
    - `saves`: at how many equally spaced times, the last at the end, the state is reported [1]; divides `steps`.
    - `implementation`: one of `backends.IMPLEMENTATIONS`, or `"auto"`.
    - `dtype`: precision.
    - `approximate`: exponentials and logarithms by a GPU's special function units.
    - `tile`: plans per program, chosen by default.

    **Returns:** states `[saves, plans]`, in the form of `initial`.

    **Raises:** `ValueError` for lengths that differ, and for steps that `saves` does not divide.
    """
    chosen = resolve(implementation, gpu="pallas_triton")  # 6 to 17 times as fast on an H200
    if saves < 1 or steps < saves or steps % saves:
        raise ValueError(f"saves = {saves} must divide steps = {steps}")
    numbers, static = eqx.partition(parameters, eqx.is_array_like)
    lengths = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path({"initial": initial, "parameters": numbers, "step": step}):
        if np.ndim(leaf) > 1:
            name = jax.tree_util.keystr(path)
            raise ValueError(f"{name} has shape {np.shape(leaf)}: give one number, or a vector with one per plan")
        if np.ndim(leaf):
            lengths[jax.tree_util.keystr(path)] = np.shape(leaf)[0]
    if len(set(lengths.values())) > 1:
        raise ValueError(f"vectors of different lengths: {lengths}; each holds one number per plan")
    plans = next(iter(lengths.values()), 1)
    tile = choose_tile(chosen, plans) if tile is None else tile
    return _integrate(rate, initial, numbers, static, step, plans, steps, saves, chosen, dtype, approximate, tile)


@eqx.filter_jit
def _integrate(
    rate: Callable[[Any, Any, Any], Any],
    initial: Any,
    numbers: Any,
    static: Any,
    step: Any,
    plans: int,
    steps: int,
    saves: int,
    implementation: str,
    dtype: Any,
    approximate: bool,
    tile: Tile,
) -> Any:
    def spread(leaf: Any) -> Any:
        return jnp.broadcast_to(jnp.asarray(leaf, dtype), (plans,))

    own, shared = eqx.partition(numbers, lambda leaf: np.ndim(leaf) == 1)
    own = jax.tree.map(spread, own)
    shared = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), shared)
    state, step = jax.tree.map(spread, initial), spread(step)

    def of_plan(time: Any, y: Any, own: Any, shared: Any) -> Any:
        return rate(time, y, eqx.combine(own, shared, static))

    if implementation == "xla":
        return reference.integrate(lambda time, y, own: of_plan(time, y, own, shared), state, own, step, steps, saves)
    return kernel.integrate(of_plan, state, own, shared, step, steps, saves, implementation, approximate, tile)
