"""Outcome of groups of unlike devices that train one model together in synchronous steps.

Each group holds whole replicas in the same layout, because gradients are exchanged shard by shard. Groups differ in
accelerator, node, network, clock and power cap, and in how much of a batch their replicas take.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Scalar
from energymodel.system.evaluate import outcome_of_run
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.run_outcome import LOWEST_TEMPERATURES
from energymodel.system.step import ChipPower, Step, training_step
from energymodel.system.training_system import TrainingSystem, as_designed

ITERATIONS = 6  # of Newton's method: the time of a step bends little with its batch
LIVE = 2  # of them carry derivatives, to second order

Group = tuple[TrainingSystem, TrainingPlan]
Groups = Float[Array, " groups"]

COMMON = (
    *("loss", "tokens", "steps", "time", "token_rate", "availability", "information", "information_rate"),
    *("swing_frequency", "checkpoint_frequency", "chip_time"),
)
"""Outputs that are the same for all groups of one job."""
ADDED = (
    *("power_average", "power_peak", "power_swing", "power_ramp", "checkpoint_swing", "stop_swing", "stop_ramp"),
    *("water", "chilled_heat", "money", "carbon_operational", "carbon_embodied", "serving_chip_time"),
    *("lifetime_energy", "lifetime_money", "lifetime_carbon", "power_busy", "clock"),
)
"""Outputs that add up over groups, each in proportion to its chips; of busy power and clock that is the mean."""
HIGHEST = ("out_of_memory", "temperature", "temperature_peak", "temperature_ramp", "memory_per_chip")
SHARED_LIMITS = ("facility_power", "power_swing", "power_ramp", "chillers")
"""Limits of the building, which all groups use up together; each group has the others for itself."""


class FleetOutcome(NamedTuple):
    """What a fleet yields and costs, and the part of each group.

    - `job`: the run; clock and busy power are means over chips, temperatures and memory those of the worst group.
    - `groups`: outcomes of uniform jobs of all chips of the fleet, were each chip like those of the group.
    - `work`: batch of a chip over that of the mean chip [1]; `share` of the tokens of each group [1].
    - `work_time`: of a step of each group without the exchange of gradients, before it waits for the others [s].
    """

    job: TrainingOutcome
    groups: tuple[TrainingOutcome, ...]
    work: Groups
    share: Groups
    work_time: Groups


def evaluate_fleet(
    groups: Sequence[Group], work: Groups | None = None, work_time: Scalar | None = None
) -> FleetOutcome:
    """Loss, time, energy, power and money of a fleet, whose step lasts `T = max_i (t_i - e_i) + max_i e_i`.

    [derivation]. t_i is the step of a chip of group i in a job of all chips, at a batch of w_i times the mean, and e_i
    the exchange of gradients in it, for which the slowest network counts. Who ends early waits. All end together unless
    a group cannot: then w_i follows its throughput. Without times that do not depend on the batch, its tokens are
    `W_i = W n_i P_i / sum_j n_j P_j` and `T = max_i W_i / (n_i P_i)`, P_i the throughput of a chip
    (`performance.saturation`). With one group, or equal ones, it is `evaluate`.

    **Arguments:**

    - `groups`: system and plan of each, which differ in accelerator, node, network, clock and power cap;
      `plan.chips` are those of the group. Batch, goal and layout are those of the first.
    - `work`: w_i, their mean over chips 1 [1]; by default so that all groups end a step at the same time.
    - `work_time`: of all groups without exchange, at least the longest of theirs, which it is by default [s].

    **Returns:** `FleetOutcome`.
    """
    chips = jnp.stack([jnp.asarray(plan.chips) for _, plan in groups])
    all_chips = jnp.sum(chips)
    shares = chips / all_chips
    in_all = [_in_all(group, groups[0][1], all_chips) for group in groups]
    batch = jnp.reshape(jnp.asarray(in_all[0][1].batch), ())
    if work is None:
        work = _work_of_equal_times(in_all, batch, shares)
    steps = [training_step(system, plan, batch * share) for (system, plan), share in zip(in_all, work, strict=True)]
    exchange = jnp.stack([step.time.data for step in steps])
    working = jnp.stack([step.duration for step in steps]) - exchange
    slowest = jnp.max(exchange)
    step_time = (jnp.max(working) if work_time is None else work_time) + slowest
    outcomes = tuple(
        outcome_of_run(system, plan, _waiting(system, step, step_time, slowest))
        for (system, plan), step in zip(in_all, steps, strict=True)
    )
    return FleetOutcome(_joined(outcomes, shares, shares * work), outcomes, work, shares * work, working)


def _in_all(group: Group, first: TrainingPlan, chips: Scalar) -> Group:
    """System and plan of a job of all chips of a fleet, were each like those of a group."""
    system, plan = group
    shared = (chips, first.batch, first.goal, first.layout)
    plan = eqx.tree_at(lambda plan: (plan.chips, plan.batch, plan.goal, plan.layout), plan, shared)
    designed = as_designed(system, plan)
    return designed.system, designed.plan


def _work_of_equal_times(groups: Sequence[Group], batch: Scalar, shares: Groups) -> Groups:
    """Batch of a chip of each group over the mean, with which all end a step at the same time, exchange apart.

    A replica takes at least the micro-batches that its schedule needs, as far as the batch has them.
    """
    plan = groups[0][1]
    layout, system = plan.layout, groups[0][0]
    replicas = plan.chips / (layout.tensor * layout.pipeline * layout.context)
    sequences = layout.fewest_microbatches * layout.microbatch
    least = jnp.minimum(replicas * sequences * system.workload.sequence / batch, 1.0)

    def newton(groups: Sequence[Group], batch: Scalar, work: Groups) -> Groups:
        times, slopes = [], []
        for (system, plan), entry in zip(groups, work, strict=True):
            value, slope = jax.jvp(_time_without_exchange(system, plan, batch), (entry,), (jnp.ones_like(entry),))
            times.append(value)
            slopes.append(slope)
        return _equal_times(work, jnp.stack(times), jnp.stack(slopes), shares, least)

    fixed, still = jax.lax.stop_gradient((groups, batch))
    start = jnp.ones_like(shares)
    work = jax.lax.fori_loop(0, ITERATIONS - LIVE, lambda _, work: newton(fixed, still, work), start)
    for _ in range(LIVE):
        work = newton(groups, batch, work)
    return work


def _time_without_exchange(system: TrainingSystem, plan: TrainingPlan, batch: Scalar) -> Callable[[Numeric], Scalar]:
    """Time of a step without exchange of gradients [s], by the work of a chip over the mean."""

    def time(work: Numeric) -> Scalar:
        taken = training_step(system, plan, batch * work).time
        return taken.total - taken.data

    return time


def _equal_times(work: Groups, times: Groups, slopes: Groups, shares: Groups, least: Numeric) -> Groups:
    """Work at which straight lines through these points reach one time, none below the least, their mean 1."""
    open_ends = result = work - times / slopes  # work at time zero
    free = jnp.ones_like(work)
    for _ in range(len(work)):
        left = 1.0 - jnp.sum(shares * (1.0 - free) * least)
        together = (left - jnp.sum(shares * free * open_ends)) / jnp.sum(shares * free / slopes)
        result = open_ends + together / slopes
        above = free * (result > least)
        free = jnp.where(jnp.sum(above) > 0.0, above, free)  # one group at least takes what the others leave
    return jnp.where(free > 0.0, result, least)


def _waiting(system: TrainingSystem, step: Step, step_time: Scalar, exchange: Scalar) -> Step:
    """A step that lasts longer than its own work, because other groups or their network are slower."""
    own = step.duration
    late = step_time - own
    later = exchange - step.time.data
    time = eqx.tree_at(
        lambda time: (time.data, time.straggler), step.time, (exchange, step.time.straggler + late - later)
    )
    zero = jnp.zeros_like(own)
    wait = ChipPower(zero, zero, zero, network=step.idle.network, host=zero, idle_wait=step.levels.waiting)
    power = ChipPower(
        *((working * own + waiting * late) / step_time for working, waiting in zip(step.power, wait, strict=True))
    )
    power = power._replace(host=system.host_power(power.chip, step.coolant))
    return step._replace(time=time, duration=step_time, power=power)


def _joined(outcomes: Sequence[TrainingOutcome], shares: Groups, tokens: Groups) -> TrainingOutcome:
    """The outcome of a job, from those of uniform jobs of all chips, the share of each in chips and in tokens."""

    def mean(values: Groups) -> Scalar:
        return jnp.sum(shares * values)

    each = jax.tree.map(lambda *values: jnp.stack(list(map(jnp.asarray, values))), *outcomes)
    result = {name: getattr(outcomes[0], name) for name in COMMON}
    result |= {name: mean(getattr(each, name)) for name in ADDED}
    result |= {name: jnp.max(getattr(each, name)) for name in HIGHEST}
    result |= {name: jnp.min(getattr(each, name)) for name in LOWEST_TEMPERATURES}
    energy, joules = jax.tree.map(mean, each.energy), each.energy.total
    mfu = 1.0 / mean(1.0 / each.mfu)
    euf = jnp.sum(tokens * each.euf * joules) / energy.total
    limit = jnp.sum(tokens * joules / each.landauer_multiple)
    shared = {name: -jnp.log(mean(jnp.exp(-getattr(each.slack, name)))) for name in SHARED_LIMITS}
    return TrainingOutcome(
        **result,
        energy=energy,
        step_time=jax.tree.map(mean, each.step_time),
        mfu=mfu,
        hfu=mean(each.hfu / each.mfu) * mfu,
        pue=energy.total / mean(joules / each.pue),
        energy_per_bit=energy.total / result["information"],
        eei=mfu * euf,
        ppw=result["tokens"] / energy.total,
        euf=euf,
        landauer_multiple=energy.total / limit,
        slack=dataclasses.replace(jax.tree.map(jnp.min, each.slack), **shared),
    )
