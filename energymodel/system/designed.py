"""What system and plan does a run have whose accelerator is designed with it?"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

SUPPLIES = ("power_supply", "uninterruptible")


class DesignedRun(NamedTuple):
    """A system whose accelerator is as designed, and the plan for it."""

    system: TrainingSystem
    plan: TrainingPlan


def as_designed(system: TrainingSystem, plan: TrainingPlan) -> DesignedRun:
    """The system with the accelerator that its design makes, and the plan with the power cap of that [definition].

    Links within a node get the lanes of the design; lanes beyond those of the reference (`included_lanes`) take area as
    those of the design do, since they are lanes of the same die. Supplies grow with the power of chip and host, the
    power cap [W] keeps its share of the rated power. Power and price of lanes that chip and node include are not
    credited where the design does without them. Errors by thermal noise add to the failures.

    **Returns:** system and plan [SI]; the same ones where the accelerator is one of the catalog.
    """
    design = system.chip_design
    if design.is_catalog:
        return DesignedRun(system, plan)
    chip, node, facility = system.accelerator, system.node, system.facility
    link = node.scale_up
    own_lanes = jnp.where(jnp.asarray(link.included_lanes) > 0.0, link.included_lanes, link.lanes)
    built = design.build(chip, own_lanes * link.lane_bandwidth, link.lanes / own_lanes)
    host = node.overhead_power / node.chips
    larger = (built.accelerator.rated_power + host) / (chip.rated_power + host)
    failures = 1.0 / system.reliability.chip_mtbf + built.error_rate
    ratings = tuple(getattr(facility, name).rated_power * larger for name in SUPPLIES)
    lanes = own_lanes * built.lanes
    new_system = eqx.tree_at(
        lambda one: (
            one.accelerator,
            one.node.scale_up.lanes,
            one.node.scale_up.included_lanes,
            one.reliability.chip_mtbf,
            *(getattr(one.facility, name).rated_power for name in SUPPLIES),
        ),
        system,
        (built.accelerator, lanes, jnp.minimum(link.included_lanes, lanes), 1.0 / failures, *ratings),
    )
    share = built.accelerator.rated_power / chip.rated_power
    caps = jax.tree.map(lambda cap: cap * share, (plan.power_cap, plan.power))
    return DesignedRun(new_system, eqx.tree_at(lambda one: (one.power_cap, one.power), plan, caps))
