"""Which constants of the loss law do trained models give: `calibrate` kind `loss`, from parameters, tokens and loss?"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.constants import Constant, Constants, Values
from energymodel.calibration.least_squares import Fit, Options, fit
from energymodel.learning.loss_law import ChinchillaLaw, chinchilla_loss

HUBER = 1e-3
"""Error of the logarithm from which it counts linearly [Hoffmann et al. 2022, sec. D.2]: far below the scatter, so
that the fit is nearly one of least absolute errors."""


class TrainedModels(NamedTuple):
    """Models at the end of their training, one row each.

    - `parameters`: N [1].
    - `tokens`: D [token].
    - `loss`: cross-entropy L [nat/token].
    """

    parameters: Float[Array | np.ndarray, " rows"]
    tokens: Float[Array | np.ndarray, " rows"]
    loss: Float[Array | np.ndarray, " rows"]


CONSTANTS: Constants = {
    "entropy_floor": Constant(1.7, 0.5, 0.0, unit="nat/token"),
    "parameter_coefficient": Constant(400.0, 3.0, widest=100.0),
    "parameter_exponent": Constant(0.34, 0.5),
    "data_coefficient": Constant(1000.0, 3.0, widest=100.0),
    "data_exponent": Constant(0.34, 0.5),
}
"""Priors so wide that a few hundred points outweigh them by more than a thousand [docs/physics.md B1].
Coefficients and exponents are known together, so that a wide interval of a coefficient is no lack of data."""

OPTIONS = Options(loss="huber", threshold=1.0, estimate_noise=False, starts=8, steps=400)


def law_of(values: Values) -> ChinchillaLaw:
    """The law with fitted constants."""
    return ChinchillaLaw(
        values["entropy_floor"], values["parameter_coefficient"], values["parameter_exponent"],
        values["data_coefficient"], values["data_exponent"],
    )  # fmt: skip


def errors(values: Values, models: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors of `chinchilla_loss`, for `least_squares.fit`."""
    predicted = chinchilla_loss(models.parameters, models.tokens, law_of(values))
    return jnp.log(predicted / models.loss)[:, None]


def fit_loss_law(models: TrainedModels, options: Options = OPTIONS) -> Fit:
    """Constants of least Huber loss of `ln L`, as Hoffmann et al. 2022 and Besiroglu et al. 2024 fit them.

    **Arguments:**

    - `models`: what was trained.

    **Returns:** fit with `entropy_floor` [nat/token], `parameter_coefficient`, `data_coefficient` [nat/token at 1],
    `parameter_exponent` and `data_exponent` [1].
    """
    return fit(errors, CONSTANTS, models, noise=HUBER, options=options)
