"""What a run trains of a model and in which formats: all of it, adapters beside frozen weights, or a part.

Shared arguments: a matrix of `inputs` k and `outputs` n [1], and the `rank` r of the adapter beside it [1].
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Part, Real, Values, at_most_one, is_fixed, part, real, share
from energymodel.performance.workload import Transformer
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE


def adapter_parameters(inputs: Numeric, outputs: Numeric, rank: Numeric, magnitude: Numeric = 0.0) -> Values:
    """Weights of an adapter [1], `r (k + n) + m n` [Hu et al. 2021, sec. 4.1; Liu et al. 2024, DoRA, eq. 5].

    **Arguments:**

    - `magnitude`: m, 1 if the length of each column of the adapted matrix is trained as well (DoRA), else 0 [1].
    """
    return jnp.asarray(rank) * (jnp.asarray(inputs) + outputs) + jnp.asarray(magnitude) * outputs


class Passes(NamedTuple):
    """Forward-sized passes of products with weights that a token takes, in the mean layer and in the output head [1].

    Three where all weights are trained, two where none is: frozen weights have no gradient of their own.
    """

    layer: Numeric
    head: Numeric


class TrainedWeights(NamedTuple):
    """Parameters trained over those of the model, and bytes per parameter of the model.

    - `trained`: share of parameters, adapters on top [1]; `weight`: bytes of the mean weight, adapters included;
      `gradient`, `optimizer` and `sent`: of the trained ones, on the mean of all parameters [B].
    - `tables`: bytes of the gradient of an embedding or head, per weight, while it is made [B].
    """

    trained: Numeric
    weight: Numeric
    gradient: Numeric
    optimizer: Numeric
    sent: Numeric
    tables: Numeric


class AbstractAdaptation(eqx.Module):
    """What a run trains, and the formats of frozen and trained weights."""

    @abc.abstractmethod
    def passes(self, trained_share: Numeric) -> Passes:
        """Passes of products with weights, where a plan trains a share of the parameters."""

    @abc.abstractmethod
    def flops_per_token(self, model: Transformer, trained_share: Numeric) -> Values:
        """Operations with weights to train on a token, without recomputation [FLOP/token]."""


class WholeModel(AbstractAdaptation):
    """All parameters are trained, in the formats of the software: pre-training."""

    def passes(self, trained_share: Numeric) -> Passes:
        """`2 + u` for a trained share u."""
        return Passes(2.0 + trained_share, 2.0 + trained_share)

    def flops_per_token(self, model: Transformer, trained_share: Numeric) -> Values:
        """`(4 + 2 u) N` for a trained share u of N parameters that act on a token."""
        return jnp.asarray((4.0 + 2.0 * trained_share) * model.active_parameters)


class FineTuning(AbstractAdaptation):
    """A trained model is adapted: by low-rank adapters beside frozen weights, or by training all or some weights.

    Adapters of a `rank` (0: none) stand beside the matrices whose share is 1. A share `trained_layers` of the weights
    of layers, the last ones, and `trained_tables` of embedding and output head are trained themselves; gradients pass
    `passed_layers` of the layers. Weights that are not trained are frozen. Those of layers may be kept in few bits and
    are made 16-bit numbers for each product; those of embedding and head stay in 16 bits.

    With `fused_backward` gradients are applied and freed as they are made. Paged states leave the chip as far as they
    do not fit. `longest` is the number of tokens of the largest micro-batch over that of the mean one, where padding
    varies.
    """

    rank: Real = real("1", 0.0)
    queries: Real = share(1.0)
    keys: Real = share(1.0)
    values: Real = share(1.0)
    attention_output: Real = share(1.0)
    gate: Real = share(1.0)
    up: Real = share(1.0)
    down: Real = share(1.0)
    experts: Real = share(1.0, doc="1 if routed experts have adapters of their own")
    embedding: Real = share(0.0)
    head: Real = share(0.0)
    moved_bytes: Real = real("B", 10.0, doc="of adapters, per entry that enters or leaves their matrices, both passes")
    launches: Real = real("1", 1.5, doc="more launch overhead of a layer with adapters, over that of one without")
    magnitude: Real = share(0.0, doc="1 if adapters train the length of each column, too (DoRA)")
    trained_layers: Real = share(0.0)
    trained_tables: Real = share(0.0)
    passed_layers: Real = share(1.0)
    frozen_bytes: Real = real("B", 2.0, doc="of a frozen weight of a layer, scales included", within=ABOVE_ZERO)
    dequantized_bytes: Real = real("B", 0.0, doc="moved per weight to make it a 16-bit number for one pass")
    trained_bytes: Real = real("B", 2.0, doc="of a trained weight", within=ABOVE_ZERO)
    gradient_bytes: Real = real("B", 2.0, doc="of a trained weight")
    optimizer_bytes: Real = real("B", 8.0, doc="of a trained weight")
    fused_backward: Real = share(0.0)
    paged: Real = share(0.0, doc="share of the optimizer states in memory that pages to the host")
    longest: Real = real("1", 1.0, within=AT_LEAST_ONE)

    def passes(self, trained_share: Numeric) -> Passes:
        """`1 + p + u` in layers that gradients pass to a share p, `2 + u` in the head."""
        return Passes(1.0 + self.passed_layers + self.trained_layers, 2.0 + self.trained_tables)

    def flops_per_token(self, model: Transformer, trained_share: Numeric) -> Values:
        """`2 (q_l N_l + q_h N_h) + 6 A` with the passes q of layers and head, embedding included, and A of adapters."""
        layer, head = self.passes(trained_share)
        beside = self.adapters(model)
        base = layer * model.active_layer_parameters + head * model.embeddings
        return 2.0 * base + 6.0 * (model.layers * beside.active + beside.tables)

    def launched(self) -> Part:
        """More launch overhead of a layer, over that of one without adapters [1]."""
        return part(at_most_one(self.rank), lambda: self.launches)

    def adapters(self, model: Transformer) -> "Adapters":
        """Adapters of a model."""
        if is_fixed(self.rank, 0.0):
            return Adapters(0.0, 0.0, 0.0, 0.0)
        layer, active, sides = 0.0, 0.0, 0.0
        for target, inputs, outputs, copies, acting in self._matrices(model):
            if is_fixed(target, 0.0) or is_fixed(copies, 0.0):
                continue
            size = adapter_parameters(inputs, outputs, self.rank, self.magnitude)
            layer, active = layer + target * copies * size, active + target * acting * size
            sides = sides + target * acting * (inputs + outputs)
        tables = self.embedding + self.head
        beside_tables = part(
            tables, lambda: adapter_parameters(model.vocabulary, model.hidden, self.rank, self.magnitude)
        )
        return Adapters(layer, active, sides, beside_tables)

    def trained_weights(self, model: Transformer) -> TrainedWeights:
        """Shares and bytes of the parameters of a model [1, B], `w = (w_f (N - T) + w_t T + w_t A) / N` [definition].

        With T trained weights and A of adapters among N. Embedding and head that are frozen have 2 bytes a weight.
        """
        total, tables, adapters = model.parameters, model.embeddings, self.adapters(model)
        layers = total - tables
        own = self.trained_layers * layers + self.trained_tables * tables
        added = model.layers * adapters.layer + adapters.tables
        frozen = (1.0 - self.trained_layers) * layers * self.frozen_bytes
        frozen = frozen + 2.0 * (1.0 - self.trained_tables) * tables
        trained = (own + added) / total
        kept = 1.0 - self.fused_backward
        return TrainedWeights(
            trained=trained,
            weight=frozen / total + self.trained_bytes * trained,
            gradient=part(kept, lambda: self.gradient_bytes * trained),
            optimizer=self.optimizer_bytes * trained,
            sent=self.gradient_bytes * trained,
            tables=self.trained_tables * self.gradient_bytes,
        )

    def _matrices(self, model: Transformer) -> tuple[tuple[Numeric, ...], ...]:
        """Matrices of the mean layer: whether adapted, inputs, outputs, how many there are, and act on a token [1].

        Of latent attention the first product to queries has no adapter where they are made of a latent.
        """
        latent, h = model.latent, model.hidden
        compressed = part(latent, lambda: at_most_one(model.query_rank))
        made = model.heads * (model.head_size - model.rope_head_size + model.value_head_size)
        half = model.kv_heads * model.head_size
        entering = h + part(compressed, lambda: model.query_rank - jnp.asarray(h))
        key, value = ((h, half), (h, half))
        if not is_fixed(latent, 0.0):
            key = (h, half + latent * (model.kv_rank + model.rope_head_size - half))
            value = (h + latent * (model.kv_rank - jnp.asarray(h)), half + latent * (made - half))
        mixed = 1.0 - part(model.dense_layers, lambda: model.dense_layers / model.layers)
        own = part(model.mixture, lambda: self.experts) + (1.0 - model.mixture)
        counts = (
            mixed * (own * model.experts + model.shared_experts),
            mixed * (own * model.active_experts + model.shared_experts),
        )
        blocks = [(model.feed_forward, *counts)]
        if not is_fixed(model.dense_layers, 0.0):
            blocks.append((model.dense_feed_forward, 1.0 - mixed, 1.0 - mixed))
        feed_forward = tuple(
            (target, inputs, outputs, copies, acting)
            for width, copies, acting in blocks
            for target, inputs, outputs in (
                (self.gate * model.gated, h, width),
                (self.up, h, width),
                (self.down, width, h),
            )
        )
        return (
            (self.queries, entering, model.query_width, 1.0, 1.0),
            (self.keys, *key, 1.0, 1.0),
            (self.values, *value, 1.0, 1.0),
            (self.attention_output, model.value_width, h, 1.0, 1.0),
            *feed_forward,
        )


class Adapters(NamedTuple):
    """Adapters of a model: weights in the mean `layer`, those that act on a token (`active`), the `sides` k + n of the
    matrices that these stand beside, and weights beside embedding and head (`tables`) [1].
    """

    layer: Part
    active: Part
    sides: Part
    tables: Part


def paged_out(needed: Numeric, states: Numeric, capacity: Numeric) -> Values:
    """Paged optimizer states that do not fit on the chip [B], `min(s, (n + s - C)+)` [Dettmers et al. 2023, sec. 3].

    A step moves them from the host and back, both directions of the link at once.

    **Arguments:**

    - `needed`: memory n of all else, `states` s that may leave, `capacity` C of the chip [B].
    """
    states = jnp.asarray(states)
    return jnp.clip(jnp.asarray(needed) + states - capacity, 0.0, states)
