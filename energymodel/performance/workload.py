"""How many parameters and floating-point operations does a transformer have?

Shared arguments: `hidden` size h, `layers` L, `attention_width` a d (heads times head size) [1]; `sequence`, the
context length s [token].
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real


def attention_parameters(hidden: Numeric, heads: Numeric, kv_heads: Numeric, head_size: Numeric) -> Float[Array, "..."]:
    """Weights of one attention block, `2 h (a + a_kv) d`: query, key, value and output projection.

    Exact for multi-head and grouped-query attention [Ainslie et al. 2023]; latent attention stores a little less.

    **Arguments:**

    - `heads`, `kv_heads`: query heads a and key-value heads a_kv [1].
    - `head_size`: width d of a head [1].

    **Returns:** parameters [1].
    """
    return 2.0 * jnp.asarray(hidden) * (heads + kv_heads) * head_size


def feed_forward_parameters(hidden: Numeric, feed_forward: Numeric, gated: Numeric) -> Float[Array, "..."]:
    """Weights of one feed-forward block, `(2 + g) h f`; a gated block has a third matrix [Shazeer 2020].

    **Arguments:**

    - `feed_forward`: inner width f [1].
    - `gated`: g, 1 if gated, 0 if plain [1].

    **Returns:** parameters [1].
    """
    return (2.0 + jnp.asarray(gated)) * hidden * feed_forward


def embedding_parameters(vocabulary: Numeric, hidden: Numeric, tied: Numeric) -> Float[Array, "..."]:
    """Weights of the token embedding and the output head, `(2 - tied) V h` [definition].

    **Arguments:**

    - `vocabulary`: number of tokens V in the vocabulary [1].
    - `tied`: 1 if embedding and head share their weights, else 0 [1].

    **Returns:** parameters [1].
    """
    return (2.0 - jnp.asarray(tied)) * vocabulary * hidden


def training_flops_per_token(
    parameters: Numeric, layers: Numeric, attention_width: Numeric, sequence: Numeric
) -> Float[Array, "..."]:
    """Operations to train on one token, `F = 6 N + 6 L (a d) s`, causal attention [Narayanan et al. 2021, eq. 2].

    Narayanan's form has no mask (12 L h s); a causal mask halves it. Excludes recomputation.

    **Arguments:**

    - `parameters`: parameters N that act on a token [1].

    **Returns:** F [FLOP/token].
    """
    return 6.0 * jnp.asarray(parameters) + attention_flops_per_token(layers, attention_width, sequence)


def attention_flops_per_token(layers: Numeric, attention_width: Numeric, sequence: Numeric) -> Float[Array, "..."]:
    """Score and value products of causal attention, forward and backward, `6 L (a d) s` [Narayanan et al. 2021].

    **Returns:** [FLOP/token].
    """
    return 6.0 * jnp.asarray(layers) * attention_width * sequence


class Transformer(eqx.Module):
    """Shape of a decoder-only transformer, dense or mixture of experts.

    A mixture-of-experts model replaces the feed-forward block of all but `dense_layers` layers by `experts`
    routed blocks, of which `active_experts` act on a token, and `shared_experts` that always act. A dense model has one
    expert and no shared ones. `expert_imbalance` is the load of the fullest expert, including padding up to its
    capacity, over the mean load. Norms and biases (below 0.1 % of the weights) are left out.
    """

    layers: Real = real("1")
    hidden: Real = real("1")
    heads: Real = real("1")
    kv_heads: Real = real("1")
    head_size: Real = real("1")
    feed_forward: Real = real("1")
    gated: Real = real("1")
    vocabulary: Real = real("1")
    sequence: Real = real("token")
    tied: Real = real("1", 0.0)
    experts: Real = real("1", 1.0)
    active_experts: Real = real("1", 1.0)
    shared_experts: Real = real("1", 0.0)
    dense_layers: Real = real("1", 0.0)
    dense_feed_forward: Real = real("1", 0.0)
    flash: Real = real("1", 1.0)
    expert_imbalance: Real = real("1", 1.0)
    alternating_dense: Real = real(
        "1", 0.0, doc="1 if dense layers alternate with those of experts, 0 if they come first"
    )

    @property
    def attention_width(self) -> Float[Array, ""]:
        """Heads times head size, the width of the score and value products."""
        return jnp.asarray(self.heads) * self.head_size

    @property
    def attention_block(self) -> Float[Array, ""]:
        """Parameters of the attention block of one layer [1]."""
        return attention_parameters(self.hidden, self.heads, self.kv_heads, self.head_size)

    @property
    def expert_block(self) -> Float[Array, ""]:
        """Parameters of one feed-forward block (one expert) [1]."""
        return feed_forward_parameters(self.hidden, self.feed_forward, self.gated)

    @property
    def embeddings(self) -> Float[Array, ""]:
        """Parameters of embedding and output head [1]."""
        return embedding_parameters(self.vocabulary, self.hidden, self.tied)

    @property
    def routed_parameters(self) -> Float[Array, ""]:
        """Parameters held by routed experts, which expert parallelism divides [1]; zero if dense."""
        return self.mixture * (self.layers - self.dense_layers) * self.experts * self.expert_block

    @property
    def replicated_parameters(self) -> Float[Array, ""]:
        """Parameters of the layers that expert parallelism does not divide [1]; all of them if dense."""
        return self._layer_parameters((1.0 - self.mixture) * self.experts)

    @property
    def active_layer_parameters(self) -> Float[Array, ""]:
        """Parameters of all layers that act on one token, without embeddings [1]."""
        return self._layer_parameters(self.active_experts)

    @property
    def parameters(self) -> Float[Array, ""]:
        """All parameters [1]."""
        return self._layer_parameters(self.experts) + self.embeddings

    @property
    def active_parameters(self) -> Float[Array, ""]:
        """Parameters that act on one token [1]; all of them if dense."""
        return self.active_layer_parameters + self.embeddings

    @property
    def mixture(self) -> Float[Array, ""]:
        """0 with one expert, 1 with two or more; linear in between, so that slopes are finite."""
        return jnp.minimum(1.0, self.experts - 1.0)

    def _layer_parameters(self, experts: Numeric) -> Float[Array, ""]:
        """Parameters of all layers with a number of routed experts each [1]."""
        dense_block = feed_forward_parameters(self.hidden, self.dense_feed_forward, self.gated)
        blocks = (self.layers - self.dense_layers) * (experts + self.shared_experts) * self.expert_block
        return self.layers * self.attention_block + self.dense_layers * dense_block + blocks

    @property
    def flops_per_token(self) -> Float[Array, ""]:
        """Operations to train on one token, without recomputation [FLOP/token]."""
        return training_flops_per_token(self.active_parameters, self.layers, self.attention_width, self.sequence)
