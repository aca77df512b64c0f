"""Critical batch sizes, and the tokens that larger batches waste.

Shared arguments: `batch` B, `critical_batch` B_c and `effective_tokens` D_eff [token]; of a law, its `coefficient` c
[token], `exponent` xi, below 1 [1], and the `sharpness` p of the bend, above 0 [1]; `small_batch_share` k, that of the
critical batch at which small batches double the tokens, below 1 [1]; `loss` L, `initial_loss` L_0 and `entropy_floor`
L_inf [nat/token]; `per_token` progress e(B) and that of a small batch, `progress` e_0 [1/token]; `token_rate` R
[token/s].

A batch that needs more tokens for the same loss is faster only if its throughput rises by more, and saves energy only
if its energy per token falls by more; a batch may be faster and take more energy. Of the functions that compare two
batches: `batch` B_1, `other_batch` B_2 and the run-level `critical_batch` B_c [token]; `throughput` R_1 and
`other_throughput` R_2 [token/s]; `power` P_1 [W]; `token_ratio` D_2/D_1, of the tokens to the same loss [1].
"""

import abc

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Part, Real, Values, is_fixed, power_law, real, share, softplus
from energymodel.ranges import ABOVE_ZERO, EXPONENT, SHARE, SHARE_ABOVE_ZERO, Range

UNTRAINED_LOSS = 10.82
"""Loss of a uniform guess among 50,257 tokens, ln 50257 [nat/token] [Kaplan et al. 2020, sec. 2]."""


class AbstractCriticalBatch(eqx.Module):
    """Batch at which half of the tokens are wasted, as a function of training progress."""

    @abc.abstractmethod
    def run_level(self, effective_tokens: Numeric, loss: Numeric) -> Values:
        """Critical batch [token] of a whole run at constant batch that ends at this progress."""

    def instantaneous(self, effective_tokens: Numeric, loss: Numeric) -> Values:
        """Critical batch [token] at this moment of a run; that of the run unless the law says otherwise."""
        return self.run_level(effective_tokens, loss)

    @abc.abstractmethod
    def run_penalty(self, batch: Numeric, effective_tokens: Numeric, loss: Numeric) -> Values:
        """Tokens per effective token [1] of a whole run in batches of `batch` [token] that ends at this progress."""

    def instantaneous_penalty(self, batch: Numeric, effective_tokens: Numeric, loss: Numeric) -> Values:
        """Tokens per effective token [1] at this moment; that of the run unless the law says otherwise."""
        return self.run_penalty(batch, effective_tokens, loss)


