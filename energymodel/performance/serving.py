"""Chip time to serve the tokens that a model reads and writes after training.

Shared arguments: `parameters` N that act on a token [1]; peak `rate` F of a chip at its clock [FLOP/s] and the share
eta of it that serving reaches, `utilization` [1]; `reading` t_read, the chip time that the arithmetic takes [s/token];
`weights` W of the whole model and `context` K, keys and values of a sequence [B]; `sequences` b, written at the same
time [1]; `bandwidth` beta, sustained by the memory of a chip [B/s].
"""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real
from energymodel.ranges import ABOVE_ZERO, SHARE_ABOVE_ZERO


def reading_time(parameters: Numeric, rate: Numeric, utilization: Numeric) -> Values:
    """Chip time to read a token [s/token], `t = 2 N / (eta F)` [Pope et al. 2022, sec. 2].

    Tokens of a prompt pass together, so that arithmetic limits them. Attention is left out.
    """
    return 2.0 * jnp.asarray(parameters) / (jnp.asarray(utilization) * rate)


def writing_time(
    reading: Numeric, weights: Numeric, context: Numeric, sequences: Numeric, bandwidth: Numeric
) -> Values:
    """Chip time to write a token [s/token], `t = max(t_read, (W / b + K) / beta)` [Pope et al. 2022, sec. 2].

    For each token of b sequences all weights pass through memory once, and the keys and values of each sequence. Chips
    that share the model share its weights and traffic, so their number drops out; their communication is left out.
    """
    return jnp.maximum(reading, (jnp.asarray(weights) / sequences + context) / bandwidth)


def cached_sequences(memory: Numeric, weights: Numeric, context: Numeric) -> Values:
    """Sequences whose keys and values fit beside the weights [1], `b = (M - W) / K` [Kwon et al. 2023, sec. 1].

    **Arguments:**

    - `memory`: M of the chips that share the model, for both [B].
    """
    return (jnp.asarray(memory) - weights) / context


class AbstractServing(eqx.Module):
    """Use of the model after training."""


class NoServing(AbstractServing):
    """Training alone counts."""


class Serving(AbstractServing):
    """Tokens that the model reads and writes in its life, on chips like those that train it.

    Chips that serve draw the mean power of those that train. Parameters that act are read and written in
    `weight_bytes`; a model whose experts do not all act on a token has all of them read by the sequences together.
    """

    read_tokens: Real = real("token", doc="of prompts, over the life of the model")
    written_tokens: Real = real("token", doc="of answers, over the life of the model")
    utilization: Real = real("1", 0.4, doc="of the peak rate, while tokens are read", within=SHARE_ABOVE_ZERO)
    sequences: Real = real(
        "1", 64.0, doc="answers written at the same time by the chips that share a model", within=ABOVE_ZERO
    )
    context: Real = real("token", 2048.0, doc="mean length of prompt and answer so far, while an answer is written")
    weight_bytes: Real = real("B", 2.0, doc="of a parameter, and of a number of keys and values", within=ABOVE_ZERO)

    def chip_time(
        self, active_parameters: Numeric, parameters: Numeric, context_width: Numeric, rate: Numeric, bandwidth: Numeric
    ) -> Values:
        """Chip time to serve all tokens [s].

        **Arguments:**

        - `active_parameters`, `parameters`: that act on a token, and all [1].
        - `context_width`: numbers that a token leaves in the cache of keys and values of all layers [1].
        - `rate`, `bandwidth`: of a chip, as in `reading_time` [FLOP/s] and `writing_time` [B/s].
        """
        read = reading_time(active_parameters, rate, self.utilization)
        weights = jnp.asarray(parameters) * self.weight_bytes
        cache = jnp.asarray(context_width) * self.context * self.weight_bytes
        written = writing_time(read, weights, cache, self.sequences, bandwidth)
        return self.read_tokens * read + self.written_tokens * written
