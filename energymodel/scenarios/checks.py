"""Checks of a plan on its system, and of values that numbers of both shall take; each names the next step.

The rows of `checks.toml` hold what may not be, as an expression, and the sentence that refuses it.
"""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.learning.data_set import LimitedData
from energymodel.numerics import Numeric
from energymodel.performance.adaptation import FineTuning
from energymodel.performance.switch_topologies import AbstractSwitchTree, Dragonfly, RailOnly
from energymodel.physics.limits import landauer_energy
from energymodel.ranges import check_number
from energymodel.readers.expressions import data_file, refuse
from energymodel.scenarios.clock_scale import ClockScale
from energymodel.system.memory import FAILING_RISK
from energymodel.system.plan import PRECISIONS, StagePower, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import check_formats, check_pipeline, formats_of, torus_chips, torus_fault
from energymodel.system.training_system import TrainingSystem, learning_of, parameters_in_loss
from energymodel.units import format_quantity

NO_LOSS = "the loss of fine-tuning is not predicted: the laws of loss are those of pre-training."
WHOLE = 1e-6  # relative difference that rounding leaves
BYTES_OF = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}  # of a number that is stored or sent
UNLIMITED_TOKENS = 1e20  # a million times the largest run: what is left of the loss then is its floor
MOST_TOGETHER = 4  # ranges, 16 combinations of ends
ENDS = ("first_stage_layers", "last_stage_layers")
"""Counts that are 0 where they are not given."""
COUNTS = ("tensor", "pipeline", "virtual_stages", "context", "expert", "microbatch")


class Numbers:
    """A component whose numbers are floats, for expressions and sentences."""

    def __init__(self, component: Any) -> None:
        self.component = component

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.component, name)
        return Numbers(value) if dataclasses.is_dataclass(value) else float(value)


def is_whole(value: float) -> bool:
    """Whether a number is a count, up to rounding."""
    return value >= 1.0 - WHOLE and abs(value - round(value)) <= WHOLE


_FUNCTIONS = {"is_whole": is_whole, "max": max, "below": 1.0 - WHOLE, "above": 1.0 + WHOLE}


def check_rows(group: str, words: Mapping[str, Any]) -> None:
    """Check that no row of a group of `checks.toml` holds: `attention` and `heads` are also for rows of tables.

    **Raises:** `InputError` with the sentence of the first row that does.
    """
    refuse(data_file(__file__, "checks.toml")[group], {**_FUNCTIONS, **words})


def _parts(system: TrainingSystem) -> dict[str, Any]:
    """Parts of a system by the words of the rows."""
    names = ("workload", "software", "node", "network", "facility")
    parts = {name: Numbers(getattr(system, name)) for name in names}
    return {**parts, "chip": Numbers(system.accelerator), "cooling": parts["facility"].cooling}


@jax.jit
def _derived(system: TrainingSystem, coolant_temperature: Any) -> dict[str, Any]:
    """What follows from a system, of its coolant and host at the warmest recommended inlet, by one program."""
    chip, cooling = system.accelerator, system.facility.cooling
    coolant = cooling.at(cooling.inlet.recommended_highest)
    switching = chip.dynamic_power
    return {
        "switching": switching,
        "memory_power": chip.busy_power - switching - chip.leakage.power - chip.fixed_power,
        "energy": chip.energy_per_flop,
        "bound": landauer_energy(chip.bits_per_flop, coolant_temperature),
        "rise": coolant.return_rise,
        "host_power": system.host_power(chip.rated_power, coolant),
    }


def _derived_numbers(system: TrainingSystem, plan: TrainingPlan) -> dict[str, float]:
    return {name: float(value) for name, value in _derived(system, plan.coolant_temperature).items()}


def check_system(system: TrainingSystem, plan: TrainingPlan) -> None:
    """Check what the numbers of a system must be together: no negative remainders, coolant that carries the heat.

    **Raises:** `InputError` that names the numbers.
    """
    check_rows("system", {**_parts(system), **_derived_numbers(system, plan)})
    shape = {name: float(number) for name, number in vars(system.workload).items()}
    check_rows("attention", {**shape, "prefix": "system.workload."})


