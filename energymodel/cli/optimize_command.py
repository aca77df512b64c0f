"""`energymodel optimize`: which plan is best within limits, and what is each limit worth?"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from energymodel.cli.shell import (
    INTERRUPTED,
    NOT_TRUSTED,
    TRUSTED,
    AsJson,
    Changes,
    Output,
    Progress,
    ScenarioName,
    check_output,
    deliver,
    fail,
    guarded,
    heeded,
    read_scenario,
)
from energymodel.errors import InputError
from energymodel.units import parse_quantity

if TYPE_CHECKING:
    from energymodel.presets.scenario import Scenario


@guarded
def command(
    scenario: ScenarioName,
    minimize: Annotated[
        str | None,
        typer.Option(
            "--minimize",
            metavar="OBJECTIVE",
            help="energy, time, money, carbon, etp, loss, or a product such as energy*time^2.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=VALUE",
            help="Limit time, facility_power, money, carbon, loss, chips or any output; repeatable.",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="PATH=LOW:HIGH", help="Let a number vary between bounds; repeatable."),
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option("--fix", metavar="PATH", help="Keep a number of the plan; repeatable.")
    ] = None,
    changes: Changes = None,
    as_json: AsJson = False,
    output: Output = None,
) -> int:
    """Find the best plan within limits, and print it beside the scenario's own."""
    check_output(output)
    limits = dict(parse_limit(text) for text in limit or ())
    objective = checked_objective(minimize) if minimize is not None else None
    with Progress(lines=True) as progress:
        given = read_scenario(scenario, changes)
        asked = asked_of(given, objective, limits, vary or [], fix or [])
        progress(f"loading the design search for {given.name} ...")
        with heeded():
            import jax

            from energymodel.design.optimize import optimize
            from energymodel.report.json_tree import optimum_json
            from energymodel.report.plan_report import failure_line, optimum_report

        with jax.enable_x64(True):
            optimum = optimize(given, **asked, progress=progress)
            tree = optimum_json(optimum, written(asked, given))
            report = optimum_report(optimum)
    deliver(tree, report, as_json=as_json, output=output)
    if optimum.success:
        return TRUSTED
    code = INTERRUPTED if optimum.result == "interrupted" else NOT_TRUSTED
    return fail(failure_line(optimum), code, optimum.result)


def checked_objective(word: str) -> str:
    """The objective, if it is one.

    **Raises:** `InputError`.
    """
    from energymodel.system.outputs import parse_objective

    parse_objective(word)
    return word


def parse_limit(text: str) -> tuple[str, float]:
    """Name and SI value of "NAME=VALUE".

    **Raises:** `InputError`.
    """
    from energymodel.system import outputs

    name, separator, value = (part.strip() for part in text.partition("="))
    if not separator or not name or not value:
        raise InputError(f'--limit: "{text}" is not NAME=VALUE. Write for example "time=60 days".')
    return name, outputs.parse_limit(name, value, "--limit")


def parse_range(text: str, units: Mapping[str, str]) -> tuple[str, tuple[float, float]]:
    """Path and SI bounds of "PATH=LOW:HIGH"; the low one may leave its unit to the high one.

    **Raises:** `InputError`.
    """
    from energymodel.errors import suggest

    path, separator, bounds = (part.strip() for part in text.partition("="))
    low, colon, high = (part.strip() for part in bounds.partition(":"))
    if not separator or not colon or not path or not low or not high:
        raise InputError(f'--vary: "{text}" is not PATH=LOW:HIGH. Write for example plan.clock=0.5:1.')
    if path not in units:
        raise InputError(f'--vary: unknown path "{path}". {suggest(path, units)}')
    unit = units[path]
    if unit != "1" and _is_bare(low):
        low = f"{low} {_unit_of(high)}"
    name = f"--vary {path}"
    lower, upper = (parse_quantity(part, unit, name) for part in (low, high))
    if lower > upper:
        raise InputError(f"{name}: {low} is above {high}. Write LOW:HIGH.")
    return path, (lower, upper)


def _is_bare(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unit_of(text: str) -> str:
    return text.lstrip("+-0123456789.,_ ")


def asked_of(
    scenario: "Scenario", minimize: str | None, limits: Mapping[str, float], vary: list[str], fix: list[str]
) -> dict[str, Any]:
    """Arguments of `optimize`: what the scenario's [optimize] section says, with the options laid over it.

    **Raises:** `InputError`.
    """
    from energymodel.errors import suggest

    section = scenario.optimize if isinstance(scenario.optimize, Mapping) else {}
    known = ("minimize", "limits", "vary", "fix")
    for word in section:
        if word not in known:
            raise InputError(f'optimize: unknown key "{word}". {suggest(word, known)}')
    units = {path: origin.unit for path, origin in scenario.provenance.items()}
    own_limits = dict(parse_limit(f"{name}={value}") for name, value in dict(section.get("limits", {})).items())
    ranges = {}
    for path, bounds in dict(section.get("vary", {})).items():
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise InputError(f"optimize.vary: {path} needs two bounds, [low, high], not {bounds!r}.")
        ranges |= [parse_range(f"{path}={bounds[0]}:{bounds[1]}", units)]
    ranges |= dict(parse_range(text, units) for text in vary)
    fixed = [*section.get("fix", []), *fix]
    plan_paths = [path for path in units if path.startswith("plan.")]
    for path in fixed:
        if path not in plan_paths:
            raise InputError(f'--fix: unknown path "{path}". {suggest(path, plan_paths)}')
    return {
        "minimize": minimize or checked_objective(str(section.get("minimize", "energy"))),
        "limits": {**own_limits, **limits},
        "vary": ranges or None,
        "fix": tuple(fixed),
    }


def written(asked: Mapping[str, Any], scenario: "Scenario") -> dict[str, Any]:
    """What was asked, as the [optimize] section of a scenario holds it."""
    from energymodel.system.outputs import OUTPUTS

    section = {
        "minimize": asked["minimize"],
        "limits": {name: f"{value!r} {OUTPUTS[name]}" for name, value in asked["limits"].items()},
        "vary": {
            path: [f"{bound!r} {scenario.provenance[path].unit}" for bound in bounds]
            for path, bounds in (asked["vary"] or {}).items()
        },
        "fix": list(asked["fix"]),
    }
    return {key: value for key, value in section.items() if value}
