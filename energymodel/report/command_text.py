"""Plans as the commands that evaluate them."""

import shlex
from collections.abc import Mapping

from energymodel.report.fields import Field, plan_fields
from energymodel.scenarios.scenario import Scenario
from energymodel.system.plan import TrainingPlan


def command_of(scenario: Scenario, plan: TrainingPlan, chosen: Mapping[str, str]) -> str:
    """The command that evaluates a plan with the scenario's own changes, and with numbers of the system by path."""
    values = {name: exact(field) for name, field in plan_changes(scenario.plan, plan).items()}
    if plan.knots > 1:
        batch = [exact(field) for field in plan_fields(plan) if field.name.startswith("plan.batch[")]
        values = {name: value for name, value in values.items() if not name.startswith("plan.batch")}
        values["plan.batch"] = f"[{', '.join(batch)}]"
    own = {path: value for path, value in scenario.changes if not path.startswith("optimize.")}
    options = [f"--set {quoted(name, value)}" for name, value in {**own, **chosen, **values}.items()]
    cluster = [f"--cluster {shlex.quote(scenario.cluster)}"] if scenario.cluster else []
    return " ".join([f"energymodel evaluate {scenario.source or shlex.quote(scenario.name)}", *cluster, *options])


def plan_changes(own: TrainingPlan, other: TrainingPlan) -> Mapping[str, Field]:
    """Numbers of another plan that differ from the scenario's own."""
    before = {field.name: field.value for field in plan_fields(own)}
    return {field.name: field for field in plan_fields(other) if before.get(field.name) != field.value}


def exact(field: Field) -> str:
    """A number with all digits and its unit, as `--set` reads it."""
    number = repr(field.value).removesuffix(".0")
    return number if field.unit == "1" else f"{number} {field.unit}"


def quoted(name: str, value: str) -> str:
    """A change as a shell reads it."""
    return f'"{name}={value}"' if " " in value else f"{name}={value}"
