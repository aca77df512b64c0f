"""Decisions of a training run: chips, batch, goal, clock, layout."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Part, Real, Values, at_most_one, component, part, real, share, vector
from energymodel.performance.pipeline_bubble import fewest_microbatches
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE, COOLANT, SHARE_ABOVE_ZERO, Range

SCHEDULES = ("gpipe", "zero_bubble", "zero_bubble_h2", "zero_bubble_v", "dual_pipe")
"""Fields of a layout that choose a pipeline schedule other than 1F1B; at most one is 1."""

PRECISIONS = ("fp8", "fp4", "tf32", "fp32")
"""Fields of a layout that give the share of products in each precision other than bf16; together at most 1."""


class AbstractGoal(eqx.Module):
    """End of a run."""


class TokenBudget(AbstractGoal):
    """The run ends after a number of tokens."""

    tokens: Real = real("token", within=Range(0.0, 1e21, above=True))


class TargetLoss(AbstractGoal):
    """The run ends at a loss; the tokens follow from the loss law and the batch."""

    loss: Real = real("nat/token", within=ABOVE_ZERO)


class ParallelLayout(eqx.Module):
    """How the model is divided over chips. Degrees are counts >= 1; switches are 0, 1 or a share between.

    `data = chips / (tensor pipeline context)` is derived; `expert` divides data x context. The pipeline runs 1F1B,
    interleaved with several `virtual_stages`, or what one of `SCHEDULES` says (`zero_bubble` is ZB-H1). `cuda_graphs`
    is the share of kernel launches that are replayed from graphs and cost the host nothing.
    `first_stage_layers` and `last_stage_layers` cut the ends of the pipeline by hand (0: as many layers as the others);
    with `embedding_balanced` = 1 embedding and output head may take a layer's slot each. A share `recompute_full` of
    the layers is recomputed; the others recompute modules: `recompute_attention` and `MODULES`.
    """

    tensor: Real = real("1", 1.0, within=AT_LEAST_ONE)
    pipeline: Real = real("1", 1.0, within=AT_LEAST_ONE)
    virtual_stages: Real = real("1", 1.0, within=AT_LEAST_ONE)
    context: Real = real("1", 1.0, within=AT_LEAST_ONE)
    expert: Real = real("1", 1.0, within=AT_LEAST_ONE)
    microbatch: Real = real("1", 1.0, within=AT_LEAST_ONE)
    sequence_parallel: Real = share(1.0)
    shard_optimizer: Real = share(1.0)
    shard_gradients: Real = share(0.0)
    shard_parameters: Real = share(0.0)
    recompute_attention: Real = share(0.0)
    recompute_full: Real = share(0.0)
    fp8: Real = share(0.0)
    offload_optimizer: Real = share(0.0)
    offload_activations: Real = share(0.0)
    zero_bubble: Real = share(0.0)
    fp4: Real = share(0.0)
    tf32: Real = share(0.0)
    fp32: Real = share(0.0)
    offload_parameters: Real = share(0.0)
    offload_gradients: Real = share(0.0)
    gpipe: Real = share(0.0)
    zero_bubble_h2: Real = share(0.0)
    zero_bubble_v: Real = share(0.0)
    dual_pipe: Real = share(0.0)
    cuda_graphs: Real = share(0.0)
    async_tensor: Real = share(0.0)
    context_all_to_all: Real = share(0.0)
    first_stage_layers: Real = real("1", 0.0)
    last_stage_layers: Real = real("1", 0.0)
    embedding_balanced: Real = share(0.0)
    recompute_norms: Real = share(0.0, doc="norms that are no part of a product's kernel")
    recompute_latent: Real = share(0.0, doc="queries, keys and values of latent attention")
    recompute_expert_activations: Real = share(0.0, doc="what enters the last product of routed experts")
    recompute_feed_forward: Real = share(0.0, doc="feed-forward blocks of layers without experts")
    recompute_shared_experts: Real = share(0.0)
    recompute_experts: Real = share(0.0, doc="routed and shared experts, dispatch and combine included")

    @property
    def interleaved(self) -> Values:
        """1 where a rank alternates between virtual stages, 0 for one stage a rank and for the two of ZB-V [1]."""
        return jnp.clip(jnp.asarray(self.virtual_stages) - 1.0, 0.0, 1.0) * (1.0 - self.zero_bubble_v)

    @property
    def fewest_microbatches(self) -> Values:
        """Micro-batches that the pipeline schedule needs in a step [1]."""
        return fewest_microbatches(self.pipeline, self.interleaved, self.dual_pipe)

    def smallest_batch(self, chips: Numeric, sequence: Numeric) -> Numeric:
        """Tokens of a step in which each replica has the fewest micro-batches [token]."""
        replicas = chips / (self.tensor * self.pipeline * self.context)
        return replicas * self.fewest_microbatches * self.microbatch * sequence

    @property
    def cut_by_hand(self) -> Part:
        """1 where an end of the pipeline has a number of layers of its own, else 0 [1]."""
        ends = at_most_one(self.first_stage_layers + self.last_stage_layers)
        return part(ends, lambda: jnp.clip(self.pipeline - 1.0, 0.0, 1.0))

    @property
    def other_schedules(self) -> Part:
        """1 for a schedule that is neither GPipe nor 1F1B, interleaved or not, else 0 [1]."""
        return self.zero_bubble + self.zero_bubble_h2 + self.zero_bubble_v + self.dual_pipe

    @property
    def width(self) -> Numeric:
        """Bytes of an activation or weight relative to bf16 [1]: 2 for the share of products in tf32 or fp32."""
        return 1.0 + self.tf32 + self.fp32


RECOMPUTED: tuple[str, ...] = tuple(
    name for name in ParallelLayout.__dataclass_fields__ if name.startswith("recompute_")
)
"""Fields of a layout that give the share of layers which recompute attention, all of the layer, or another module."""

MODULES = RECOMPUTED[2:]
"""Fields of a layout that give the share of layers which recompute a module other than attention."""


class AbstractStagePower(eqx.Module):
    """Power caps of the chips of a pipeline."""


class EvenPower(AbstractStagePower):
    """Every chip has the power cap of the plan."""


class StagePower(AbstractStagePower):
    """Power caps of the chips of the first pipeline stage, of those between, and of the last one.

    A chip obeys the lower of the cap of its stage and that of the plan. A pipeline of one stage is the last.
    """

    first_stage: Real = real("W", within=ABOVE_ZERO)
    middle_stages: Real = real("W", within=ABOVE_ZERO)
    last_stage: Real = real("W", within=ABOVE_ZERO)


class TrainingPlan(eqx.Module):
    """Everything that may be decided for a run.

    `batch` holds the global batch size at knots equally spaced in progress (the fraction of effective tokens);
    one knot is a constant batch. The chip runs at the lower of `clock` and the clock that `power_cap` allows. Less than
    all parameters are trained where some are frozen, as by low-rank adapters: they have no gradients of weights, no
    optimizer states, and are not communicated again.
    """

    chips: Real = real("1", within=AT_LEAST_ONE)
    batch: Float[Array | np.ndarray, "*knots"] = vector("token", within=Range(0.0, 1e18, above=True))
    goal: AbstractGoal = component()
    clock: Real = real("1", within=SHARE_ABOVE_ZERO)
    power_cap: Real = real("W", within=ABOVE_ZERO)
    coolant_temperature: Real = real("K", within=COOLANT)
    layout: ParallelLayout = component()
    trained_share: Real = real("1", 1.0, within=SHARE_ABOVE_ZERO)
    power: AbstractStagePower = component(EvenPower())
    power_floor: Real = share(0.0, doc="least power of a chip in a job, waiting or not, over its busy power")
    waiting_clock: Real = real(
        "1",
        1.0,
        doc="clock of a chip that waits for others between steps, over that of its work",
        within=SHARE_ABOVE_ZERO,
    )
    spares: Real = real("1", 0.0, doc="nodes that idle until one that trains fails", integer=True)

    @property
    def knots(self) -> int:
        """Number of knots of the batch schedule."""
        return int(np.prod(jnp.shape(self.batch)))