def check_supplies(system: TrainingSystem, plan: TrainingPlan) -> None:
    """Warn where a chip and its share of the host draw more than their power supplies are rated for."""
    need = float(system.accelerator.rated_power) + _derived_numbers(system, plan)["host_power"]
    for name in ("power_supply", "uninterruptible"):
        rating = float(getattr(system.facility, name).rated_power)
        if need > rating:
            warnings.warn(
                f"system.facility.{name}.rated_power: {format_quantity(rating, 'W')} is less than the "
                f"{format_quantity(need, 'W')} of a chip and its share of the host. Set it to about twice that.",
                UserWarning,
                stacklevel=1,
            )


def check_network(system: TrainingSystem, chips: float) -> None:
    """Check that a network can be built: links have lanes, a fat tree ports enough, a torus whole blocks.

    **Raises:** `InputError` that names the number and its range.
    """
    check_rows("network", _parts(system))
    if fault := torus_fault(system, chips):
        near = " or ".join(f"{count:g}" for count in torus_chips(system, chips, 2.0 * chips))
        raise InputError(f"plan.chips: {fault}. Take {near} chips.")
    check_ports(system, chips)


@jax.jit
def _ports(system: TrainingSystem, chips: Numeric) -> tuple[Any, Any]:
    """Ports of a tree of switches that so many chips take, and those that it has [1]."""
    tree: Any = system.network.topology
    return system.network_nodes(chips), tree.most_nodes


def check_ports(system: TrainingSystem, chips: float) -> None:
    """Check that a fat tree, rails or a dragonfly are of switches that exist, and have ports enough for the chips.

    **Raises:** `InputError` that names the number and its range.
    """
    topology = system.network.topology
    words = {"tree": Numbers(topology), "chips": chips}
    if isinstance(topology, Dragonfly):
        check_rows("dragonfly", {**words, "ports": float(system.network_nodes(chips))})
    if not isinstance(topology, AbstractSwitchTree):
        return
    is_rails = isinstance(topology, RailOnly)
    check_rows("switches", {**words, "node": Numbers(system.node), "is_rails": is_rails})
    ports, most = map(float, _ports(system, chips))
    half, of_rail = 0.5 * float(topology.radix) ** 2, " of each rail" if is_rails else ""
    check_rows("ports", {**words, "ports": ports, "most": most, "of_rail": of_rail, "half": half})


def check_bytes(system: TrainingSystem) -> None:
    """Check that numbers are stored and sent in formats that the chip has: the loss law knows no narrower ones.

    **Raises:** `InputError` that names the number and the formats.
    """
    formats = formats_of(system.accelerator)
    narrowest = min(size for name, size in BYTES_OF.items() if name in formats)
    words = {"narrowest": narrowest, "formats": ", ".join(formats)}
    check_rows("bytes", {**words, "software": Numbers(system.software)})


