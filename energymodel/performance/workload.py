"""Parameters and floating-point operations of a transformer.

Shared arguments: `hidden` size h, `layers` L, `attention_width` a d (heads times head size; with latent attention the
mean of the sizes of keys and values), `heads` a and `kv_heads` a_kv, query and key-value heads, `head_size` d, inner
width `feed_forward` f, and `vocabulary` V [1]; `gated` g, 1 if gated, 0 if plain, and `tied`, 1 if embedding and head
share their weights, else 0 [1]; `parameters` N that act on a token [1]; `sequence`, the context length s [token].
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Part, Real, Scalar, Values, at_most_one, blend, is_fixed, part, real, share
from energymodel.performance.token_mixing import index_flops_per_token, state_flops_per_token, window_length
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE


def attention_parameters(hidden: Numeric, heads: Numeric, kv_heads: Numeric, head_size: Numeric) -> Values:
    """Weights of one attention block [1], `2 h (a + a_kv) d`: query, key, value and output projection.

    Exact for multi-head and grouped-query attention [Ainslie et al. 2023].
    """
    return 2.0 * jnp.asarray(hidden) * (heads + kv_heads) * head_size


def latent_attention_parameters(
    hidden: Numeric,
    heads: Numeric,
    head_size: Numeric,
    value_head_size: Numeric,
    rope_head_size: Numeric,
    query_rank: Numeric,
    kv_rank: Numeric,
) -> Values:
    """Weights of one block of latent attention [1], norms excluded [DeepSeek-AI 2024, arXiv 2405.04434, sec. 2.1].

    Queries `h r_q + r_q a d`, or `h a d` where they have no latent (r_q = 0); keys and values
    `h (r + d_r) + r a (d - d_r + d_v)`, where all heads share the d_r rotated entries of a key; output `a d_v h`.

    **Arguments:**

    - `heads`: query heads a, each with its own key and value [1].
    - `head_size`: d of queries and keys, of which `rope_head_size`, d_r, carry the position [1].
    - `value_head_size`: d_v of values [1].
    - `query_rank`, `kv_rank`: widths r_q and r of the latents [1].
    """
    h, a, rank = jnp.asarray(hidden), jnp.asarray(heads), jnp.asarray(query_rank)
    compressed = rank > 0.0
    query = jnp.where(compressed, rank * (h + a * head_size), h * a * head_size)
    own = a * (head_size - jnp.asarray(rope_head_size) + value_head_size)
    return query + h * (kv_rank + jnp.asarray(rope_head_size)) + kv_rank * own + a * value_head_size * h


def feed_forward_parameters(hidden: Numeric, feed_forward: Numeric, gated: Numeric) -> Values:
    """Weights of one feed-forward block [1], `(2 + g) h f`; a gated block has a third matrix [Shazeer 2020]."""
    return (2.0 + jnp.asarray(gated)) * hidden * feed_forward


def embedding_parameters(vocabulary: Numeric, hidden: Numeric, tied: Numeric) -> Values:
    """Weights of the token embedding and the output head [1], `(2 - tied) V h` [definition]."""
    return (2.0 - jnp.asarray(tied)) * vocabulary * hidden


def training_flops_per_token(
    parameters: Numeric, layers: Numeric, attention_width: Numeric, sequence: Numeric
) -> Values:
    """Operations to train on a token [FLOP/token], causal, `F = 6 N + 6 L (a d) s` [Narayanan et al. 2021, eq. 2].

    Narayanan's form has no mask (12 L h s); a causal mask halves it. Excludes recomputation.
    """
    return 6.0 * jnp.asarray(parameters) + attention_flops_per_token(layers, attention_width, sequence)


def attention_flops_per_token(layers: Numeric, attention_width: Numeric, sequence: Numeric) -> Values:
    """Score and value products of causal attention, both passes [FLOP/token], `6 L (a d) s` [Narayanan et al. 2021]."""
    return 6.0 * jnp.asarray(layers) * attention_width * sequence


def recomputed_share(recompute_full: Numeric, recompute_attention: Numeric, attention_share: Numeric) -> Values:
    """Recomputed operations per model operation [1], `r/3 + (1 - r) r_a s_a / 3`.

    Full recomputation repeats the forward pass, a third of the work; selective recomputation repeats only the attention
    products [Korthikanti et al. 2022, sec. 5].

    **Arguments:**

    - `recompute_full`, `recompute_attention`: shares r, r_a of layers, 0 to 1 [1].
    - `attention_share`: share s_a of a layer's operations in attention products [1].
    """
    full = jnp.asarray(recompute_full)
    return (full + (1.0 - full) * recompute_attention * attention_share) / 3.0


class LayerSizes(NamedTuple):
    """Sizes of a model that layouts divide: widths of the mean layer, and parameters of all layers [1].

    - `weights` of the mean layer that act on a token; `replicated` and `routed` parameters of all layers, of which
      expert parallelism divides the routed ones; `table`: embedding, as large as the output head, which has the weights
      of `head_layers` layers.
    - `queries`, `values`, `kv`: widths of attention's queries, output, and keys with values; `kept_attention`: entries
      of a token that fused attention keeps for the backward pass, q, k, v, output and latents.
    - `attended`: context with as many scores as the mean layer with attention has [token]; `attention_flops` of a token
      in the mean layer, `state_flops` those of layers with a state among them [FLOP].
    - `attention_share`, `state_share`: layers with attention and with a state, over all; `state_inputs` and
      `state_values`: widths of what enters and leaves a layer with a state between its projections.
    - `latent`, `mixture`: 1 with latent attention and with experts; `expert_share`: layers that have experts, over all.
    """

    layers: Scalar
    weights: Scalar
    replicated: Scalar
    routed: Scalar
    table: Scalar
    head_layers: Scalar
    queries: Scalar
    values: Scalar
    kv: Scalar
    kept_attention: Scalar
    attended: Scalar
    attention_flops: Scalar
    state_flops: Part
    attention_share: Part
    state_share: Part
    state_inputs: Part
    state_values: Part
    latent: Scalar
    mixture: Scalar
    expert_share: Scalar


NATURAL_IMBALANCE = 1.15
"""`expert_imbalance` where a router learns whom to ask [1], of 1 to 1.3 [assumed: presets/models/deepseek-v3.toml]."""


class Transformer(eqx.Module):
    """Shape of a decoder-only transformer, dense or mixture of experts.

    A mixture-of-experts model replaces the feed-forward block of all but `dense_layers` layers by `experts`
    routed blocks, of which `active_experts` act on a token, and `shared_experts` that always act. A dense model has one
    expert and no shared ones. `expert_imbalance` is the load of the fullest expert, including padding up to its
    capacity, over the mean load. Norms, biases and routers (below 0.1 % of the weights of most models) count where they
    are stated, in parameters alone: their operations and traffic are those of other kernels.

    Attention is multi-head or grouped-query, with keys and values of `head_size`, unless `kv_rank` is above zero: then
    it is latent attention (`latent_attention_parameters`). A share `local_layers` of the layers with attention sees
    only `window` tokens: the last ones, or those that an indexer of `index_heads` chooses. In `state_layers` a state
    takes the place of keys and values: a state-space model (Mamba-2) or linear attention, with the delta rule or
    without. In a hybrid a layer is a mixer, attention or state, with the feed-forward block behind it, if there is one.
    """

    layers: Real = real("1", within=AT_LEAST_ONE)
    hidden: Real = real("1", within=AT_LEAST_ONE)
    heads: Real = real("1", within=AT_LEAST_ONE)
    kv_heads: Real = real("1", within=AT_LEAST_ONE)
    head_size: Real = real("1", within=AT_LEAST_ONE)
    feed_forward: Real = real("1", within=ABOVE_ZERO)
    gated: Real = share()
    vocabulary: Real = real("1", within=AT_LEAST_ONE)
    sequence: Real = real("token", within=AT_LEAST_ONE)
    tied: Real = share(0.0)
    experts: Real = real("1", 1.0, within=AT_LEAST_ONE)
    active_experts: Real = real("1", 1.0, within=AT_LEAST_ONE)
    shared_experts: Real = real("1", 0.0)
    dense_layers: Real = real("1", 0.0)
    dense_feed_forward: Real = real("1", 0.0)
    flash: Real = share(1.0)
    expert_imbalance: Real = real("1", 1.0, within=AT_LEAST_ONE)
    alternating_dense: Real = share(0.0, doc="1 if dense layers alternate with those of experts, 0 if they come first")
    kv_rank: Real = real("1", 0.0, doc="width of the latent of keys and values; 0 without latent attention")
    query_rank: Real = real("1", 0.0, doc="width of the latent of queries in latent attention; 0 if they have none")
    rope_head_size: Real = real("1", 0.0, doc="rotated entries of a head, shared by all keys of latent attention")
    value_head_size: Real = real("1", 0.0, doc="width of a value head in latent attention")
    window: Real = real("token", 0.0, doc="tokens that a layer with a sliding window attends to")
    local_layers: Real = share(0.0, doc="share of the layers that have a sliding window")
    vector_parameters: Real = real(
        "1", 0.0, doc="entries of norms, biases, sinks, positions, indexers and other parts, without those of experts"
    )
    expert_vectors: Real = real("1", 0.0, doc="entries of the biases of one expert")
    router: Real = share(0.0, doc="1 if the weights of routers are counted")
    parallel_block: Real = share(
        0.0,
        doc="1 if attention and feed-forward block share their input and their sum; share of layers with one of both",
    )
    attention_weights: Real = real("1", 0.0, doc="parameters of an attention block of neither kind; 0 by its formula")
    table_parameters: Real = real("1", 0.0, doc="entries of tables, beside the embedding, that tokens look up in")
    expert_latent: Real = share(1.0, doc="width that routed experts take and give, over the hidden size")
    index_heads: Real = real("1", 0.0, doc="heads of the indexer that chooses keys in sparse attention, 0 without")
    index_size: Real = real("1", 0.0, doc="size of a head of the indexer")
    state_layers: Real = real("1", 0.0, doc="layers with a state in place of attention's keys and values")
    state_heads: Real = real("1", 0.0, doc="heads of a layer with a state, each with its own values")
    state_key_heads: Real = real("1", 0.0, doc="groups of such heads that share keys and queries")
    state_key_size: Real = real("1", 0.0, doc="size of keys in a layer with a state: the rows of its state")
    state_value_size: Real = real("1", 0.0, doc="size of values in a layer with a state: the columns of its state")
    state_weights: Real = real("1", 0.0, doc="parameters of the mixer of one layer with a state")
    state_chunk: Real = real("token", 64.0, within=AT_LEAST_ONE, doc="tokens that kernels of such layers take at once")
    state_rate: Real = real("1", 1.0, within=ABOVE_ZERO, doc="rate of kernels of chunks over that of fused attention")
    state_delta: Real = share(0.0, doc="1 if the state is updated by the delta rule")

    @property
    def latent(self) -> Part:
        """1 with latent attention, 0 without."""
        return at_most_one(self.kv_rank)

    @property
    def query_width(self) -> Scalar:
        """Width of all queries of a token [1]."""
        return jnp.asarray(self.heads) * self.head_size

    @property
    def value_width(self) -> Part:
        """Width of what attention gives to the output projection [1]."""
        return self.heads * (self.head_size + part(self.latent, lambda: self.value_head_size - self.head_size))

    @property
    def mean_head_size(self) -> Scalar:
        """Mean of the head sizes of keys and values [1]."""
        return self.head_size + 0.5 * self.latent * (self.value_head_size - jnp.asarray(self.head_size))

    @property
    def attention_width(self) -> Scalar:
        """Mean width of the score and value products, heads times head size [1]."""
        return self.heads * self.mean_head_size

    @property
    def kv_width(self) -> Scalar:
        """Width of the keys and values of a token as attention reads them [1]; latent attention expands its latent."""
        grouped = 2.0 * jnp.asarray(self.kv_heads) * self.head_size
        return grouped + part(self.latent, lambda: self.query_width + self.value_width - grouped)

    @property
    def cache_width(self) -> Scalar:
        """Numbers that a token leaves in the cache of keys and values of all layers [1]; a latent stays one.

        A state is kept once a sequence.
        """
        grouped = 2.0 * jnp.asarray(self.kv_heads) * self.head_size
        kept = self._attention_layers * (grouped + self.latent * (self.kv_rank + self.rope_head_size - grouped))
        return kept + part(self.state_layers, lambda: self.state_entries / self.sequence)

    @property
    def _attention_layers(self) -> Part:
        return self.layers if is_fixed(self.state_layers, 0.0) else self.layers - self.state_layers

    @property
    def state_entries(self) -> Scalar:
        """Entries of the state of one layer and sequence, `H N P` [1]."""
        return jnp.asarray(self.state_heads) * self.state_key_size * self.state_value_size

    @property
    def convolved(self) -> Scalar:
        """Width of keys, queries and values of a layer with a state, which pass a convolution or activation [1]."""
        keys = 2.0 * jnp.asarray(self.state_key_heads) * self.state_key_size
        return keys + self.state_heads * self.state_value_size

    @property
    def chunk_state_bytes(self) -> Scalar:
        """Bytes of the states at the chunks of a sequence, in 32 bits and per token of a layer, `4 H N P / C` [B]."""
        return 4.0 * self.state_entries / self.state_chunk

    @property
    def attended_length(self) -> Scalar:
        """Context with as many scores as the mean layer has, full causal ones and those with a window [token]."""
        return blend(
            self.local_layers, lambda: window_length(self.window, self.sequence), lambda: jnp.asarray(self.sequence)
        )

    @property
    def attention_block(self) -> Scalar:
        """Parameters of the attention block of one layer, as stated or by the formula of its kind [1]."""
        latent = self.head_size, self.value_head_size, self.rope_head_size, self.query_rank, self.kv_rank

        def by_kind() -> Scalar:
            return blend(
                self.latent,
                lambda: latent_attention_parameters(self.hidden, self.heads, *latent),
                lambda: attention_parameters(self.hidden, self.heads, self.kv_heads, self.head_size),
            )

        # Where the number is traced, it is not known whether it is stated.
        return blend(at_most_one(self.attention_weights), lambda: jnp.asarray(self.attention_weights), by_kind)

    @property
    def expert_block(self) -> Scalar:
        """Parameters of one feed-forward block (one expert) [1]."""
        return feed_forward_parameters(self.hidden, self.feed_forward, self.gated)

    @property
    def embeddings(self) -> Scalar:
        """Parameters of embedding and output head [1]."""
        return embedding_parameters(self.vocabulary, self.hidden, self.tied)

    @property
    def active_layer_parameters(self) -> Scalar:
        """Parameters of all layers that act on one token, without embeddings [1]."""
        return self._shared + self.active_experts * self._per_expert

    @property
    def parameters(self) -> Scalar:
        """All parameters [1]."""
        tables = self.embeddings
        if not is_fixed(self.table_parameters, 0.0):
            tables = tables + self.table_parameters
        return self._shared + self.experts * self._per_expert + tables

    @property
    def active_parameters(self) -> Scalar:
        """Parameters that act on one token [1]; all of them if dense."""
        return self.active_layer_parameters + self.embeddings

    @property
    def routed_blocks(self) -> Part:
        """Routed experts that act on a token, as blocks of the width `feed_forward` [1]; of a latent they are wider."""
        return self.active_experts if is_fixed(self.expert_latent, 1.0) else self.active_experts / self.expert_latent

    @property
    def mixture(self) -> Part:
        """0 with one expert, 1 with two or more; linear in between, so that slopes are finite."""
        return at_most_one(self.experts - 1.0)

    @property
    def _per_expert(self) -> Scalar:
        """Parameters that one more routed expert adds to all layers that have experts [1]."""
        return (self.layers - self.dense_layers) * (self.expert_block + self.expert_vectors)

    @property
    def _shared(self) -> Scalar:
        """Parameters of all layers beside routed experts [1]."""
        mixed = self.layers - self.dense_layers
        routers = part(self.router * self.mixture, lambda: mixed * self.hidden * self.experts)
        dense = part(
            self.dense_layers, lambda: feed_forward_parameters(self.hidden, self.dense_feed_forward, self.gated)
        )
        shared_experts = part(self.shared_experts, lambda: mixed * self.expert_block)
        mixers = part(self.state_layers, lambda: self.state_weights)
        attention = self._attention_layers * self.attention_block
        return attention + self.vector_parameters + (dense + shared_experts + routers + mixers)

    def sizes(self) -> LayerSizes:
        """Sizes of the mean layer and of all layers."""
        layers, latent, mixture = jnp.asarray(self.layers), self.latent, self.mixture
        per_expert, shared = self._per_expert, self._shared
        held = shared if is_fixed(self.table_parameters, 0.0) else shared + self.table_parameters
        weights = (shared + self.active_experts * per_expert) / layers
        table = jnp.asarray(self.vocabulary) * self.hidden
        attended, queries, values, kv = self.attended_length, self.query_width, self.value_width, self.kv_width
        scores = attention_flops_per_token(1.0, self.attention_width, attended)
        if not is_fixed(self.index_heads, 0.0):
            scores = scores + self._index_flops
        state_share = part(self.state_layers, lambda: 1.0 / layers)
        latents = part(latent, lambda: self.query_rank + self.kv_rank + self.rope_head_size)
        state_values = self.state_heads * self.state_value_size
        state_inputs = part(at_most_one(self.state_layers), lambda: self.state_weights / self.hidden - state_values)
        state_flops = part(state_share, lambda: self._state_flops)
        return LayerSizes(
            layers=layers,
            weights=weights,
            # A dense model has all of its experts in every replica.
            replicated=held + part(1.0 - mixture, lambda: self.experts * per_expert),
            routed=part(mixture, lambda: self.experts * per_expert),
            table=table,
            head_layers=table / weights,
            queries=queries,
            values=values,
            kv=kv,
            kept_attention=blend(
                state_share,
                # The values leave the state and pass its gate; keys and queries are kept as the delta rule takes them.
                lambda: state_inputs + 2.0 * state_values + self.state_delta * self.convolved,
                lambda: queries + kv + values + latents,
            ),
            attended=attended,
            attention_flops=blend(state_share, lambda: self._state_flops, lambda: scores),
            state_flops=state_flops,
            attention_share=1.0 - state_share,
            state_share=state_share,
            state_inputs=state_inputs,
            state_values=state_values,
            latent=latent,
            mixture=mixture,
            expert_share=1.0 - part(self.dense_layers, lambda: 1.0 / layers),
        )

    @property
    def flops_per_token(self) -> Scalar:
        """Operations to train on one token, without recomputation [FLOP/token]."""
        layers, attended = self._attention_layers, self.attended_length
        plain = training_flops_per_token(self.active_parameters, layers, self.attention_width, attended)
        others = part(self.state_layers, lambda: self._state_flops) + part(self._index_flops, lambda: layers)
        return plain if is_fixed(others, 0.0) else plain + others

    @property
    def _index_flops(self) -> Part:
        index = self.index_heads, self.index_size, self.sequence
        return 0.0 if is_fixed(self.index_heads, 0.0) else index_flops_per_token(*index)

    @property
    def _state_flops(self) -> Scalar:
        heads, sizes = (self.state_heads, self.state_key_heads), (self.state_key_size, self.state_value_size)
        return state_flops_per_token(*heads, *sizes, self.state_chunk, self.state_delta)
