"""Progress of further tokens in a run that has already begun."""

import jax.numpy as jnp

from energymodel.learning.learning import AbstractLearning
from energymodel.numerics import Numeric, Real, Values, component, real

_LEAST_REST = 1e-9
"""Share of the progress so far that a loss already reached still costs; negligible, but keeps logarithms finite."""


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
