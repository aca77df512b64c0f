"""Symbols of the two source documents in a run: exponents, powers, rates, demands of a token.

The documents choose their exponents and scales freely. Here they follow from the model: each law goes through the run's
own batch and clock with the slope that it has there, and is compared with the model at another batch or clock.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from energymodel.numerics import Scalar
from energymodel.runtime.compilation import Compiled
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import Step, step_work, training_step
from energymodel.system.training_system import TrainingSystem, as_designed, learning_of, parameters_in_loss

LARGER = 4.0  # batches: where laws through the run's own batch are compared
SLOWER = 0.75  # of the clock: where laws of power are compared


class Learned(NamedTuple):
    """Progress at the end of the run.

    - `per_token`: loss per effective token, `-dL/dx` [nat/token].
    - `information`: bits per effective token, `dI/dx` [bit/token].
    - `penalty`, `penalty_larger`: tokens per effective token at the run's batch and the larger one [1].
    - `elasticity`: `d ln penalty / d ln B` [1].
    - `later_loss`, `later_rate`: loss after as many tokens again [nat/token], and `dL/dt` then [nat/(token s)].
    """

    per_token: Scalar
    information: Scalar
    penalty: Scalar
    penalty_larger: Scalar
    elasticity: Scalar
    later_loss: Scalar
    later_rate: Scalar


class Stepped(NamedTuple):
    """A step at the run's batch, with what does not grow with it.

    - `time`, `fixed_time`: of a step, and what of it a vanishing batch keeps [s].
    - `time_larger`, `time_slower`: at the larger batch; at the lower clock [s].
    - `power`, `power_larger`, `power_slower`: a chip's dynamic power, and that of its memory [W], at the same three.
    - `static_power`: of a chip while it works [W]; `busy_slower`: busy power at the lower clock [W].
    - `fixed_memory_energy`: of the memory in a step, what a vanishing batch keeps [J].
    - `flops`, `network_bytes`: of a chip in a step [FLOP, B].
    """

    time: Scalar
    fixed_time: Scalar
    time_larger: Scalar
    time_slower: Scalar
    power: tuple[Scalar, Scalar]
    power_larger: tuple[Scalar, Scalar]
    power_slower: tuple[Scalar, Scalar]
    static_power: Scalar
    busy_slower: Scalar
    voltage: Scalar
    voltage_slower: Scalar
    fixed_memory_energy: Scalar
    flops: Scalar
    network_bytes: Scalar


class Symbols(NamedTuple):
    """All that the documents' formulas take and the outcome does not have."""

    batch: Scalar
    learned: Learned
    stepped: Stepped


@Compiled
def document_symbols(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> Symbols:
    """Symbols of the documents in a run [definition: docs/sources.md].

    Of a batch that changes along the run, the mean counts.

    **Returns:** batch [token], progress at the end of the run, and a step at this and another batch and clock.
    """
    batch = jnp.mean(plan.batch)
    system, plan = as_designed(system, plan)
    return Symbols(batch, _learned(system, plan, outcome, batch), _stepped(system, plan, outcome, batch))


def _learned(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome, batch: Scalar) -> Learned:
    learning, parameters = learning_of(system, plan), parameters_in_loss(system)
    effective = learning.effective_tokens(parameters, outcome.loss)

    def loss(effective: Scalar) -> Scalar:
        return jnp.asarray(learning.loss(parameters, effective))

    def penalty(batch: Scalar) -> Scalar:
        return jnp.asarray(learning.penalty(parameters, effective, batch))

    own, slope = jax.jvp(penalty, (batch,), (batch,))
    later, fall = jax.jvp(loss, (2.0 * effective,), (jnp.ones_like(effective),))
    return Learned(
        per_token=-jax.jvp(loss, (effective,), (jnp.ones_like(effective),))[1],
        information=jax.jvp(learning.information, (effective,), (jnp.ones_like(effective),))[1],
        penalty=own,
        penalty_larger=penalty(LARGER * batch),
        elasticity=slope / own,
        later_loss=later,
        later_rate=fall * outcome.token_rate / learning.penalty(parameters, 2.0 * effective, batch),
    )


def _stepped(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome, batch: Scalar) -> Stepped:
    def at(batch: Scalar, clock: Scalar) -> Step:
        return training_step(system, eqx.tree_at(lambda decisions: decisions.clock, plan, clock), batch)

    def time_and_memory(batch: Scalar) -> tuple[Scalar, Scalar, Step]:
        step = at(batch, jnp.asarray(plan.clock))
        time = jnp.asarray(step.time.total)
        return time, step.power.memory * time, step

    (time, memory, own), (time_slope, memory_slope, _) = jax.jvp(time_and_memory, (batch,), (batch,))
    larger, slower = at(LARGER * batch, jnp.asarray(plan.clock)), at(batch, SLOWER * outcome.clock)
    work = step_work(system, plan, batch)
    return Stepped(
        time=time,
        fixed_time=time - time_slope,
        time_larger=jnp.asarray(larger.time.total),
        time_slower=jnp.asarray(slower.time.total),
        power=(own.power.dynamic, own.power.memory),
        power_larger=(larger.power.dynamic, larger.power.memory),
        power_slower=(slower.power.dynamic, slower.power.memory),
        static_power=own.point.static_power,
        busy_slower=slower.point.busy_power,
        voltage=own.point.voltage,
        voltage_slower=slower.point.voltage,
        fixed_memory_energy=memory - memory_slope,
        flops=own.hardware_flops,
        network_bytes=jnp.asarray(sum(part.outer_bytes for part in work.traffic.of_step(work.division))),
    )