def check_plan(system: TrainingSystem, plan: TrainingPlan, titles: Mapping[str, str] | None = None) -> None:
    """Check counts, divisibility, the pipeline, sharding, number formats, clock and goal of a plan.

    **Arguments:**

    - `titles`: what messages call the software and the accelerator of the system.

    **Raises:** `InputError` for the first thing that cannot be run.
    """
    titles, chips = titles or {}, float(plan.chips)
    layout = {name: float(getattr(plan.layout, name)) for name in type(plan.layout).__dataclass_fields__}
    for name, value in layout.items():
        if name in COUNTS or (name in ENDS and value > 0.0):
            _check_whole(f"plan.layout.{name}", value)
        elif not 0.0 <= value <= 1.0:
            raise InputError(f"plan.layout.{name}: {value:g} is not a share between 0 and 1.")
    check_precisions({name: layout[name] for name in PRECISIONS}, "plan.layout")
    check_rows("heads", {**layout, "heads": float(system.workload.heads), "where": "plan.layout"})
    highest = float(system.software.zero_with_pipeline)
    words: dict[str, Any] = {"highest": highest, "taken": max(1.0, highest)}
    words["framework"] = titles.get("software") or "The framework"
    words["what"] = "parameters" if layout["shard_parameters"] > 0.0 else "gradients"
    check_rows("sharding", {**layout, **words})
    check_formats(system.accelerator, layout, "plan.layout", titles.get("accelerator", ""))
    _check_whole("plan.chips", chips)
    check_bytes(system)
    check_network(system, chips)
    group = layout["tensor"] * layout["pipeline"] * layout["context"]
    data = chips / group
    needed = data * layout["microbatch"] * float(system.workload.sequence)
    replicas = {"group": group, "data": data, "nearest": max(1, round(data)) * group}
    batch = {"smallest": float(np.min(plan.batch)), "needed": needed}
    check_rows("division", {**layout, **replicas, **batch, "chips": chips, "workload": Numbers(system.workload)})
    check_pipeline(system, plan)
    _check_power_cap(system, float(plan.power_cap))
    for name, cap in vars(plan.power).items() if isinstance(plan.power, StagePower) else ():
        _check_power_cap(system, float(cap), f"plan.power.{name}")
    scale = ClockScale.of(system.accelerator)
    check_rows("clock", {"clock": float(plan.clock), "scale": scale, "ends": scale.ends})
    if isinstance(plan.goal, TargetLoss):
        if isinstance(system.adaptation, FineTuning):
            raise InputError(f"plan.goal.loss: {NO_LOSS} Give plan.goal.tokens, or --samples.")
        check_target(system, plan, float(plan.goal.loss), "plan.goal.loss")
        _check_not_reached(system, plan, float(plan.goal.loss))
    elif not isinstance(plan.goal, TokenBudget):
        raise InputError("plan.goal: use TokenBudget or TargetLoss.")
    elif float(plan.goal.tokens) <= 0.0:
        raise InputError("plan.goal.tokens: 0 tokens train nothing. Give a positive number of tokens.")


def check_precisions(shares: Mapping[str, float], where: str) -> None:
    """Check that the shares of products in other precisions than 16 bits are together at most all of them.

    **Raises:** `InputError` that begins with `where`.
    """
    total = sum(shares.values())
    if total > 1.0 + WHOLE:
        words = " + ".join(f"{name} {share:g}" for name, share in shares.items() if share > 0.0)
        raise InputError(f"{where}: {words} = {total:g} of the products, of which each has one precision. Lower one.")


def check_values(
    system: TrainingSystem, plan: TrainingPlan, path: str, values: Sequence[float], calibration: Any, where: str
) -> None:
    """Check values that a number of a system and a plan shall take, such as the ends of a range or of an axis.

    **Arguments:**

    - `path`, `values`: dotted path of the number, and its values in SI.
    - `calibration`: section of the scenario on the measurements behind its numbers.
    - `where`: what messages call the number.

    **Raises:** `InputError` for a value that the number cannot have.
    """
    root, _, field = path.partition(".")
    check_number({"system": system, "plan": plan}[root], field, values, where)
    if root == "system":
        if field == "network.topology.pod" and isinstance(system.network.topology, AbstractSwitchTree):
            tree = Numbers(system.network.topology)
            check_rows("pod", {"where": where, "pod": max(values), "tree": tree})
        for value in dict.fromkeys((min(values), max(values))):
            try:
                _check_all(with_numbers(system, {field: value}), plan)
            except InputError as error:
                text, start = str(error), f"{path}:"
                reason = text.removeprefix(start).strip() if text.startswith(start) else f"{value:g} cannot be: {text}"
                raise InputError(f"{where}: {reason}") from None
    elif field.startswith("layout."):
        name = field.removeprefix("layout.")
        check_formats(system.accelerator, {name: max(values)}, where.removesuffix(f".{name}"))
    elif field == "chips":
        check_ports(system, max(values))
    elif field == "power_cap" or field.startswith("power."):
        _check_power_cap(system, max(values), where)
        check_measured(system, min(values), calibration, where)
    elif field == "clock":
        check_rows("lowest_clock", {"path": where, "clock": min(values), "chip": Numbers(system.accelerator)})


