"""Kind `loss`: constants of the loss law from parameters, tokens and loss of trained models."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.calibration_case import (
    MOST_CANDIDATES,
    CalibrationCase,
    Candidates,
    Grouping,
    WrittenNumber,
)
from energymodel.calibration.constant_priors import DECLARED, ConstantPriors, Rows, Values
from energymodel.calibration.least_squares import FitOptions, FitProblem
from energymodel.errors import InputError
from energymodel.learning.loss_law import ChinchillaLaw, chinchilla_loss
from energymodel.readers.table import Measurements, check_repeats
from energymodel.scenarios.scenario import Scenario

HUBER = 1e-3
"""Error of the logarithm from which it counts linearly [Hoffmann et al. 2022, sec. D.2]: far below the scatter, so
that the fit is nearly one of least absolute errors."""
SIZE_GROUP = 2.0  # sizes within a factor of this are one held-out group
REACH = 4.0
"""Models up to this factor larger or longer trained than the largest measured are proposed to be measured next."""
STEPS = 12
PATH = "system.learning.loss_law"

CONSTANTS = DECLARED["loss"]


class TrainedModels(NamedTuple):
    """Models at the end of their training, one row each."""

    parameters: Rows  # N [1]
    tokens: Rows  # D [token]
    loss: Rows  # cross-entropy L [nat/token]


def loss_errors(values: Values, models: TrainedModels) -> Float[Array, "rows 1"]:
    """Logarithmic errors of `chinchilla_loss`."""
    law = ChinchillaLaw(**{name: values[name] for name in CONSTANTS})
    return jnp.log(chinchilla_loss(models.parameters, models.tokens, law) / models.loss)[:, None]


def loss_law_problem(models: TrainedModels, constants: ConstantPriors = CONSTANTS) -> FitProblem:
    """The fit of the lowest Huber loss of `ln L`, as Hoffmann et al. 2022 and Besiroglu et al. 2024 have it.

    It gives `entropy_floor` [nat/token], `parameter_coefficient`, `data_coefficient` [nat/token at 1],
    `parameter_exponent` and `data_exponent` [1].
    """
    options = FitOptions(loss="huber", threshold=1.0, estimate_noise=False, starts=8, steps=400)
    return FitProblem(loss_errors, constants, models, noise=HUBER, options=options)


def loss_case(table: Measurements, prior: Scenario | None) -> CalibrationCase:
    """Five constants of the loss law, see `loss_law_problem`."""
    check_repeats(table, ("parameters", "tokens", "group", "run"))
    parameters, tokens, loss = (table.columns[name] for name in ("parameters", "tokens", "loss_nats"))
    for name, values in (("parameters", parameters), ("tokens", tokens)):
        if len(np.unique(values)) < 2:
            raise InputError(
                f'{table.path}: column "{name}" holds one value only, {values[0]:g}; a law needs several. Measure '
                f"models of other {name}."
            )
    constants = CONSTANTS
    if prior is not None:
        law = getattr(prior.system.learning, "loss_law", None)
        if not isinstance(law, ChinchillaLaw):
            raise InputError(
                f"{prior.name}: {PATH} is {type(law).__name__}; measured losses give the constants of a ChinchillaLaw. "
                "Name a prior that has one, such as llama-3.1-405b-h100."
            )
        constants = {name: usual._replace(median=float(getattr(law, name))) for name, usual in CONSTANTS.items()}
    size = np.floor(np.log(parameters / parameters.min()) / np.log(SIZE_GROUP) + 1e-9)
    sizes = np.array([f"{parameters[size == number].min():.3g} parameters" for number in size])
    is_grouped = "group" in table.columns
    return CalibrationCase(
        fit=loss_law_problem(TrainedModels(parameters, tokens, loss), constants),
        groups=Grouping(table.columns["group"], "group") if is_grouped else Grouping(sizes, "size"),
        outputs={"loss": (1.0,)},
        along=("parameters", parameters),
        candidates=_candidates(parameters, tokens),
        law=lambda values: {f"{PATH}.{name}": WrittenNumber(of.unit, values[name]) for name, of in CONSTANTS.items()},
        resampled=None if is_grouped else Grouping(np.arange(len(table)), "model"),
    )


def _candidates(parameters: np.ndarray, tokens: np.ndarray) -> Candidates:
    """Sizes and tokens on a grid from the smallest to some times the largest, none of more compute than that."""
    axes = [np.geomspace(np.min(values), REACH * np.max(values), STEPS) for values in (parameters, tokens)]
    size, seen = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
    most = REACH * np.max(parameters * tokens)
    chosen = np.flatnonzero(size * seen <= most * (1.0 + 1e-9))[:MOST_CANDIDATES]
    models = TrainedModels(size[chosen], seen[chosen], np.ones(len(chosen)))
    words = [f"{count:.3g} parameters on {number:.3g} tokens" for count, number in zip(*models[:2], strict=True)]
    return Candidates(models, words)
