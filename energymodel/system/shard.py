"""Parameters of the fullest chip, and the bytes that are kept of each."""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Part, Scalar, is_fixed, part
from energymodel.performance.adaptation import FineTuning
from energymodel.performance.workload import LayerSizes, Transformer
from energymodel.system.division import Division
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

MASTER_BYTES = 4.0  # of the copy of a weight that is updated


class Shard(NamedTuple):
    """Parameters on the fullest chip, dense and routed (divided by expert parallelism), and the ranks sharing each."""

    dense: Scalar
    dense_ranks: Scalar
    routed: Scalar
    routed_ranks: Scalar


def shard(system: TrainingSystem, plan: TrainingPlan, division: Division) -> Shard:
    """Parameters on the fullest chip [1], `(N_blocks l / L + V h) / t`, `N_routed min(l, L - d) / ((L - d) t e)`.

    With l layers on the fullest pipeline rank. The first rank adds the embedding, the last the output head
    [derivation: docs/physics.md B3]; the first has a layer less where the embedding takes its slot
    (`embedding_balanced`). The d dense layers of a
    mixture come first, so that other ranks hold only layers with experts, unless they alternate (`alternating_dense`).
    DualPipe keeps two stages on each rank, so that twice as many ranks share each [DeepSeek-AI 2024, table 2]; there
    and in ZB-V the first rank has embedding and output head.
    """
    layout, workload, sizes, fullest = plan.layout, system.workload, division.sizes, division.stages.most
    layers, copies = sizes.layers, 1.0 + layout.dual_pipe
    share, ranks = part(copies, lambda: fullest) / layers, part(copies, lambda: division.ranks)
    # The embedding is on the first rank and the output head on the last; a single rank holds both.
    both_ends = layout.zero_bubble_v + layout.dual_pipe
    one_rank = jnp.maximum(0.0, 2.0 - layout.pipeline)
    if not is_fixed(both_ends, 0.0):
        one_rank = jnp.maximum(one_rank, both_ends)
    tables = sizes.table * (1.0 + (1.0 - workload.tied) * one_rank)
    if not is_fixed(layout.embedding_balanced, 0.0):
        missing = layout.embedding_balanced * (1.0 - one_rank)
        missing = missing * jnp.clip(layout.pipeline * fullest - layers - 1.0, 0.0, 1.0)
        tables = jnp.maximum(0.0, tables - missing * sizes.replicated / layers)

    def routed() -> Scalar:
        with_experts = expert_layer_share(workload, sizes, share * layers) * share * layers
        return with_experts / jnp.maximum(1.0, layers - workload.dense_layers) / (layout.tensor * layout.expert)

    return Shard(
        dense=(sizes.replicated * share + tables) / layout.tensor,
        dense_ranks=ranks,
        routed=part(sizes.routed, routed),
        routed_ranks=ranks / layout.expert,
    )


def expert_layer_share(workload: Transformer, sizes: LayerSizes, layers: Numeric) -> Part:
    """Share of the layers of the fullest rank that have experts [1], `min(l, L - d) / l` of l layers [definition].

    One of a model whose layers are alike.
    """
    if is_fixed(workload.dense_layers, 0.0):
        return 1.0
    fullest = jnp.minimum(layers, sizes.layers - workload.dense_layers) / layers
    return fullest + workload.alternating_dense * (sizes.expert_share - fullest)


class KeptBytes(NamedTuple):
    """Bytes per parameter of weight, gradient and optimizer states, and of the gradient as communicated.

    On the mean of all parameters, of which a share is `trained`: the others are frozen and have only weights. `tables`
    are bytes of the gradient of embedding or head in fine-tuning, while it is made, per weight.
    """

    weight: Numeric
    gradient: Numeric
    optimizer: Numeric
    sent: Numeric
    trained: Numeric = 1.0
    tables: Numeric = 0.0


def kept_bytes(system: TrainingSystem, plan: TrainingPlan) -> KeptBytes:
    """Bytes per parameter at the width x of the products [B], `w x`, `u g`, `u (o - 4 (x - 1))`, `u c x` [definition].

    For 32-bit products x = 2: their weights are the master copy, which the optimizer then does not store. A share u of
    the parameters is trained. Fine-tuning has formats of its own (`FineTuning.trained_weights`).
    """
    software, width, trained = system.software, plan.layout.width, plan.trained_share
    if isinstance(system.adaptation, FineTuning):
        tuned = system.adaptation.trained_weights(system.workload)
        return KeptBytes(tuned.weight, tuned.gradient, tuned.optimizer, tuned.sent, tuned.trained, tuned.tables)
    return KeptBytes(
        weight=software.weight_bytes * width,
        gradient=trained * software.gradient_bytes,
        optimizer=trained * (software.optimizer_bytes - MASTER_BYTES * (width - 1.0)),
        sent=trained * software.communicated_bytes * width,
        trained=trained,
    )
