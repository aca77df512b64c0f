"""Best peak learning rate, what another one costs, and what a schedule of the rate is worth."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.errors import InputError
from energymodel.numerics import Numeric, Real, Scalar, Values, power_law, real, vector
from energymodel.ranges import ABOVE_ZERO, EXPONENT, FACTOR, SHARE, SHARE_ABOVE_ZERO

PIVOT_SIZE, PIVOT_BATCH = 4e8, 5e5
"""Parameters [1] and batch [token] at which `best_learning_rate` has its coefficient."""

PIECES = 100
"""Equal parts of a ramp, over each of which the rate is constant."""


def best_learning_rate(
    parameters: Numeric, batch: Numeric, at_pivot: Numeric, by_parameters: Numeric, by_batch: Numeric
) -> Values:
    """Best peak learning rate of AdamW [1], `eta_opt = e (4e8 / N)^f (B / 5e5)^h` [fitted to Li et al. 2025].

    By the best rates of 0.2 to 1.1 billion parameters, 4 to 100 billion tokens and batches of 33 thousand to 4 million
    (experiments/22_learning_rate); extrapolates beyond. Tokens count through the batch alone: an exponent of their own
    improves no size that is held out.

    **Arguments:**

    - `parameters`: N of the layers that act on a token [1].
    - `batch`: B [token].
    - `at_pivot`, `by_parameters`, `by_batch`: e, f, h [1].
    """
    rate = power_law(jnp.asarray(parameters) / PIVOT_SIZE, at_pivot, -jnp.asarray(by_parameters))
    return power_law(jnp.asarray(batch) / PIVOT_BATCH, rate, by_batch)


def mismatch_loss(learning_rate: Numeric, optimal: Numeric, stiffness: Numeric) -> Values:
    """Loss added by a wrong learning rate [nat/token], `dL = (k/2) ln^2(eta/eta_opt)`.

    [derivation: lowest order about the optimum in ln eta].

    **Arguments:**

    - `learning_rate`, `optimal`: eta and eta_opt [1].
    - `stiffness`: k [nat/token], about 0.02 (0.005 to 0.05, a prior).
    """
    return 0.5 * jnp.asarray(stiffness) * jnp.log(jnp.asarray(learning_rate) / optimal) ** 2


class RateLaw(eqx.Module):
    """Best peak learning rate by size and batch, see `best_learning_rate`."""

    at_pivot: Real = real("1", doc="e, at 4e8 parameters and a batch of 5e5 tokens", within=ABOVE_ZERO)
    by_parameters: Real = real("1", doc="f", within=EXPONENT)
    by_batch: Real = real("1", doc="h", within=EXPONENT)

    def rate(self, parameters: Numeric, batch: Numeric) -> Values:
        """See `best_learning_rate`."""
        return best_learning_rate(parameters, batch, self.at_pivot, self.by_parameters, self.by_batch)


class AbstractLearningRate(eqx.Module):
    """How the learning rate rises and decays, and how far its peak is from the best.

    A peak of `ratio` times the best of the size and the batch (`Recipe.best_peak`) adds `(k/2) ln^2 ratio` to the loss
    (`mismatch_loss`), valid within a factor of four.
    """

    stiffness: eqx.AbstractVar[Real]
    ratio: eqx.AbstractVar[Real]

    @abc.abstractmethod
    def tokens_worth(self) -> Numeric:
        """Tokens of cosine decay that a token is worth [1]."""

    def mismatch(self) -> Scalar:
        """Loss added by a peak that is not the best [nat/token]."""
        return mismatch_loss(self.ratio, 1.0, self.stiffness)

    @abc.abstractmethod
    def added_loss(self) -> Scalar:
        """Loss above that of cosine decay of the best peak, beside what tokens are worth [nat/token]."""


class LearningRate(AbstractLearningRate):
    """A schedule that is known by what its tokens are worth in tokens of cosine decay."""

    token_efficiency: Real = real("1", within=FACTOR)
    stiffness: Real = real("nat/token")
    ratio: Real = real("1", 1.0, within=FACTOR)

    def tokens_worth(self) -> Numeric:
        """See `AbstractLearningRate.tokens_worth`."""
        return self.token_efficiency

    def added_loss(self) -> Scalar:
        """See `AbstractLearningRate.added_loss`."""
        return self.mismatch()


class StagedRate(AbstractLearningRate):
    """A schedule in stages, each a share of the tokens; warmup, steps, decay, in any order.

    A stage moves from the rate of the one before, the first from 0, to its own over the share `ramps` of its tokens
    and stays there: 0 is a step, 1 a decay over the whole stage. Shares count over their sum, rates over the highest.
    A rate eta of the highest makes progress as its root does, and jitters: the loss is higher by `J eta`, which fades
    after a step with the progress (`rate_summary`). [fitted to Luo et al. 2025: experiments/22_learning_rate].
    """

    shares: Float[Array | np.ndarray, " stages"] = vector("1", within=ABOVE_ZERO)
    rates: Float[Array | np.ndarray, " stages"] = vector("1")
    ramps: Float[Array | np.ndarray, " stages"] = vector("1", within=SHARE)
    curvature: Real = real("1", within=SHARE, doc="of the ramps: 0 linear, 1 half a cosine")
    jitter: Real = real("nat/token", doc="J at the best peak, all of the loss that decay to 0 gains")
    jitter_exponent: Real = real("1", within=EXPONENT, doc="s, `J ratio^s` at another peak")
    memory: Real = real("1", within=SHARE_ABOVE_ZERO, doc="m, share of the progress over which jitter fades by e")
    stiffness: Real = real("nat/token")
    ratio: Real = real("1", 1.0, within=FACTOR)

    def __check_init__(self) -> None:
        lengths = {name: np.size(getattr(self, name)) for name in ("shares", "rates", "ramps")}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise InputError(f"Stages of a learning rate: {counts}. Give each stage one of each.")
        if isinstance(self.rates, np.ndarray) and not np.max(self.rates) > 0.0:
            raise InputError("Stages of a learning rate: all rates are 0. Give one stage a rate above 0.")

    def pieces(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Rates over the highest, and the share of the tokens over which each holds [1]; ramps are cut into parts."""
        shares, rates, ramps = (jnp.asarray(column) for column in (self.shares, self.rates, self.ramps))
        shares, rates = shares / jnp.sum(shares), rates / jnp.max(rates)
        along = (jnp.arange(PIECES) + 0.5) / PIECES
        along = along + self.curvature * (0.5 - 0.5 * jnp.cos(jnp.pi * along) - along)
        before = jnp.concatenate([jnp.zeros(1), rates[:-1]])
        ramp = before[:, None] + (rates - before)[:, None] * along
        lasting = jnp.broadcast_to((shares * ramps / PIECES)[:, None], ramp.shape)
        table = jnp.stack([jnp.column_stack([ramp, rates]), jnp.column_stack([lasting, shares * (1.0 - ramps)])])
        return table[0].ravel(), table[1].ravel()

    def beyond_cosine(self) -> tuple[Scalar, Scalar]:
        """Progress per token over that of cosine decay to a tenth, and jitter less its own [1]."""
        progress, jitter = rate_summary(*self.pieces(), self.memory)
        cosine = 0.55 + 0.45 * jnp.cos(jnp.pi * (jnp.arange(PIECES) + 0.5) / PIECES)
        usual, left = rate_summary(cosine, jnp.full(PIECES, 1.0 / PIECES), self.memory)
        return progress / usual, jitter - left

    def tokens_worth(self) -> Numeric:
        """See `AbstractLearningRate.tokens_worth`."""
        return self.beyond_cosine()[0]

    def added_loss(self) -> Scalar:
        """See `AbstractLearningRate.added_loss`."""
        jitter = power_law(self.ratio, self.jitter, self.jitter_exponent)
        return self.mismatch() + jitter * self.beyond_cosine()[1]


def rate_summary(rate: Float[Array, " n"], shares: Float[Array, " n"], memory: Numeric) -> tuple[Scalar, Scalar]:
    """Progress per token `X = sum w sqrt(eta)` and jitter y(X) at the end of a schedule, `dy/dx = (eta - y) / (m X)`.

    [fitted to Luo et al. 2025, with fewer constants than their eq. 3: experiments/22_learning_rate]. The exponent of
    the rate in the progress x is 0.50 where it is fitted. Jitter is the mean of eta, weighted by `e^(-(X - x)/(m X))`.

    **Arguments:**

    - `rate`: eta over the highest rate, constant over each share [1].
    - `shares`: w of the tokens [1].
    - `memory`: m [1].

    **Returns:** X [1] and y [1], both 1 at a constant rate.
    """
    passed = jnp.cumsum(shares * jnp.sqrt(jnp.where(rate > 0.0, rate, 1.0)) * (rate > 0.0))
    progress = passed[-1]
    kept = jnp.exp((passed / progress - 1.0) / memory)
    before = jnp.concatenate([jnp.exp(-1.0 / jnp.asarray(memory))[None], kept[:-1]])
    return progress, jnp.sum(rate * (kept - before)) + rate[0] * before[0]
