"""Fixed parts of a training run: model, hardware, facility, prices, learning law and failure law."""

from operator import attrgetter
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from energymodel.learning.data_set import AbstractDataSet, ContinuedLearning, UnlimitedData
from energymodel.learning.learning import AbstractLearning
from energymodel.learning.loss_law import effective_parameters
from energymodel.learning.recipe import Recipe
from energymodel.numerics import Numeric, Real, Values, component, is_fixed, real, share
from energymodel.performance.adaptation import AbstractAdaptation, WholeModel
from energymodel.performance.collectives import Fabric
from energymodel.performance.network import network_energy_per_bit
from energymodel.performance.reliability import Reliability
from energymodel.performance.serving import AbstractServing, NoServing
from energymodel.performance.workload import Transformer
from energymodel.physics.cooling import Coolant
from energymodel.physics.flow import server_fan_power
from energymodel.ranges import ABOVE_ZERO, Range
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_design import AbstractChipDesign, CatalogChip
from energymodel.system.cluster import Network, Node, Software
from energymodel.system.facility import Facility, Market
from energymodel.system.plan import TrainingPlan

SUPPLIES = ("power_supply", "uninterruptible")


class Links(NamedTuple):
    """Links and switches of so many chips.

    - `fabric`: bandwidth [B/s] and latency [s] that they offer a chip.
    - `power` per chip of all links and switch ports, at rest or in use, `P_0 + w_extra p + w n_port p_switch` [W].
    - `price` per chip of links, ports and cables of switches, `w_extra c + w (n_port c_switch + c_up)` [USD].
    - `energy_per_bit` from chip to chip between nodes, `2 e_link + S e_hop` over S switches on average [J/bit].
    """

    fabric: Fabric
    power: Values
    price: Values
    energy_per_bit: Values


class TrainingSystem(eqx.Module):
    """Everything that is fixed in a training run.

    `mixture_exponent` weights the inactive parameters of a mixture of experts in the loss law;
    `capacity_per_parameter` bounds the information the model can hold; `other_stages` is the chip time of stages
    outside the run (batch ramp, annealing, evaluation, post-training) relative to the run's own. `tokens_seen` are
    effective tokens that the model was trained on before the run; tokens and steps of the run count from there.

    `production_slowdown` is time and energy of a production run over those of the same run with kernels, layout and
    machines as well tuned as in the benchmarks that the other constants are fitted to. Disclosed runs are that much
    slower, and their chips draw no less power meanwhile [experiments/07_disclosed_runs]. It is 1 where constants are
    fitted to the run's own cluster.

    `chip_design` says whether the accelerator is taken as it is or is the reference of a design (`as_designed`).
    `serving` counts the use of the model in what a run costs over its life. `adaptation` says what is trained of a
    model and in which formats; the loss of fine-tuning is not predicted.
    """

    workload: Transformer = component()
    accelerator: Accelerator = component()
    node: Node = component()
    network: Network = component()
    software: Software = component()
    facility: Facility = component()
    market: Market = component()
    learning: AbstractLearning = component()
    recipe: Recipe = component()
    reliability: Reliability = component()
    mixture_exponent: Real = share()
    capacity_per_parameter: Real = real("bit", within=ABOVE_ZERO)
    other_stages: Real = real("1", within=Range(0.0, 1e3))
    tokens_seen: Real = real("token", 0.0)
    production_slowdown: Real = real("1", 1.0, within=Range(0.5, 1e3))
    out_of_memory_risk: Real = real("1", 0.05, within=Range(1e-6, 1.0 - 1e-6))
    chip_design: AbstractChipDesign = component(CatalogChip())
    data: AbstractDataSet = component(UnlimitedData())
    serving: AbstractServing = component(NoServing())
    adaptation: AbstractAdaptation = component(WholeModel())

    def spare_chips(self, spares: Numeric) -> Values:
        """Chips of so many spare nodes [1]."""
        return jnp.asarray(spares) * self.node.chips

    def network_nodes(self, chips: Numeric) -> Values:
        """Nodes of the scale-out network that so many chips are [1]."""
        blocks = jnp.maximum(1.0, jnp.asarray(chips) / self.node.chips)
        return self.network.topology.node_count(chips, blocks, self.network.link.lanes)

    def links(self, chips: Numeric) -> Links:
        """Links and switches, within and between nodes, of so many chips."""
        network, link, node, inner = self.network, self.network.link, self.node, self.node.scale_up
        nodes, chip = self.network_nodes(chips), self.accelerator
        shape = network.topology.at(nodes)
        fabric = Fabric(
            inner_bandwidth=chip.link_rate(inner.bandwidth()),
            inner_latency=jnp.asarray(inner.latency),
            outer_bandwidth=chip.link_rate(network.bandwidth(nodes, shape.domain, node.host_bandwidth)),
            outer_latency=link.latency + shape.added_latency,
            node=jnp.asarray(node.chips),
            domain=shape.domain / nodes * chips,
            ratio=network.uplink_ratio(node.host_bandwidth),
            library=node.collectives,
            framework_latency=jnp.asarray(self.software.collective_latency),
            topology=network.topology,
            nodes=nodes,
            dispatch=self.software.dispatch_efficiency / link.efficiency,
        )
        switches_price = shape.switch_ports * network.switch_lane_price + shape.uplink_price
        return Links(
            fabric=fabric,
            power=network.static_power
            + link.power()
            + link.lanes * shape.switch_ports * network.switch_lane_power
            + inner.power(),
            price=link.price() + link.lanes * switches_price + inner.price(),
            energy_per_bit=network_energy_per_bit(link.energy, shape.mean_switches, network.hop_energy),
        )

    def host_power(self, chip_power: Numeric, coolant: Coolant) -> Values:
        """Power of host, fans and network cards per chip [W] while a chip draws `chip_power` [W]."""
        node = self.node
        fans = server_fan_power(node.fan_power / node.chips, node.fan_fraction, chip_power, coolant.fan_effort)
        return jnp.asarray(node.overhead_power) / node.chips + fans


