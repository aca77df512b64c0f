"""Time of an iteration of post-training with generation: engines write answers, from which the actor then learns."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real
from energymodel.performance.serving import cached_sequences, reading_time, writing_time
from energymodel.performance.workload import Transformer
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE, SHARE_ABOVE_ZERO


def engine_steps(sequences: Numeric, at_once: Numeric, answer: Numeric, longest: Numeric) -> Values:
    """Steps in which an engine writes its answers [1], `a max(1, n / b) + l - a`.

    An answer that ends makes room for the next one, so that b are written at once as long as any waits; the last ones
    end with the longest [derivation: b slots write n a tokens in `n a / b` steps; one that starts last has l tokens].

    **Arguments:**

    - `sequences`: n that the engine writes [1], of which it holds `at_once`, b [1].
    - `answer`, `longest`: mean length a of an answer and the largest one, l [token].
    """
    rounds = jnp.maximum(jnp.asarray(sequences) / at_once, 1.0)
    return jnp.asarray(answer) * rounds + (jnp.asarray(longest) - answer)


class IterationLoad(NamedTuple):
    """What an engine writes, with what, and what chips that train do beside.

    - Of an engine of a `model`: its `chips` in so many `nodes` [1], of each `rate` [FLOP/s], `bandwidth` [B/s] and
      `memory` [B]; its `sequences` [1]; mean lengths of `prompt` and `answer`, and the `longest` answer [token].
    - `per_token`: of all updates per token of each sequence, `once`, the rest of them [s]; `scored`: forward passes
      over that [1]; `critics` that are updated like the actor [1].
    - `transfer` of new weights over links, and `hosts`, of states to the host and back [s]; `overlap`: 1 if engines
      write for the next iteration meanwhile, else 0 [1].
    """

    model: Transformer
    chips: Real
    nodes: Real
    rate: Real
    bandwidth: Real
    memory: Real
    sequences: Real
    prompt: Real
    answer: Real
    longest: Real
    per_token: Real
    once: Real
    scored: Real
    critics: Real
    transfer: Real
    hosts: Real
    overlap: Real


class IterationTime(NamedTuple):
    """Times of an iteration by part, and `total`, of which some may overlap [s]; sequences that an engine holds [1]."""

    reading: Real
    writing: Real
    scoring: Real
    actor: Real
    critic: Real
    transfer: Real
    other: Real
    total: Real
    at_once: Real


class RolloutEngine(eqx.Module):
    """Engine that writes answers with weights that change in every iteration, and what changing them takes."""

    utilization: Real = real("1", doc="of the peak rate by its arithmetic", within=SHARE_ABOVE_ZERO)
    bandwidth_share: Real = real("1", doc="of the sustained bandwidth, of weights and cache", within=SHARE_ABOVE_ZERO)
    step_overhead: Real = real("s", doc="of a step beside arithmetic and memory: scheduler, launches, sampling")
    token_overhead: Real = real("s", doc="of the host for a token of an answer")
    layer_latency: Real = real("s", doc="of the all-reduces of a layer of several chips, times their nodes")
    most_sequences: Real = real("1", doc="that are written at once", within=AT_LEAST_ONE)
    weight_bytes: Real = real("B", doc="of a parameter, and of a number of keys and values", within=ABOVE_ZERO)
    memory_share: Real = real("1", doc="of a chip that trains as well, while it writes", within=SHARE_ABOVE_ZERO)
    own_memory_share: Real = real("1", doc="of a chip of its own", within=SHARE_ABOVE_ZERO)
    working_memory: Real = real("B", doc="of its share, for activations and captured graphs")
    asleep_memory: Real = real("B", doc="that it keeps on a chip that trains")
    answer_share: Real = real("1", doc="mean answer over the longest, if only one is known", within=SHARE_ABOVE_ZERO)
    transfer_share: Real = real("1", doc="of the bandwidth of links, for new weights", within=SHARE_ABOVE_ZERO)
    switch_time: Real = real("s", doc="of an iteration: wake and sleep, rewards, data")
    writing_slowdown: Real = real("1", doc="of writing over what it takes by the rest", within=ABOVE_ZERO)
    update_slowdown: Real = real("1", doc="passes and updates over those of a tuned run", within=ABOVE_ZERO)

    def iteration(self, load: IterationLoad) -> IterationTime:
        """`t = t_r + t_w + t_s + t_u - o min(t_r + t_w, t_s + t_u) + t_t + t_o` of an iteration [s].

        Engines read and write (`reading_time`, and `writing_time` at the mean number at once, `n a / steps`, with an
        overhead of each step and token); forward passes score; updates; transfer of weights and others [definition: the
        loop of Shao et al. 2024, alg. 1]. Engines read and keep the prompt of each answer, as if they shared none.
        """
        token = load.model.cache_width * self.weight_bytes
        weights, written = load.model.parameters * self.weight_bytes, load.sequences * jnp.asarray(load.answer)
        memory = load.chips * (jnp.asarray(load.memory) - self.working_memory)
        held = cached_sequences(memory, weights, token * (load.prompt + load.answer))
        steps = engine_steps(load.sequences, jnp.clip(held, 1.0, self.most_sequences), load.answer, load.longest)
        read = reading_time(load.model.active_parameters, load.rate, self.utilization)
        context, bandwidth = token * (load.prompt + 0.5 * load.answer), load.bandwidth * self.bandwidth_share
        write = writing_time(read, weights, context, written / steps, bandwidth)
        several = jnp.clip(jnp.asarray(load.chips) - 1.0, 0.0, 1.0)
        layers = several * load.nodes * load.model.layers
        overhead = steps * (self.step_overhead + layers * self.layer_latency)
        passed = self.update_slowdown * load.per_token * (load.prompt + jnp.asarray(load.answer))
        update = passed + self.update_slowdown * load.once
        reading, writing = load.sequences * load.prompt * read / load.chips, written * write / load.chips
        parts = (
            *(reading, self.writing_slowdown * (writing + overhead + written * self.token_overhead)),
            *(load.scored * passed, update, load.critics * update),
            *(load.transfer / self.transfer_share, self.switch_time + load.hosts),
        )
        hidden = load.overlap * jnp.minimum(sum(parts[:2]), sum(parts[2:5]))
        at_once = jnp.minimum(held, jnp.minimum(self.most_sequences, load.sequences))
        return IterationTime(*parts, sum(parts) - hidden, at_once)