class PowerCriticalBatch(AbstractCriticalBatch):
    """Critical batch that grows with the tokens, `B_c = c (D / D_0)^xi` [Bergsma et al. 2025; Zhang et al. 2024].

    The coefficient stands at the pivot D_0 in the middle of the data behind the law, where it hardly depends on the
    exponent. Beyond the tested range the law extrapolates: each trend, zero by default and with a spread in the
    presets, adds to the power of tokens or batch there, so that the interval widens with the distance from the data.

    Small batches cost tokens as well where the settings of the optimizer stay, `D / D_eff = h (1 + v)` with h of
    `sharp_batch_penalty` and v of `small_batch_excess`, whose B_c is that without `batch_trend`
    [experiments/06_critical_batch: fitted to 4 to 100 billion tokens, batches of 33 thousand to 4 million, v up to 2].
    """

    at_pivot: Real = real("token", doc="c of the run-level law, at D = D_0", within=ABOVE_ZERO)
    exponent: Real = share(doc="xi, 0 to 1")
    pivot: Real = real("token", 1.0, doc="D_0", within=ABOVE_ZERO)
    sharpness: Real = real("1", 1.0, doc="p of `sharp_batch_penalty`; 1 is McCandlish's hyperbola", within=EXPONENT)
    tested_tokens: Real = real("token", 1e30, doc="D_t, most effective tokens of the runs behind the law")
    tested_batch: Real = real("token", 1e30, doc="B_t, largest batch of the runs behind the law")
    token_trend: Real = real("1", 0.0, doc="added to xi for D above D_t", signed=True, within=Range(-10.0, 10.0))
    batch_trend: Real = real(
        "1",
        0.0,
        doc="power of B / B_t by which B_c changes for batches above B_t",
        signed=True,
        within=Range(-10.0, 10.0),
    )
    small_batch_share: Real = real(
        "1", 0.0, doc="k of `small_batch_excess`; 0 if beta2 follows the batch", within=SHARE
    )

    def run_level(self, effective_tokens: Numeric, loss: Numeric) -> Values:
        """See `power_critical_batch` and `beyond_tested`; for batches in the tested range."""
        critical = power_critical_batch(jnp.asarray(effective_tokens) / self.pivot, self.at_pivot, self.exponent)
        return critical * beyond_tested(effective_tokens, self.tested_tokens, self.token_trend)

    def instantaneous(self, effective_tokens: Numeric, loss: Numeric) -> Values:
        """`B_c / (1 - xi)` [derivation: docs/physics.md B1], independent of the loss. Exact for a sharpness of 1."""
        return self.run_level(effective_tokens, loss) / (1.0 - self._exponent_at(effective_tokens))

    def run_penalty(self, batch: Numeric, effective_tokens: Numeric, loss: Numeric) -> Values:
        """See `sharp_batch_penalty` and `small_batch_excess`; independent of the loss."""
        critical = self.run_level(effective_tokens, loss)
        penalty = sharp_batch_penalty(batch, self._of_batch(batch, critical), self.sharpness)
        return penalty * (1.0 + small_batch_excess(batch, critical, self.small_batch_share))

    def instantaneous_penalty(self, batch: Numeric, effective_tokens: Numeric, loss: Numeric) -> Values:
        """`dD/dx = h' (1 + v) + 2 xi v h`, h' of `instantaneous_batch_penalty`; independent of the loss.

        [derivation: derivative by x of `D = x h (1 + v)` at constant B, with v growing as x^(2 xi)].
        """
        critical, exponent = self.run_level(effective_tokens, loss), self._exponent_at(effective_tokens)
        excess, of_batch = small_batch_excess(batch, critical, self.small_batch_share), self._of_batch(batch, critical)
        penalty = instantaneous_batch_penalty(batch, of_batch, self.sharpness, exponent)
        if is_fixed(excess, 0.0):
            return penalty
        growth = 2.0 * exponent * excess * sharp_batch_penalty(batch, of_batch, self.sharpness)
        return penalty * (1.0 + excess) + growth

    def _of_batch(self, batch: Numeric, critical_batch: Values) -> Values:
        """Run-level critical batch [token] for a batch of any size, from that for tested ones."""
        return critical_batch * beyond_tested(batch, self.tested_batch, self.batch_trend)

    def _exponent_at(self, effective_tokens: Numeric) -> Values:
        """Slope of the law on logarithmic axes [1]."""
        return self.exponent + jnp.where(jnp.asarray(effective_tokens) > self.tested_tokens, self.token_trend, 0.0)


class KaplanCriticalBatch(AbstractCriticalBatch):
    """Critical batch that depends on the loss alone, `B_c = c L^-m`, m about 4.76 [Kaplan et al. 2020, eq. 1.4].

    The law gives the noise scale at a loss, so the run level is taken to equal the instantaneous level. That is exact
    at a moment; at run level, the excess of the penalty is off by the share `m g / L`, g the slope -dL/dln x (7 % at g
    = .0275, L = 1.97). Not valid at the very start of a run or for fewer than about a thousand steps.
    """

    coefficient: Real = real("token", doc="c, at a loss of 1 nat/token", within=ABOVE_ZERO)
    exponent: Real = real("1", doc="m, the inverse of Kaplan's alpha_B", within=EXPONENT)

    def run_level(self, effective_tokens: Numeric, loss: Numeric) -> Values:
        """See `kaplan_critical_batch`; tokens matter only through the loss."""
        return kaplan_critical_batch(loss, self.coefficient, self.exponent)

    def run_penalty(self, batch: Numeric, effective_tokens: Numeric, loss: Numeric) -> Values:
        """See `batch_penalty`."""
        return batch_penalty(batch, self.run_level(effective_tokens, loss))


