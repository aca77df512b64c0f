"""One Newton step of an interior point, condensed to the variables."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float


class System(NamedTuple):
    """Condensed systems of many problems: n variables, m constraint rows.

        (W + diag(stiffness) + J' diag(compliance) J + d diag(size)) dx = force - J' (compliance shift)
        dy = compliance (J dx + shift)

    with the first damping d of `max(damping, DAMPINGS)` that makes the matrix positive definite. These are `A`, `J`,
    `S`, and the arguments of `factorize` and of `NewtonSystem.solve` in `energymodel.solver.newton_system`.

    - `hessian`: W of the Lagrangian; its lower triangle is read.
    - `jacobian`: J of the rows.
    - `compliance`: how much a row's multiplier gives per violation, S.
    - `stiffness`: of the bounds, on the diagonal; 1 for a fixed variable, whose row of W and column of J are zero.
    - `size`: what damping is relative to; 0 for a fixed variable.
    - `damping`: the least to try [1].
    - `force`, `shift`: right-hand sides of variables and rows.
    """

    hessian: Float[Array | np.ndarray, "problems n n"]
    jacobian: Float[Array | np.ndarray, "problems m n"]
    compliance: Float[Array | np.ndarray, "problems m"]
    stiffness: Float[Array | np.ndarray, "problems n"]
    size: Float[Array | np.ndarray, "problems n"]
    damping: Float[Array | np.ndarray, " problems"]
    force: Float[Array | np.ndarray, "problems n"]
    shift: Float[Array | np.ndarray, "problems m"]


class Step(NamedTuple):
    """Steps of variables and multipliers, the damping they took, and whether a direction bends clearly downwards.

    Where no damping makes the matrix positive definite, the last is returned with the step of the diagonal alone.
    """

    dx: Float[Array, "problems n"]
    dy: Float[Array, "problems m"]
    damping: Float[Array, " problems"]
    saddle: Bool[Array, " problems"]
