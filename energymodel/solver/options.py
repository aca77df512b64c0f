"""How hard does a search try before it gives up, and how accurate must its solution be?"""

from typing import Literal

import equinox as eqx
import numpy as np


class SolverOptions(eqx.Module):
    """Options of the interior point. The defaults suit problems whose quantities are of order one (logarithms, ratios).

    - `tolerance`: largest Karush-Kuhn-Tucker residual [1] of the scaled problem; float32 stops at about 7e-5.
    - `max_iterations`: Newton steps before giving up [1].
    - `hessian`: `"exact"`, for functions of up to 4,000 operations, or `"differences"` of the forward-mode Jacobian: a
      large model then compiles many times faster, at a few more iterations and the same accuracy of the solution.
    - `chunk`: lanes of a `vmap` that iterate together [1]; 8 to 128 stay in a CPU's cache, a GPU likes 1e4.
    """

    tolerance: float = eqx.field(default=1e-8, static=True)
    max_iterations: int = eqx.field(default=500, static=True)
    hessian: Literal["exact", "differences"] = eqx.field(default="exact", static=True)
    chunk: int = eqx.field(default=32, static=True)


class FirstOrderOptions(eqx.Module):
    """Options of the first-order search, for quantities of order one as well.

    - `tolerance`: largest residual of the optimality conditions [1]; float32 stops at about 7e-5.
    - `max_iterations`: evaluations of the problem and its gradient before giving up [1].
    """

    tolerance: float = eqx.field(default=1e-7, static=True)
    max_iterations: int = eqx.field(default=5000, static=True)


def reachable_tolerance(options: SolverOptions | FirstOrderOptions, dtype: np.dtype) -> float:
    """Residual that rounding lets a search reach, `max(tolerance, eps^0.6)` [1]."""
    return max(options.tolerance, float(np.finfo(dtype).eps) ** 0.6)