class StatedBatchEfficiency(AbstractCriticalBatch):
    """The efficiency of "Training Dynamics", `E(B) = a B^-b`: tokens per effective token `h = (B / B_1)^b`.

    B_1 is the batch at which a token is worth one. As the document has it, small batches make more of a token than
    there is in it: a search that may choose the batch goes there. Measured efficiency saturates (`PowerCriticalBatch`).
    """

    unit_batch: Real = real("token", doc="B_1", within=ABOVE_ZERO)
    exponent: Real = real("1", doc="b, 0 to 1", within=SHARE_ABOVE_ZERO)

    def run_level(self, effective_tokens: Numeric, loss: Numeric) -> Values:
        """Batch at which half of the tokens are wasted, `B_1 2^(1/b)` [token]; independent of progress."""
        return self.unit_batch * jnp.power(2.0, 1.0 / jnp.asarray(self.exponent)) * jnp.ones_like(effective_tokens)

    def run_penalty(self, batch: Numeric, effective_tokens: Numeric, loss: Numeric) -> Values:
        """`(B / B_1)^b` [1]."""
        return power_law(jnp.asarray(batch) / self.unit_batch, 1.0, self.exponent)


def power_critical_batch(tokens: Numeric, coefficient: Numeric, exponent: Numeric) -> Values:
    """Critical batch of a run [token], `B_c = c D^xi` [Bergsma et al. 2025].

    Measured on 0.1 to 3 billion parameters and up to 1e11 tokens; independent of model size. Zhang et al. 2024 use the
    same form for the batch of 20 % overhead, a fifth of the critical batch.
    """
    return power_law(tokens, coefficient, exponent)


def kaplan_critical_batch(loss: Numeric, coefficient: Numeric, exponent: Numeric) -> Values:
    """Critical batch at a loss [token], `B_c = c L^-m`, m = 1/alpha_B [Kaplan et al. 2020, eq. 1.4].

    In nats of WebText2 and its tokenizer: not portable to other data without a shift of the loss. Losses above that of
    an untrained model, which power laws give for the first tokens, count as untrained.
    """
    return power_law(jnp.minimum(loss, UNTRAINED_LOSS), coefficient, -jnp.asarray(exponent))


def rest_critical_batch(critical_batch: Numeric, tokens_seen: Numeric, rest: Numeric, exponent: Numeric) -> Values:
    """Critical batch of what is left of a run [token], `B_r = B_c (1 - u) / (1 - u^(1 - xi))`, `u = x_0 / (x_0 + x)`.

    [derivation: `D_rest = D(x_0 + x, B) - D(x_0, B)` with `D = x + B x^(1 - xi) / c` is `x (1 + B / B_r)`]. It grows
    from B_c of the whole run, where nothing was seen, to the instantaneous `B_c / (1 - xi)` of a short rest.

    **Arguments:**

    - `critical_batch`: that of a whole run to the end of the rest, B_c at `x_0 + x` [token].
    - `tokens_seen`: effective tokens before the rest, x_0 [token].
    - `rest`: effective tokens of the rest, x [token], above 0.
    - `exponent`: xi [1], below 1.
    """
    begun = jnp.asarray(tokens_seen) > 0.0
    share = jnp.where(begun, rest / jnp.where(begun, tokens_seen + rest, 2.0 * jnp.asarray(rest)), 0.5)
    spent = -jnp.expm1((1.0 - jnp.asarray(exponent)) * jnp.log1p(-share))
    return jnp.asarray(critical_batch) * jnp.where(begun, share / spent, 1.0)


