"""How does a file of trained models become a fit: `calibrate` kind `loss`?"""

from collections.abc import Mapping

import numpy as np

from energymodel.calibration import loss_law
from energymodel.calibration.constants import Constants
from energymodel.calibration.measurements import Column, Measurements, check_repeats
from energymodel.calibration.problem import MOST_CANDIDATES, Given, Problem
from energymodel.errors import InputError
from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.presets.scenario import Scenario

SIZE_GROUP = 2.0
"""Sizes within a factor of this are one held-out group."""
REACH = 4.0
"""Models up to this factor larger or longer trained than the largest measured are proposed to be measured next."""
STEPS = 12
PATH = "system.learning.loss_law"
UNITS = {"entropy_floor": "nat/token"}

LOSS_COLUMNS = (
    Column("parameters", "1", "parameters of the model", others=("params_n", "params")),
    Column("tokens", "token", "tokens that it was trained on", others=("tokens_d_derived", "training_tokens")),
    Column("loss_nats", "nat/token", "cross-entropy at the end of training", others=("loss",)),
    Column("group", "text", "what is held out and resampled together, such as a data set", needed=False),
    Column("run", "text", "number of a repeated measurement", needed=False, others=("seed",)),
)


def loss_problem(table: Measurements, prior: Scenario | None) -> Problem:
    """Five constants of the loss law, by Huber's loss of its logarithm, see `loss_law.fit_loss_law`."""
    columns = table.columns
    check_repeats(table, ("parameters", "tokens", "group", "run"))
    models = loss_law.TrainedModels(columns["parameters"], columns["tokens"], columns["loss_nats"])
    for name, values in (("parameters", models.parameters), ("tokens", models.tokens)):
        if len(np.unique(values)) < 2:
            raise InputError(
                f'{table.path}: column "{name}" holds one value only, {values[0]:g}; a law needs several. Measure '
                f"models of other {name}."
            )
    if "group" in columns:
        groups, word, resampled, resampled_word = columns["group"], "group", None, ""
    else:
        size = np.floor(np.log(models.parameters / models.parameters.min()) / np.log(SIZE_GROUP) + 1e-9)
        low = {number: models.parameters[size == number].min() for number in np.unique(size)}
        groups = np.array([f"{low[number]:.3g} parameters" for number in size])
        word, resampled, resampled_word = "size", np.arange(len(table)), "model"
    candidates, words = _candidates(models)
    return Problem(
        errors=loss_law.errors, constants=_constants(prior), table=models, weights=np.ones(len(table)), groups=groups,
        group_word=word, outputs={"loss": (1.0,)}, along=("parameters", np.asarray(models.parameters)),
        candidates=candidates, candidate_words=words, changes={}, given={}, notes=[], noise=loss_law.HUBER,
        options=loss_law.OPTIONS, law=_numbers, resampled=resampled, resampled_word=resampled_word,
    )  # fmt: skip


def _constants(prior: Scenario | None) -> Constants:
    if prior is None:
        return loss_law.CONSTANTS
    law = getattr(prior.system.learning, "loss_law", None)
    if not isinstance(law, ChinchillaLaw):
        raise InputError(
            f"{prior.name}: {PATH} is {type(law).__name__}; measured losses give the constants of a ChinchillaLaw. "
            "Name a prior that has one, such as llama-3.1-405b-h100."
        )
    return {name: one._replace(median=float(getattr(law, name))) for name, one in loss_law.CONSTANTS.items()}


def _numbers(values: Mapping[str, float]) -> dict[str, Given]:
    return {f"{PATH}.{name}": Given(values[name], UNITS.get(name, "1")) for name in loss_law.CONSTANTS}


def _candidates(models: loss_law.TrainedModels) -> tuple[loss_law.TrainedModels, list[str]]:
    """Sizes and tokens on a grid from the least to some times the most, none of more compute than that."""
    axes = [
        np.geomspace(np.min(values), REACH * np.max(values), STEPS) for values in (models.parameters, models.tokens)
    ]
    size, tokens = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
    most = REACH * np.max(np.asarray(models.parameters) * np.asarray(models.tokens))
    chosen = np.flatnonzero(size * tokens <= most * (1.0 + 1e-9))[:MOST_CANDIDATES]
    size, tokens = size[chosen], tokens[chosen]
    words = [f"{one:.3g} parameters on {other:.3g} tokens" for one, other in zip(size, tokens, strict=True)]
    return loss_law.TrainedModels(size, tokens, np.ones(len(size))), words