def check_ends(system: TrainingSystem, plan: TrainingPlan, vary: Mapping[str, Sequence[float]]) -> None:
    """Check that the ends of several ranges may stand together: every combination of up to four of the system.

    **Raises:** `InputError` that names the first combination that cannot be.
    """
    ranges = {path.removeprefix("system."): ends for path, ends in vary.items() if path.startswith("system.")}
    if not 2 <= len(ranges) <= MOST_TOGETHER:
        return
    for ends in product(*map(dict.fromkeys, ranges.values())):
        numbers = dict(zip(ranges, ends, strict=True))
        try:
            _check_all(with_numbers(system, numbers), plan)
        except InputError as error:
            together = " and ".join(f"system.{field} = {value:g}" for field, value in numbers.items())
            raise InputError(f"vary: {together} cannot be together: {error}") from None


def with_numbers(system: TrainingSystem, numbers: Mapping[str, float]) -> TrainingSystem:
    """A system with other values of some numbers, by dotted path."""
    paths = [field.split(".") for field in numbers]
    values = [np.asarray(value, np.float64) for value in numbers.values()]
    return eqx.tree_at(lambda tree: [reduce(getattr, path, tree) for path in paths], system, values)


def _check_all(system: TrainingSystem, plan: TrainingPlan) -> None:
    check_system(system, plan)
    check_network(system, float(plan.chips))
    check_bytes(system)


def _check_power_cap(system: TrainingSystem, power_cap: float, path: str = "plan.power_cap") -> None:
    check_rows("power_cap", {"path": path, "power_cap": power_cap, "chip": Numbers(system.accelerator)})


def check_measured(system: TrainingSystem, power_cap: float, calibration: Any, path: str = "plan.power_cap") -> None:
    """Check that a power cap stays where the accelerator was measured: what lies below is not known.

    **Arguments:**

    - `power_cap`: the lowest that is asked for [W].
    - `calibration`: section of the scenario on the measurements behind its numbers.
    - `path`: name of the power cap in the message.

    **Raises:** `InputError` for a power cap below the lowest one measured.
    """
    fit = calibration.get("power", {}) if isinstance(calibration, Mapping) else {}
    lowest, source = fit.get("lowest_power_cap"), fit.get("source", "calibration")
    if lowest is not None and abs(float(system.accelerator.rated_power) / fit["rated_power"] - 1.0) <= WHOLE:
        check_rows("measured", {"path": path, "power_cap": power_cap, "lowest": lowest, "source": source})


def check_fit(system: TrainingSystem, memory: float, risk: float) -> None:
    """Check that a plan that needs so much memory [B] is likelier to run than to run out of memory.

    **Raises:** `InputError` with what is needed, what there is and the risk.
    """
    numbers = {"memory": memory, "risk": risk, "failing_risk": FAILING_RISK}
    check_rows("fit", {**numbers, "chip": Numbers(system.accelerator)})


def check_target(system: TrainingSystem, plan: TrainingPlan, loss: float, name: str) -> None:
    """Check that unlimited data, or those of the system repeated without end, would reach a loss.

    **Raises:** `InputError` with the loss that they leave.
    """
    repeated = isinstance(system.data, LimitedData)
    with jax.enable_x64(True):
        learning, parameters = learning_of(system, plan), parameters_in_loss(system)
        floor = learning.loss(parameters, UNLIMITED_TOKENS)
        if repeated:
            floor, _ = learning.run(parameters, UNLIMITED_TOKENS, float(np.min(plan.batch)))
    check_rows("target", {"path": name, "loss": loss, "floor": float(floor), "repeated": repeated})


def _check_not_reached(system: TrainingSystem, plan: TrainingPlan, loss: float) -> None:
    """Refuse a target that the checkpoint of a continued run has reached."""
    seen = float(system.tokens_seen)
    if seen > 0.0:
        with jax.enable_x64(True):
            now = float(learning_of(system, plan).loss(parameters_in_loss(system), 0.0))
        check_rows("reached", {"loss": loss, "seen": seen, "now": now})


def _check_whole(path: str, value: float) -> None:
    if value < 1.0 or not is_whole(value):
        raise InputError(f"{path}: {value:g} is not a whole number of at least 1.")