def batch_penalty(batch: Numeric, critical_batch: Numeric) -> Values:
    """Tokens per effective token, `D / D_eff = 1 + B / B_c` [McCandlish et al. 2018, sec. 2.3].

    With S = D/B steps this is `(S/S_min - 1)(D/D_min - 1) = 1`.

    **Returns:** penalty [1], at least 1.
    """
    return 1.0 + jnp.asarray(batch) / critical_batch


def sharp_batch_penalty(batch: Numeric, critical_batch: Numeric, sharpness: Numeric) -> Values:
    """Tokens per effective token with a sharper bend, `D / D_eff = (1 + (B / B_c)^p)^(1/p)`.

    [derivation: `batch_penalty` generalized]. With S = D/B steps this is `((S/S_min)^p - 1)((D/D_min)^p - 1) = 1`:
    McCandlish's hyperbola at p = 1, with the same limits D_min tokens and S_min steps at every p. Runs whose learning
    rate is tuned at each batch have p from 1 to 2 (experiments/06_critical_batch).

    **Returns:** penalty [1], at least 1.
    """
    power = sharpness * (jnp.log(jnp.asarray(batch)) - jnp.log(jnp.asarray(critical_batch)))
    return jnp.exp(softplus(power) / sharpness)


def instantaneous_batch_penalty(
    batch: Numeric, critical_batch: Numeric, sharpness: Numeric, exponent: Numeric
) -> Values:
    """Tokens per effective token at a moment [1], `dD/dx = (1 + u)^(1/p - 1) (1 + (1 - xi) u)`, `u = (B / B_c)^p`.

    [derivation: derivative by x of `D = x (1 + u)^(1/p)` at constant B, with the run-level critical batch
    B_c growing as x^xi]. At p = 1 it is `batch_penalty` with `B_c / (1 - xi)`, the coefficient of the local law.

    **Arguments:**

    - `critical_batch`: that of a whole run which ends at this progress, B_c [token].
    - `sharpness`: p [1], above 0.
    - `exponent`: xi [1], below 1 and below 1/p, where it rises with the batch.
    """
    power = sharpness * (jnp.log(jnp.asarray(batch)) - jnp.log(jnp.asarray(critical_batch)))
    bend = jnp.exp((1.0 / sharpness - 1.0) * softplus(power))
    return bend * (1.0 + (1.0 - jnp.asarray(exponent)) * jnp.exp(power))


def small_batch_excess(batch: Numeric, critical_batch: Numeric, small_batch_share: Numeric) -> Part:
    """Share of tokens that a small batch adds, `v = (k B_c / B)^2` [fitted to Li et al. 2025].

    Of runs whose optimizer keeps its settings at every batch: k = 1/66 fits their best learning rates at 4 to 100
    billion tokens and batches of 33 thousand to 4 million (experiments/06_critical_batch); v up to 2 is tested. Runs
    with beta2 and the averaging of weights tuned at each batch show none (Zhang et al. 2024), hence k = 0 there.
    Hypothesis: the second moment must average over a fifth of B_c, `k = 0.2 / h`, with its half-life `h = ln 2 / -ln
    beta2` [step].

    **Returns:** v [1]; 0.0 for a k that is known to be 0.
    """
    if is_fixed(small_batch_share, 0.0):
        return 0.0
    batch = jnp.asarray(batch)
    # At a vanishing batch finite, so that 0 without a share.
    return (jnp.asarray(small_batch_share) * critical_batch / jnp.where(batch > 0.0, batch, 1.0)) ** 2


def best_batch(critical_batch: Numeric, sharpness: Numeric, small_batch_share: Numeric) -> Values:
    """Batch of the fewest tokens to a loss [token], `B = B_c (k^2 (2 + (B/B_c)^p))^(1/(p + 2))`.

    [derivation: `d ln(h (1 + v)) / d ln B = u / (1 + u) - 2 v / (1 + v) = 0` with `u = (B/B_c)^p`]. Four steps of
    that iteration from B = 0, each of which reduces the error at least tenfold for k below 0.1.

    **Returns:** batch [token], 0 for k = 0: the smaller, the better.
    """
    share, power = jnp.asarray(small_batch_share), jnp.asarray(sharpness)
    ratio = jnp.zeros_like(jnp.asarray(critical_batch))
    for _ in range(4):
        ratio = jnp.power(share**2 * (2.0 + jnp.power(ratio, power)), 1.0 / (power + 2.0))
    return jnp.asarray(critical_batch) * ratio


