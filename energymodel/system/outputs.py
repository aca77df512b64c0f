"""Outputs that may be minimized or limited: every output of a run by name, with its unit, and those of a user."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.numerics import Scalar
from energymodel.system.chip_design import CatalogChip
from energymodel.system.memory import memory_limit
from energymodel.system.outcome import DERIVED, EnergyBreakdown, Slack, StepTime, TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem, as_designed
from energymodel.units import parse_quantity

OBJECTIVES = ("energy", "time", "money", "carbon", "etp", "loss")
"""The usual objectives; any product of powers of outputs is one too."""

AT_LEAST = frozenset(
    field.name for field in dataclasses.fields(TrainingOutcome) if field.metadata.get("better") == "more"
)
"""Outputs of which more is better: a limit on them is a lower bound."""

OutputFunction = Callable[[TrainingOutcome], Any]
LEAST = 1e-30  # smallest output in SI; keeps the logarithm of a zero output finite
_OF_CHIP = {"chip_area": "m^2", "chip_power": "W", "chip_price": "USD"}
_WITH_UNIT = {"chips": "1", "heat_flux": "W/m^2", "ramp": "K/s", **_OF_CHIP}
_OTHER_NAMES = {"facility_power": "power_peak", "memory": "memory_per_chip"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*$")
_FACTOR = re.compile(r"([A-Za-z_.][A-Za-z_.0-9]*)(?:\^([-+0-9.e]+))?$")
_SHARES = {
    "clock": "lowest_clock_power",
    "information": "capacity_use",
    "chillers": "chiller_load",
    "supplies": "supply_load",
    "host_memory": "host_memory_use",
}


def _scalars(component: type[eqx.Module], prefix: str = "") -> dict[str, str]:
    return {
        f"{prefix}{field.name}": field.metadata["unit"]
        for field in dataclasses.fields(component)
        if "title" in field.metadata
    }


_OF_RUN: Mapping[str, str] = {
    **_scalars(TrainingOutcome),
    "energy": "J",
    **_scalars(EnergyBreakdown, "energy."),
    "step_time": "s",
    **_scalars(StepTime, "step_time."),
    "carbon": "kg",
    "etp": "J s",
    "facility_power": "W",
    "memory": "B",
}

LIMIT_OF_SLACK: Mapping[str, str] = {slack: _SHARES.get(slack, slack) for slack in _scalars(Slack)}
"""Name of the limit that each slack of an outcome measures."""

OF_THE_PLAN: Mapping[str, str] = _WITH_UNIT | {
    limit: "1" for limit in LIMIT_OF_SLACK.values() if limit not in {**_OF_RUN, **_WITH_UNIT}
}
"""Outputs that may be limited, but not minimized. Those of a slack without a unit are shares of its limit:
`lowest_clock_power` is the power at the lowest clock over the power cap, `capacity_use` the information absorbed over
what the parameters can store, `chiller_load` the heat to chill on a hot day over the capacity of the chillers,
`supply_load` the largest load of a converter or supply over its rating, `host_memory_use` what chips keep in the memory
of their node over that memory."""

OUTPUTS: Mapping[str, str] = {**_OF_RUN, **OF_THE_PLAN}
"""Unit of each output; `energy` and `step_time` are totals of their parts."""


class OwnOutput(NamedTuple):
    """An output of a user: its name, its unit, and what makes it from an outcome."""

    name: str
    unit: str
    function: OutputFunction


_KNOWN: dict[str, OwnOutput] = {}  # none is ever replaced: a name means the same in all that was compiled


def own_output(function: OutputFunction, unit: str = "1", name: str | None = None) -> str:
    """Make a function of the outcome an output that may be minimized or limited by its name.

    ```python
    per_token = own_output(lambda outcome: outcome.money / outcome.tokens, "USD/token", "price_of_token")
    energymodel.optimize("llama-3.1-405b-h100", minimize=per_token, limits={"time": "90 days"})
    ```

    **Arguments:**

    - `function`: of a `TrainingOutcome` in SI, written with `jax.numpy`; one positive number, less of it is better.
    - `unit`: of that number, for reports.
    - `name`: unless given the function's own.

    **Returns:** the name. The same function gets the same name.

    **Raises:** `InputError` for what is no name, and for a name that another output has.
    """
    for registered in _KNOWN.values():
        if registered.function is function and name in (None, registered.name):
            return registered.name
    written = str(getattr(function, "__name__", ""))
    if name is None:
        name = written if _NAME.match(written) else f"own_{len(_KNOWN) + 1}"
    if not _NAME.match(name):
        raise InputError(f'output "{name}": give a name of letters, digits and underscores.')
    if name in _KNOWN or hasattr(TrainingOutcome, name) or name in TrainingOutcome.__dataclass_fields__:
        raise InputError(
            f'output "{name}": another output has this name. Give it one of its own: own_output(..., name=...).'
        )
    _KNOWN[name] = OwnOutput(name, unit, function)
    return name


def own_outputs(names: Iterable[str]) -> tuple[OwnOutput, ...]:
    """Those of the names that a user defined."""
    return tuple(_KNOWN[name] for name in names if name in _KNOWN)


def check_own_outputs(names: Iterable[str], outcome: TrainingOutcome) -> None:
    """Check that outputs of a user can be traced, and are positive numbers at an outcome.

    **Raises:** `InputError` that names the output and its value.
    """
    for own in own_outputs(names):
        try:
            shape = eqx.filter_eval_shape(own.function, jax.tree.map(jnp.asarray, outcome)).shape
        except (jax.errors.JAXTypeError, AttributeError, TypeError) as error:
            raise InputError(
                f'output "{own.name}": it cannot be traced: {str(error).splitlines()[0]}. Write it with jax.numpy and '
                "the fields of energymodel.TrainingOutcome, and return one number."
            ) from error
        if shape != ():
            raise InputError(f'output "{own.name}": an array of shape {shape} is no output. Return one number.')
        value = float(own.function(outcome))
        if not 0.0 < value < float("inf"):
            raise InputError(
                f'output "{own.name}": {value:g} {own.unit} at the plan of the scenario. A search needs a positive '
                "number, whose logarithm it minimizes or limits."
            )


def is_output(name: str) -> bool:
    """Whether a run has such an output, or a user defined it."""
    return name in OUTPUTS or bool(own_outputs([name]))


def unit_of(name: str) -> str:
    """Unit of an output of a run, or of a user."""
    own = own_outputs([name])
    return own[0].unit if own else OUTPUTS[name]


class Objective(NamedTuple):
    """A product of powers of outputs, such as energy times the square of time."""

    factors: tuple[tuple[str, float], ...]

    @property
    def unit(self) -> str:
        """Unit of the product; "1" where all units are."""
        powers = [(unit_of(name), power) for name, power in self.factors if unit_of(name) != "1"]
        return " ".join(unit if power == 1.0 else f"{unit}^{power:g}" for unit, power in powers) or "1"

    def names(self) -> tuple[str, ...]:
        """Names of its outputs."""
        return tuple(name for name, _ in self.factors)


def parse_objective(text: str) -> Objective:
    """An objective from text: "energy", "etp", "energy*time^2", "money^0.5*carbon^0.5".

    **Raises:** `InputError` for an unknown output or a power that is no number.
    """
    factors: dict[str, float] = {}
    for factor in text.split("*"):
        match = _FACTOR.match(factor.strip())
        if match is None:
            raise InputError(
                f'Objective "{text}": "{factor.strip()}" is not an output or a power, such as time^2. Several outputs '
                "make one objective as a product, such as energy*time; pareto trades them, each with its --minimize."
            )
        name, power = match.group(1), _power(text, match.group(2))
        for entry in ("energy", "time") if name == "etp" else (name,):
            if not is_output(entry) or entry in OF_THE_PLAN:
                raise InputError(f'Unknown objective "{entry}". {suggest(entry, {*OBJECTIVES, *OUTPUTS})}')
            factors[entry] = factors.get(entry, 0.0) + power
    factors = {name: power for name, power in factors.items() if power != 0.0}
    if not factors:
        raise InputError(f'Objective "{text}" is constant. Give an output such as energy.')
    return Objective(tuple(factors.items()))


def _power(text: str, written: str | None) -> float:
    try:
        power = 1.0 if written is None else float(written)
    except ValueError:
        power = math.nan
    if not math.isfinite(power):
        raise InputError(f'Objective "{text}": the power "{written}" is not a number.')
    return power


def parse_limit(name: str, value: Any) -> float:
    """Limit of an output in SI, from text with a unit or a number in SI.

    **Raises:** `InputError` for an unknown output or a value that is not positive.
    """
    if not is_output(name):
        raise InputError(f'limit: unknown "{name}". {suggest(name, OUTPUTS)}')
    number = parse_number(value, unit_of(name), f"limit {name}")
    if not (math.isfinite(number) and number > 0.0):
        raise InputError(f"limit {name}: {value} is not a positive number in {unit_of(name)}.")
    if name == "chips" and number < 1.0:
        raise InputError(f"limit chips: {value} leaves no chip. Give at least 1.")
    return number


def parse_number(value: Any, unit: str, name: str) -> float:
    """Text with a unit, or a number that is in SI already; messages call it `name`.

    **Raises:** `InputError` for what is neither.
    """
    if isinstance(value, str):
        return parse_quantity(value, unit, name)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: {value!r} is neither text with a unit nor a number in {unit}.") from None


def output(outcome: TrainingOutcome, name: str) -> Any:
    """An output of a run by name, in the unit of `unit_of`."""
    for own in own_outputs([name]):
        return own.function(outcome)
    node: Any = outcome
    for part in _OTHER_NAMES.get(name, name).split("."):
        node = getattr(node, part)
    return node.total if name in ("energy", "step_time") else node


def limited_values(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, Any]:
    """The value that each limit is compared with, in the unit of `OUTPUTS`."""
    (designed, plan), slack = as_designed(system, plan), outcome.slack
    chip = designed.accelerator
    with_unit = {
        "chips": plan.chips + system.spare_chips(plan.spares),
        "heat_flux": outcome.power_busy / chip.die_area,
        "ramp": outcome.temperature_ramp,
        "chip_area": jnp.asarray(chip.die_area),
        "chip_power": jnp.asarray(chip.rated_power),
        "chip_price": jnp.asarray(chip.price),
    }
    of_reference = {}
    if not isinstance(system.chip_design, CatalogChip):  # whose limit is that of the reference
        of_reference["memory"] = outcome.memory_per_chip * (memory_limit(system, plan) / memory_limit(designed, plan))
    shares = {limit: name for name, limit in LIMIT_OF_SLACK.items() if limit in OF_THE_PLAN and limit not in with_unit}
    return {
        **{name: output(outcome, name) for name in OUTPUTS if name not in OF_THE_PLAN},
        **with_unit,
        **{limit: jnp.exp(-getattr(slack, name)) for limit, name in shares.items()},
        **of_reference,
    }


def limits_of_system(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, float]:
    """Each limit that hardware, building and model set, `value exp(slack)`, in the unit of `OUTPUTS` [definition].

    Limits of the grid are read where they are stated: what they limit may be zero.
    """
    values, facility = limited_values(system, plan, outcome), system.facility
    limits = {
        limit: float(values[limit]) * math.exp(float(getattr(outcome.slack, name)))
        for name, limit in LIMIT_OF_SLACK.items()
    }
    return limits | {"power_swing": float(facility.swing_limit), "power_ramp": float(facility.power_ramp_limit)}


def objective_title(minimize: str) -> str:
    """An objective in words: an abbreviation by its title, others as they are."""
    return DERIVED.get(minimize, {}).get("title", minimize)


def objective_value(outcome: TrainingOutcome, minimize: str) -> Any:
    """The quantity to minimize, in its unit."""
    return np.exp(np.asarray(log_objective(outcome, dict(parse_objective(minimize).factors))))


def log_objective(outcome: TrainingOutcome, powers: Mapping[str, Any]) -> Scalar:
    """Logarithm of a product of powers of outputs; zero outputs count as `LEAST`."""
    logarithms = {name: jnp.log(jnp.maximum(output(outcome, name), LEAST)) for name in powers}
    return sum((power * logarithms[name] for name, power in powers.items()), start=jnp.zeros(()))
