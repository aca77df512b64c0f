"""Worth of parameters and tokens by number format, optimizer and learning rate.

Loss laws are fitted to runs with one recipe: 16-bit products, AdamW, cosine decay to a tenth at the end of the run.
Another recipe acts as if the model had fewer parameters and the run fewer tokens, or more.

Narrow are the inputs of the products with weights in the layers: weights and activations in the forward pass, their
gradients in the backward pass. Sums within a product, attention, the output head, embeddings, norms, master weights and
optimizer states keep 16 or 32 bits.
"""

import equinox as eqx
import jax.numpy as jnp

from energymodel.learning.data_set import AbstractDataSet, LimitedData, UnlimitedData
from energymodel.learning.learning import AbstractLearning
from energymodel.learning.learning_rate import AbstractLearningRate, RateLaw
from energymodel.numerics import Numeric, Part, Real, Values, component, is_fixed, real
from energymodel.ranges import ABOVE_ZERO, FACTOR

WEIGHT_SENSITIVITY, ACTIVATION_SENSITIVITY = 2.6745, 2.2102
"""gamma_w and gamma_a [bit] of Kumar et al. 2024 (arXiv 2411.04330), appendix: all tensors fitted together."""


def share_worth(share: Numeric, efficiency: Numeric) -> Part:
    """Worth of a parameter or token of which a share of the products is in another format, `w = e^s` [definition].

    The geometric mean of both formats: a share of half costs half as much of the logarithm.

    **Arguments:**

    - `share`: s of the products [1].
    - `efficiency`: e, worth with all products in the format [1].

    **Returns:** worth [1], 1 for a share of 0.
    """
    return 1.0 if is_fixed(share, 0.0) else jnp.exp(share * jnp.log(jnp.asarray(efficiency)))


def quantized_parameters(weight_bits: Numeric, activation_bits: Numeric) -> Values:
    """Parameters that quantized ones are worth, `(1 - e^(-P_w/2.6745)) (1 - e^(-P_a/2.2102))`.

    [Kumar et al. 2024, eq. 4]. Fitted on 30 to 220 million parameters and 1.5 to 26 billion tokens with integers in the
    forward pass; keys and values stay wide here. Relative to 16 bits divide by the value there.

    **Arguments:**

    - `weight_bits`, `activation_bits`: P_w, P_a [bit].

    **Returns:** worth of a parameter [1], below 1.
    """
    weights = -jnp.expm1(-jnp.asarray(weight_bits) / WEIGHT_SENSITIVITY)
    return weights * -jnp.expm1(-jnp.asarray(activation_bits) / ACTIVATION_SENSITIVITY)


class NarrowProducts(eqx.Module):
    """Worth of parameters and tokens with all products with weights in a narrow format, relative to bf16.

    `N_eff = N e_N`, `D_eff = D e_D` in the loss law [Kumar et al. 2024, eq. 3; Castro et al. 2025, sec. 4]: rounding in
    the forward pass costs parameters, rounding of gradients tokens.
    """

    fp8_parameter_efficiency: Real = real("1", within=FACTOR)
    fp8_token_efficiency: Real = real("1", within=FACTOR)
    fp4_parameter_efficiency: Real = real("1", within=FACTOR)
    fp4_token_efficiency: Real = real("1", within=FACTOR)

    def parameters_worth(self, fp8: Numeric, fp4: Numeric) -> Part:
        """Worth of a parameter at shares of the products in fp8 and fp4 [1], see `share_worth`."""
        return share_worth(fp8, self.fp8_parameter_efficiency) * share_worth(fp4, self.fp4_parameter_efficiency)

    def tokens_worth(self, fp8: Numeric, fp4: Numeric) -> Part:
        """Worth of a token at shares of the products in fp8 and fp4 [1], see `share_worth`."""
        return share_worth(fp8, self.fp8_token_efficiency) * share_worth(fp4, self.fp4_token_efficiency)


class Optimizer(eqx.Module):
    """How gradients become updates: tokens of AdamW that one token is worth, both tuned."""

    token_efficiency: Real = real("1", within=FACTOR)