class DesignedRun(NamedTuple):
    """A system whose accelerator is as designed, and the plan for it."""

    system: TrainingSystem
    plan: TrainingPlan


def as_designed(system: TrainingSystem, plan: TrainingPlan) -> DesignedRun:
    """The system with the accelerator that its design makes, and the plan with the power cap of that [definition].

    Links within a node get the lanes of the design; lanes beyond those of the reference (`included_lanes`) take area as
    those of the design do, since they are lanes of the same die. Supplies grow with the power of chip and host, the
    power cap [W] keeps its share of the rated power, and what is around the chip improves by the factors of `Progress`.
    Power and price of lanes that chip and node include are not credited where the design does without them. Errors by
    thermal noise add to the failures.

    **Returns:** system and plan [SI]; the same ones where the accelerator is one of the catalog.
    """
    design = system.chip_design
    if isinstance(design, CatalogChip):
        return DesignedRun(system, plan)
    chip, node, facility = system.accelerator, system.node, system.facility
    link = node.scale_up
    own_lanes = jnp.where(jnp.asarray(link.included_lanes) > 0.0, link.included_lanes, link.lanes)
    built = design.build(chip, own_lanes * link.lane_bandwidth, link.lanes / own_lanes)
    host = node.overhead_power / node.chips
    new_host = host * built.around.get("node.overhead_power", 1.0)
    larger = (built.accelerator.rated_power + new_host) / (chip.rated_power + host)
    failures = 1.0 / system.reliability.chip_mtbf + built.error_rate
    ratings = tuple(getattr(facility, name).rated_power * larger for name in SUPPLIES)
    lanes = own_lanes * built.lanes
    new_system = eqx.tree_at(
        lambda parts: (
            parts.accelerator,
            parts.node.scale_up.lanes,
            parts.node.scale_up.included_lanes,
            parts.reliability.chip_mtbf,
            *(getattr(parts.facility, name).rated_power for name in SUPPLIES),
        ),
        system,
        (built.accelerator, lanes, jnp.minimum(link.included_lanes, lanes), 1.0 / failures, *ratings),
    )
    absent = () if hasattr(system.network.topology, "hop_latency") else ("network.topology.hop_latency",)
    improved = {path: attrgetter(path) for path in built.around if path not in absent}
    improved = {path: of for path, of in improved.items() if not is_fixed(of(system), 0.0)}
    better = [of(new_system) * built.around[path] for path, of in improved.items()]
    new_system = eqx.tree_at(lambda parts: [of(parts) for of in improved.values()], new_system, better)
    share = built.accelerator.rated_power / chip.rated_power
    caps = jax.tree.map(lambda cap: cap * share, (plan.power_cap, plan.power))
    return DesignedRun(new_system, eqx.tree_at(lambda decisions: (decisions.power_cap, decisions.power), plan, caps))


def parameters_in_loss(system: TrainingSystem) -> Real:
    """Parameter count that enters the loss law, `N_active^(1-mu) N_total^mu` [definition].

    **Returns:** parameters [1], between the active and the total count; both are equal for a dense model.
    """
    workload = system.workload
    return effective_parameters(workload.active_parameters, workload.parameters, system.mixture_exponent)


def learning_of(system: TrainingSystem, plan: TrainingPlan) -> AbstractLearning:
    """Learning from the tokens seen on, with the recipe and the data of the system and the formats of the plan.

    [definition].

    **Returns:** the law, in which a parameter and a token are worth 1 with all products in bf16, AdamW and cosine
    decay of the best learning rate [1].
    """
    law, layout = system.learning, plan.layout
    if not is_fixed(system.tokens_seen, 0.0):
        law = ContinuedLearning(law, system.tokens_seen)
    worth = system.chip_design.parameters_worth
    return system.recipe.learning(law, layout.fp8, layout.fp4, worth, system.data)
