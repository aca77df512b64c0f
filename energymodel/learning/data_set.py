"""Worth of tokens that a model has seen before, and progress of further tokens in a run that has already begun.

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

_LEAST_WORTH = 1e-9  # worth of a token below which tokens grow in proportion: huge but finite beyond what data can give

_LEAST_REST = 1e-9
"""Share of the progress so far that a loss already reached still costs; negligible, but keeps logarithms finite."""


class AbstractDataSet(eqx.Module):
    """What a run learns from."""


class UnlimitedData(AbstractDataSet):
    """Every token is new."""


class LimitedData(AbstractDataSet):
    """A data set that is repeated; valid up to about four epochs."""

    unique_tokens: Real = real("token", doc="of the data set, none of them seen before the run", within=ABOVE_ZERO)
    repetition_scale: Real = real("1", MUENNIGHOFF_SCALE, within=ABOVE_ZERO)

    def worth(self, tokens: Numeric) -> Values:
        """Unique tokens that so many tokens are worth [token], see `unique_equivalent_tokens`."""
        return unique_equivalent_tokens(tokens, self.unique_tokens, self.repetition_scale)

    def worth_of_next(self, worth: Numeric) -> Values:
        """Worth of the next token [1], `1 - (D - U) / (U R*)` after the first epoch, below zero out of reach.

        **Arguments:**

        - `worth`: D of the tokens so far [token].
        """
        unique = jnp.asarray(self.unique_tokens)
        return 1.0 - jnp.maximum(jnp.asarray(worth) - unique, 0.0) / (unique * self.repetition_scale)

    def tokens(self, worth: Numeric) -> Values:
        """Tokens that are worth so many unique ones [token]: the inverse of `worth`."""
        unique, following = jnp.asarray(self.unique_tokens), self.worth_of_next(worth)
        repeated = jnp.maximum(_LEAST_WORTH - following, 0.0) / _LEAST_WORTH
        repeated = repeated - jnp.log(jnp.maximum(following, _LEAST_WORTH))
        return jnp.minimum(worth, unique) + unique * self.repetition_scale * repeated

    def slower(self, worth: Numeric) -> Values:
        """Tokens for one that is new, where those so far are worth so many [token]; huge but finite out of reach."""
        return 1.0 / jnp.maximum(self.worth_of_next(worth), _LEAST_WORTH)


class ContinuedLearning(AbstractLearning):
    """The rest of a run after a progress of `done` effective tokens, under the same laws as the run.

    [derivation: the totals of a run are integrals over its progress, so those of its rest are differences]. Tokens and
    effective tokens count from now on. Past progress is worth its effective tokens at any batch of the rest:
    `D_rest(x, B) = D(x_0 + x, B) - D(x_0, B)`, with D of the whole run at the constant batch B. A run that begins has
    x_0 = 0.
    """

    base: AbstractLearning = component()
    done: Real = real("token", doc="effective tokens at the moment from which the rest counts, x_0")

    def loss(self, parameters: Numeric, effective_tokens: Numeric) -> Values:
        """See `AbstractLearning.loss`."""
        return self.base.loss(parameters, self.done + jnp.asarray(effective_tokens))

    def run(self, parameters: Numeric, tokens: Numeric, batch: Numeric) -> tuple[Values, Values]:
        """See `AbstractLearning.run`."""
        loss, effective_tokens = self.base.run(parameters, tokens + self._tokens_before(parameters, batch), batch)
        return loss, effective_tokens - self.done

    def tokens(self, parameters: Numeric, loss: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.tokens`; negligible for a loss that is already reached."""
        before = self._tokens_before(parameters, batch)
        return jnp.maximum(self.base.tokens(parameters, loss, batch) - before, _LEAST_REST * before)

    def tokens_to(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.tokens_to`."""
        from_the_beginning = self.base.tokens_to(parameters, self.done + jnp.asarray(effective_tokens), batch)
        return from_the_beginning - self._tokens_before(parameters, batch)

    def effective_tokens(self, parameters: Numeric, loss: Numeric) -> Values:
        """See `AbstractLearning.effective_tokens`."""
        return jnp.maximum(self.base.effective_tokens(parameters, loss) - self.done, _LEAST_REST * self.done)

    def penalty(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.penalty`."""
        return self.base.penalty(parameters, self.done + jnp.asarray(effective_tokens), batch)

    def information(self, effective_tokens: Numeric) -> Values:
        """See `AbstractLearning.information`; that of the whole run, which the model must store."""
        return self.base.information(self.done + jnp.asarray(effective_tokens))

    def _tokens_before(self, parameters: Numeric, batch: Numeric) -> Values:
        """Tokens that make the progress so far at a batch [token]."""
        done = jnp.asarray(self.done)
        begun = done > 0.0
        before = self.base.tokens_to(parameters, jnp.where(begun, done, 1.0), batch)
        return jnp.where(begun, before, 0.0)