def beyond_tested(value: Numeric, tested: Numeric, trend: Numeric) -> Values:
    """Factor on a law beyond the range of its data, `max(x / x_t, 1)^delta` [definition].

    **Arguments:**

    - `value`, `tested`: x and the largest x behind the law, in the same unit [1].
    - `trend`: delta [1].

    **Returns:** factor [1]; 1 within the range.
    """
    ratio = jnp.maximum(jnp.asarray(value) / tested, 1.0)
    return jnp.power(ratio, jnp.asarray(trend))


def per_token_progress(batch: Numeric, progress: Numeric, critical_batch: Numeric, exponent: Numeric) -> Values:
    """Progress per token [1/token], `e = e_0 (1 + B / B_c)^-beta` [McCandlish et al. 2018, sec. 2.3, generalized].

    The exponent beta is 0.7 to 1.2; 1 is McCandlish. For B >> B_c it is the sources' power law `alpha B^-beta` with
    `alpha = e_0 B_c^beta`.
    """
    return jnp.asarray(progress) * jnp.power(batch_penalty(batch, critical_batch), -jnp.asarray(exponent))


def progress_rate(per_token: Numeric, token_rate: Numeric) -> Values:
    """Progress per second [1/s], `nu = e(B) R` [definition].

    The sources' "information processing rate"; in bits it is `energymodel.learning.loss_law.information_rate`.
    """
    return jnp.asarray(per_token) * token_rate


def exponential_training_time(
    initial_loss: Numeric, loss: Numeric, entropy_floor: Numeric, per_token: Numeric, token_rate: Numeric
) -> Values:
    """Time to a loss if the gap decayed exponentially [s], `t = ln[(L_0 - L_inf) / (L - L_inf)] / (e R)`.

    [derivation: dL/dt = -e R (L - L_inf)]. The corrected form of the sources' time; for a loss that falls as a power
    law see `energymodel.learning.loss_ode`.
    """
    gaps = (jnp.asarray(initial_loss) - entropy_floor) / (jnp.asarray(loss) - entropy_floor)
    return jnp.log(gaps) / progress_rate(per_token, token_rate)


def token_ratio(batch: Numeric, other_batch: Numeric, critical_batch: Numeric) -> Values:
    """Tokens to a loss at another batch over those at this one, `D(B_2)/D(B_1) = (1 + B_2/B_c) / (1 + B_1/B_c)`.

    [McCandlish et al. 2018, sec. 2.3]. B_c is that at the progress of the loss.

    **Returns:** ratio [1], the `token_ratio` of the other functions unless it is measured.
    """
    return batch_penalty(other_batch, critical_batch) / batch_penalty(batch, critical_batch)


def break_even_throughput(throughput: Numeric, token_ratio: Numeric) -> Values:
    """Throughput above which another batch reaches the loss in less time [token/s], `R_2 = R_1 D_2/D_1`.

    [derivation: t = D / R at the same loss].
    """
    return jnp.asarray(throughput) * token_ratio


def break_even_power(power: Numeric, throughput: Numeric, other_throughput: Numeric, token_ratio: Numeric) -> Values:
    """Power below which another batch reaches the loss with less energy [W], `P_2 = P_1 (R_2/R_1) / (D_2/D_1)`.

    [derivation: E = P D / R at the same loss]. Per token: `(P_2/R_2) / (P_1/R_1)` below `D_1/D_2`.
    """
    return jnp.asarray(power) * other_throughput / (jnp.asarray(throughput) * token_ratio)