class RecipeLearning(AbstractLearning):
    """Learning under another recipe than that of the loss law, from data that may be repeated.

    Parameters and tokens are worth less or more, `L(N, D) = L_law(w_N N, w_D U(D)) + dL` [Castro et al. 2025, eq. 3]
    with the unique tokens U that repeated ones are worth (`unique_equivalent_tokens`).
    """

    base: AbstractLearning = component()
    parameters_worth: Real = real("1", doc="w_N", within=ABOVE_ZERO)
    tokens_worth: Real = real("1", doc="w_D", within=ABOVE_ZERO)
    added_loss: Real = real("nat/token", 0.0, doc="dL")
    data: AbstractDataSet = component(UnlimitedData())

    def loss(self, parameters: Numeric, effective_tokens: Numeric) -> Values:
        """See `AbstractLearning.loss`."""
        return self.base.loss(self._parameters(parameters), effective_tokens) + self.added_loss

    def run(self, parameters: Numeric, tokens: Numeric, batch: Numeric) -> tuple[Values, Values]:
        """See `AbstractLearning.run`."""
        unique = self.data.worth(tokens) if isinstance(self.data, LimitedData) else jnp.asarray(tokens)
        loss, effective_tokens = self.base.run(self._parameters(parameters), unique * self.tokens_worth, batch)
        return loss + self.added_loss, effective_tokens

    def tokens(self, parameters: Numeric, loss: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.tokens`."""
        return self._seen(self.base.tokens(self._parameters(parameters), loss - self.added_loss, batch))

    def tokens_to(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.tokens_to`."""
        return self._seen(self.base.tokens_to(self._parameters(parameters), effective_tokens, batch))

    def effective_tokens(self, parameters: Numeric, loss: Numeric) -> Values:
        """See `AbstractLearning.effective_tokens`."""
        return self.base.effective_tokens(self._parameters(parameters), loss - self.added_loss)

    def penalty(self, parameters: Numeric, effective_tokens: Numeric, batch: Numeric) -> Values:
        """See `AbstractLearning.penalty`; a schedule counts the epochs so far as if it had had this batch all along."""
        size = self._parameters(parameters)
        penalty = self.base.penalty(size, effective_tokens, batch) / self.tokens_worth
        if not isinstance(self.data, LimitedData):
            return penalty
        return penalty * self.data.slower(self.base.tokens_to(size, effective_tokens, batch) / self.tokens_worth)

    def information(self, effective_tokens: Numeric) -> Values:
        """See `AbstractLearning.information`."""
        return self.base.information(effective_tokens)

    def _parameters(self, parameters: Numeric) -> Values:
        return jnp.asarray(parameters) * self.parameters_worth

    def _seen(self, worth: Values) -> Values:
        """Tokens that are worth so many of the loss law [token]."""
        unique = worth / self.tokens_worth
        return self.data.tokens(unique) if isinstance(self.data, LimitedData) else unique


class Recipe(eqx.Module):
    """How a model is trained, in what the loss law does not know."""

    precision: NarrowProducts = component()
    optimizer: Optimizer = component()
    learning_rate: AbstractLearningRate = component()
    best_rate: RateLaw = component()

    def best_peak(self, parameters: Numeric, batch: Numeric) -> Values:
        """Best peak learning rate of a run [1], at a schedule of the batch that of its geometric mean.

        **Arguments:**

        - `parameters`: those of the layers that act on a token [1].
        - `batch`: B, or the batches of a schedule [token].
        """
        return self.best_rate.rate(parameters, jnp.exp(jnp.mean(jnp.log(jnp.asarray(batch)))))

    def learning(
        self, base: AbstractLearning, fp8: Numeric, fp4: Numeric, parameters_worth: Numeric, data: AbstractDataSet
    ) -> RecipeLearning:
        """Learning by a law of another recipe, with shares of the products in fp8 and fp4 [1] [definition].

        **Arguments:**

        - `parameters_worth`: of a parameter in the widest number format of the chip [1].
        """
        tokens = self.optimizer.token_efficiency * jnp.asarray(self.learning_rate.tokens_worth())
        return RecipeLearning(
            base=base,
            parameters_worth=parameters_worth * self.precision.parameters_worth(fp8, fp4),
            tokens_worth=tokens * self.precision.tokens_worth(fp8, fp4),
            added_loss=self.learning_rate.added_loss(),
            data=data,
        )
