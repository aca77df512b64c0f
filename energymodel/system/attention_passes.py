"""How long do the attention kernels of a layer take, forward, backward and recomputed?"""

from typing import NamedTuple

from energymodel.numerics import Numeric, Scalar
from energymodel.performance.attention import exponential_slowdown, forward_attention_time, padded_head_size
from energymodel.performance.products import alignment_slowdown
from energymodel.performance.roofline import compute_time
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem


class AttentionPasses(NamedTuple):
    """Time of score and value products of one layer and micro-batch in bf16 at clock 1."""

    forward: Scalar
    backward: Scalar

    @property
    def total(self) -> Scalar:
        """Of both passes [s]."""
        return self.forward + self.backward


def attention_passes(
    system: TrainingSystem, plan: TrainingPlan, tokens: Numeric, scored: Numeric, again: Numeric
) -> AttentionPasses:
    """Time of attention in a layer, `(1 + b + r) t_forward`, r forward passes repeated [derivation: docs/step_time.md].

    A fused kernel takes b = `attention_backward` forward passes to go back. Each of the c steps of a ring of context
    parallelism is a kernel of its own, which sees one c-th of the keys. Without a fused kernel score and value products
    run like other matrix products, slower where the head size is no multiple of 64, forward once and backward twice,
    and may include what the mask removes: the whole square of the sequence.

    **Arguments:**

    - `tokens`: M of a micro-batch on the chip [token].
    - `scored`: operations that masks and windows leave, forward and backward [FLOP].
    - `again`: r, share of the forward pass that is repeated to go back [1].

    **Returns:** times of the forward pass and of all that follows it [s].
    """
    chip, workload, layout, software = system.accelerator, system.workload, plan.layout, system.software
    forward = scored / 3.0
    head = workload.mean_head_size
    padded = padded_head_size(head)
    fused = forward_attention_time(
        forward * padded / head,
        chip.peak_flops * chip.attention_efficiency / exponential_slowdown(padded, chip.attention_half_head),
        0.5 * workload.attended_length / (1.0 + (layout.context - 1.0) * (1.0 - layout.context_all_to_all)),
        tokens * workload.heads / layout.tensor,
        chip.attention_half_keys,
        chip.attention_tail,
    )
    square = 1.0 + software.unmasked * (2.0 * workload.sequence / workload.attended_length - 1.0)
    slow = alignment_slowdown(workload.sequence, head, chip.alignment_exponent, chip.unaligned_slowdown)
    unfused = compute_time(forward * square * slow, chip.peak_flops, chip.gemm_efficiency * software.product_efficiency)
    share = workload.flash / software.attention_efficiency
    rest = (1.0 - workload.flash) / software.attention_efficiency
    return AttentionPasses(
        forward=share * fused + rest * unfused,
        backward=share * (chip.attention_backward + again) * fused + rest * (2.0 + again) * unfused,
    )
