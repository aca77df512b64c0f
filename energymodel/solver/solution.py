"""Options of a search, and its solution: the best point, the price of each limit, and how the search ended."""

from typing import Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from energymodel.runtime.placement import accelerated

_BUSY = 1 << 16  # lanes that keep an accelerator busy
_MATRIX_NUMBERS = 1 << 24  # numbers in the Hessians of all lanes that fit into its memory with what comes with them


class SolverOptions(eqx.Module):
    """Options of the interior point. The defaults suit problems whose quantities are of order one (logarithms, ratios).

    - `tolerance`: largest Karush-Kuhn-Tucker residual [1] of the scaled problem; float32 stops at about 7e-5.
    - `max_iterations`: Newton steps before giving up [1].
    - `hessian`: `"exact"`, for functions of up to 4,000 operations, or `"differences"` of the forward-mode Jacobian: a
      large model then compiles many times faster, at a few more iterations and the same accuracy of the solution.
    - `chunk`: lanes of a `vmap` that iterate together [1]; 8 to 128 stay in a CPU's cache. On an accelerator many more
      do, as many as its memory takes.
    """

    tolerance: float = eqx.field(default=1e-8, static=True)
    max_iterations: int = eqx.field(default=500, static=True)
    hessian: Literal["exact", "differences"] = eqx.field(default="exact", static=True)
    chunk: int = eqx.field(default=32, static=True)

    def together(self, variables: int) -> int:
        """Lanes of so many variables that iterate together; on accelerators a power of two."""
        if not accelerated():
            return self.chunk
        return max(self.chunk, 1 << min(_MATRIX_NUMBERS // variables**2, _BUSY).bit_length() - 1)


def reachable_tolerance(tolerance: float, dtype: np.dtype) -> float:
    """Residual that rounding lets a search reach, `max(tolerance, eps^0.6)` [1]."""
    return max(tolerance, float(np.finfo(dtype).eps) ** 0.6)


class RESULTS(eqx.Enumeration):
    """How a search ended; each message says what to do next."""

    running = "The search has not ended. Go on from x with the multipliers found so far."
    successful = "The optimality conditions hold to the tolerance."
    infeasible = (
        "No point near here satisfies all constraints: x violates them least (in the sum of scaled violations). "
        "Relax the constraints marked in `conflict` by what their slacks lack, or start elsewhere."
    )
    out_of_iterations = (
        "The iteration limit was reached before the optimality conditions held. Raise max_iterations, start elsewhere, "
        "scale variables and constraints to order one, replace kinks (abs, max, where) by smooth functions or "
        "constraints, or add bounds if the objective has no minimum."
    )
    non_finite = (
        "The objective, a constraint or one of their derivatives is not finite at x. Start where all are finite, and "
        "guard the inputs of square roots, logarithms and divisions with jnp.where."
    )
    bounds_cross = "A lower bound lies above its upper bound, or a bound is NaN. Correct the bounds."
    interrupted = "The search was interrupted. Go on from x with the multipliers found so far."
    unbounded = (
        "The objective falls without end within the constraints, or comes ever closer to a value that no point has; x "
        "is far out on the way. Add bounds, or check the sign of the objective."
    )
    rounded = (
        "The optimality conditions hold as well as this precision can tell, which is less than the tolerance: see "
        "`residual`. Accept that, or search in float64 (jax.enable_x64)."
    )


def result_is(result: RESULTS, *members: RESULTS) -> Bool[np.ndarray, "..."]:
    """Which of many results are one of some members; on the host, where JAX would compile `==` for each shape."""
    numbers = [int(jax.tree.leaves(member)[0]) for member in members]
    return np.isin(np.asarray(jax.tree.leaves(result)[0]), numbers)


class PerConstraint(eqx.Module):
    """One entry per constraint, in the shapes in which the constraints came."""

    inequalities: PyTree
    equalities: PyTree
    lower: PyTree
    upper: PyTree


class Solution(eqx.Module):
    """The end of a search.

    - `x`: best point, like `x0`; `value`: objective there.
    - `multipliers`: `-d value / d limit`, in units of the objective per unit of the constraint: relaxing `g <= 0` to
      `g <= e` lowers the value by `e` times its multiplier; moving a lower bound up by `e` raises it by `e` times that
      of the bound. Zero for limits that do not bind; of either sign for equalities.
    - `slacks`: room left, `-g`, `x - lower`, `upper - x`, negative where violated; for equalities `-h`.
    - `conflict`: constraints that exclude each other, all false unless the result is `infeasible`.
    - `iterations`: Newton steps [1]; `residual`: largest violation of the optimality conditions of the scaled
      problem [1]; `result`: a member of `RESULTS`.
    """

    x: PyTree
    value: Float[Array | np.ndarray, "..."]
    multipliers: PerConstraint
    slacks: PerConstraint
    conflict: PerConstraint
    iterations: Int[Array | np.ndarray, "..."]
    residual: Float[Array | np.ndarray, "..."]
    result: RESULTS
