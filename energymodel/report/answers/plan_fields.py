"""Numbers of plans and outcomes with title and unit, and plans as the commands that evaluate them."""

import dataclasses
import shlex
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import numpy as np

from energymodel.ranges import declared_numbers
from energymodel.report.cells import spaced
from energymodel.scenarios.scenario import Scenario
from energymodel.system.layouts import SEARCHED
from energymodel.system.plan import TrainingPlan

PERCENT = {"mfu", "hfu", "availability", "euf", "clock", "out_of_memory"}
"""Outputs that are read in percent."""
OF_LIFE = ("serving_chip_time", "lifetime_energy", "lifetime_money", "lifetime_carbon")
"""Outputs that say more than those of the run only where the model serves tokens."""
_KINDS = {"chip_time": "hours", "serving_chip_time": "hours", "steps": "count", "chips": "count"}


class Field(NamedTuple):
    """One number of an outcome or a plan, in SI."""

    name: str
    title: str
    unit: str
    value: float


def kind_of(path: str) -> str:
    """How a number of a plan or an outcome is read, where its unit does not say it."""
    name = path.rpartition(".")[2].partition("[")[0]
    return _KINDS.get(name, "share" if name in PERCENT or name == "waiting_clock" else "")


def part_fields(parts: eqx.Module) -> list[Field]:
    """Parts of energy, of the step time or of the slack, in the order in which they are declared."""
    return [
        Field(field.name, field.metadata["title"], field.metadata["unit"], float(getattr(parts, field.name)))
        for field in dataclasses.fields(parts)
    ]


def total(parts: eqx.Module) -> float:
    """Sum of the parts, also of an outcome that holds NumPy numbers."""
    return sum(field.value for field in part_fields(parts))


def plan_fields(plan: eqx.Module) -> list[Field]:
    """Numbers of a plan by dotted path; a batch schedule gives one for each knot."""
    return [
        Field(
            path if len(numbers) == 1 else f"{path}[{index}]", spaced(field.name), field.metadata["unit"], float(number)
        )
        for path, field, numbers in declared_numbers(plan, "plan")
        for index, number in enumerate(numbers)
    ]


def command_of(scenario: Scenario, plan: TrainingPlan, chosen: Mapping[str, str]) -> str:
    """The command that evaluates a plan with the scenario's own changes, and with numbers of the system by path.

    It states the whole layout where the scenario's own was chosen for the batch that it has.
    """
    own, fields = {field.name: field.value for field in plan_fields(scenario.plan)}, plan_fields(plan)
    always = {"plan.batch", *(f"plan.layout.{name}" for name in SEARCHED)} if scenario.chosen else ()
    values = {
        field.name: set_word(field) for field in fields if own.get(field.name) != field.value or field.name in always
    }
    if plan.knots > 1:
        batch = [set_word(field) for field in fields if field.name.startswith("plan.batch[")]
        values = {name: value for name, value in values.items() if not name.startswith("plan.batch")}
        values["plan.batch"] = f"[{', '.join(batch)}]"
    changes = {path: value for path, value in scenario.changes if not path.startswith("optimize.")}
    pairs = [f"{name}={value}" for name, value in {**changes, **chosen, **values}.items()]
    options = [f'--set "{pair}"' if " " in pair else f"--set {pair}" for pair in pairs]
    cluster = [f"--cluster {shlex.quote(scenario.cluster)}"] if scenario.cluster else []
    return " ".join([f"energymodel evaluate {scenario.source or shlex.quote(scenario.name)}", *cluster, *options])


def set_word(field: Field) -> str:
    """A number with its unit, as `--set` reads it: whole numbers with all digits, others with nine."""
    rounded = field.value if field.value % 1.0 == 0.0 else float(np.format_float_scientific(field.value, precision=8))
    number = repr(rounded).removesuffix(".0")
    return number if field.unit == "1" else f"{number} {field.unit}"
