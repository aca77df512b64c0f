"""Progress of tokens at a batch size, and tokens that a loss takes."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.learning.critical_batch import AbstractCriticalBatch
from energymodel.learning.loss_law import AbstractLossLaw
from energymodel.numerics import Numeric, Real, Values, implicit_root, real

_LEAST_LOG_EFFICIENCY = -40.0
"""Bracket of ln(effective tokens / tokens)."""

_LEAST_SOUND_LOG_EFFICIENCY = -7.0
"""End of the bracket where 99.9 % of the tokens are wasted and some laws fail: see `least_log_efficiency`."""


class AbstractLearning(eqx.Module):
    """How batches turn tokens into progress, and progress into loss and information."""

    @abc.abstractmethod
    def loss(self, parameters: Numeric, effective_tokens: Numeric) -> Values:
        """Cross-entropy [nat/token] of `parameters` after `effective_tokens` [token]."""

    @abc.abstractmethod
    def run(self, parameters: Numeric, tokens: Numeric, batch: Numeric) -> tuple[Values, Values]:
        """Loss [nat/token] and effective tokens [token] after `tokens` [token] in batches of `batch` [token]."""

    @abc.abstractmethod
    def tokens(self, parameters: Numeric, loss: Numeric, batch: Numeric) -> Values:
        """Tokens [token] that reach `loss` [nat/token] in batches of `batch` [token]; huge but finite out of reach."""

    @abc.abstractmethod
    def tokens_to(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """Tokens [token] of a run in batches of `batch` [token] up to a progress of `effective_tokens` [token]."""

    @abc.abstractmethod
    def effective_tokens(self, parameters: Numeric, loss: Numeric) -> Values:
        """Effective tokens [token] at which `parameters` reach `loss` [nat/token]: the progress of a run."""

    @abc.abstractmethod
    def penalty(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """Tokens per effective token at this moment, dD/dx [1]: the right-hand side of schedules."""

    @abc.abstractmethod
    def information(self, effective_tokens: Numeric) -> Values:
        """Information absorbed [bit] after `effective_tokens` [token]."""


class CriticalBatchLearning(AbstractLearning):
    """A loss law in effective tokens, `D = D_eff h(B, D_eff) / (1 + a)` [McCandlish et al. 2018, sec. 2.3].

    The penalty h of a batch is that of the critical-batch law: 1 + B/B_c, or a sharper bend.
    The overhead a is the batch overhead of the runs behind the loss law: their effective tokens are fewer than their
    tokens by a factor of 1 + a (5 to 10 % for Chinchilla), which the fitted law has absorbed.
    """

    loss_law: AbstractLossLaw
    critical_batch: AbstractCriticalBatch
    absorbed_overhead: Real = real("1", doc="batch overhead that the loss law contains already")

    def loss(self, parameters: Numeric, effective_tokens: Numeric) -> Values:
        """See `AbstractLearning.loss`."""
        return self.loss_law.loss(parameters, effective_tokens)

    def run(self, parameters: Numeric, tokens: Numeric, batch: Numeric) -> tuple[Values, Values]:
        """See `AbstractLearning.run`; effective tokens solve `D = D_eff h(B, D_eff) / (1 + a)`."""
        size, tokens, batch = jnp.broadcast_arrays(jnp.asarray(parameters), jnp.asarray(tokens), jnp.asarray(batch))

        # In ln(D_eff / D), which is of order one: ln D_eff itself would cost two digits in float32.
        def excess(log_efficiency: Array, inputs: tuple[Any, Array, Array, Array]) -> Array:
            learning, size, tokens, batch = inputs
            effective_tokens = tokens * jnp.exp(log_efficiency)
            loss = learning.loss(size, effective_tokens)
            return jnp.log(learning._tokens(effective_tokens, loss, batch) / tokens)

        inputs = (self, size, tokens, batch)
        lowest = least_log_efficiency(excess, inputs, tokens)
        highest = jnp.log1p(self.absorbed_overhead) + 1.0
        log_efficiency = implicit_root(excess, lowest, jnp.zeros_like(tokens) + highest, inputs)
        effective_tokens = tokens * jnp.exp(log_efficiency)
        return self.loss(size, effective_tokens), effective_tokens

    def tokens(self, parameters: Numeric, loss: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.tokens`; explicit, because the critical batch is a function of effective tokens."""
        return self._tokens(self.loss_law.effective_tokens(parameters, loss), loss, batch)

    def tokens_to(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.tokens_to`."""
        effective_tokens = jnp.asarray(effective_tokens)
        return self._tokens(effective_tokens, self.loss(parameters, effective_tokens), batch)

    def effective_tokens(self, parameters: Numeric, loss: Numeric) -> Values:
        """See `AbstractLearning.effective_tokens`."""
        return self.loss_law.effective_tokens(parameters, loss)

    def penalty(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.penalty`: the instantaneous penalty over `1 + a`."""
        loss = self.loss(parameters, effective_tokens)
        return self.critical_batch.instantaneous_penalty(batch, effective_tokens, loss) / (1.0 + self.absorbed_overhead)

    def information(self, effective_tokens: Numeric) -> Values:
        """See `AbstractLearning.information`."""
        return self.loss_law.information(effective_tokens)

    def _tokens(self, effective_tokens: Array, loss: Numeric, batch: Numeric) -> Array:
        """Tokens [token] of a whole run that ends at `effective_tokens` [token] and at `loss` [nat/token]."""
        penalty = self.critical_batch.run_penalty(batch, effective_tokens, loss)
        return effective_tokens * penalty / (1.0 + self.absorbed_overhead)


def least_log_efficiency(excess: Callable[[Any, Any], Any], inputs: Any, tokens: Numeric) -> Values:
    """Lower end of a bracket for `ln(D_eff / D)`, of order -40, or -7 where the law has a second root [definition].

    At the start of a run Kaplan's critical batch vanishes faster than the tokens, so that the tokens of a run first
    fall with its effective tokens before they rise. The root lies on the rising branch.

    **Arguments:**

    - `excess`: `ln(D(D_eff) / D)` as a function of `ln(D_eff / D)` [1] and `given`.
    - `given`: everything that `excess` depends on.
    - `tokens`: D, for the shape of the result [token].

    **Returns:** lower end [1].
    """
    lowest = jnp.full_like(jnp.asarray(tokens), _LEAST_LOG_EFFICIENCY)
    return jnp.where(excess(lowest, inputs) < 0, lowest, _LEAST_SOUND_LOG_EFFICIENCY)
