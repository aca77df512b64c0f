"""Worth of tokens that a model has seen before.

A data set holds so many unique tokens; those of later epochs are worth less and less [Muennighoff et al. 2023].
"""

import equinox as eqx
import jax.numpy as jnp

from energymodel.learning.learning import AbstractLearning
from energymodel.learning.loss_law import unique_equivalent_tokens
from energymodel.numerics import Numeric, Real, Values, component, real
from energymodel.ranges import ABOVE_ZERO

MUENNIGHOFF_SCALE = 15.39
"""Repetitions after which a token is worth 1/e of a new one [Muennighoff et al. 2023, sec. 6.1]."""

_LEAST_ROOM = 1e-9  # worth of a token below which tokens grow in proportion: huge but finite beyond what data can give


class AbstractDataSet(eqx.Module):
    """What a run learns from."""


class UnlimitedData(AbstractDataSet):
    """Every token is new."""


class LimitedData(AbstractDataSet):
    """A data set that is repeated; valid up to about four epochs."""

    unique_tokens: Real = real("token", doc="of the data set, none of them seen before the run", within=ABOVE_ZERO)
    repetition_scale: Real = real("1", MUENNIGHOFF_SCALE, within=ABOVE_ZERO)


class RepeatedLearning(AbstractLearning):
    """Learning from a data set that is repeated: tokens are worth those of `unique_equivalent_tokens`."""

    base: AbstractLearning = component()
    data: LimitedData = component()

    def loss(self, parameters: Numeric, effective_tokens: Numeric) -> Values:
        """See `AbstractLearning.loss`."""
        return self.base.loss(parameters, effective_tokens)

    def run(self, parameters: Numeric, tokens: Numeric, batch: Numeric) -> tuple[Values, Values]:
        """See `AbstractLearning.run`."""
        worth = unique_equivalent_tokens(tokens, self.data.unique_tokens, self.data.repetition_scale)
        return self.base.run(parameters, worth, batch)

    def tokens(self, parameters: Numeric, loss: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.tokens`."""
        return self._seen(self.base.tokens(parameters, loss, batch))

    def tokens_to(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.tokens_to`."""
        return self._seen(self.base.tokens_to(parameters, effective_tokens, batch))

    def effective_tokens(self, parameters: Numeric, loss: Numeric) -> Values:
        """See `AbstractLearning.effective_tokens`."""
        return self.base.effective_tokens(parameters, loss)

    def penalty(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.penalty`; a schedule counts the epochs so far as if it had had this batch all along."""
        worth = self.base.tokens_to(parameters, effective_tokens, batch)
        return self.base.penalty(parameters, effective_tokens, batch) / jnp.maximum(self._room(worth), _LEAST_ROOM)

    def information(self, effective_tokens: Numeric) -> Values:
        """See `AbstractLearning.information`."""
        return self.base.information(effective_tokens)

    def _room(self, worth: Numeric) -> Values:
        """Worth of the next token, `1 - (D - U) / (U R*)` after the first epoch, below zero out of reach [1]."""
        unique, scale = jnp.asarray(self.data.unique_tokens), self.data.repetition_scale
        return 1.0 - jnp.maximum(jnp.asarray(worth) - unique, 0.0) / (unique * scale)

    def _seen(self, worth: Numeric) -> Values:
        """Tokens seen that are worth so many unique ones [token]: the inverse of `unique_equivalent_tokens`."""
        unique, scale, room = jnp.asarray(self.data.unique_tokens), self.data.repetition_scale, self._room(worth)
        repeated = jnp.maximum(_LEAST_ROOM - room, 0.0) / _LEAST_ROOM - jnp.log(jnp.maximum(room, _LEAST_ROOM))
        return jnp.minimum(worth, unique) + unique * scale * repeated
