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
    read_scenario,
)
from energymodel.units import InputError, parse_quantity

if TYPE_CHECKING:
    from energymodel.presets.scenario import Scenario

OBJECTIVES = ("energy", "time", "money", "carbon", "etp")
LIMIT_UNITS = {
    "time": "s", "facility_power": "W", "money": "USD", "carbon": "kg", "loss": "nat/token", "chips": "1",
    "temperature": "K", "memory": "B", "heat_flux": "W/m^2",
}  # fmt: skip


@guarded
def command(
    scenario: ScenarioName,
    minimize: Annotated[
        str | None, typer.Option("--minimize", metavar="OBJECTIVE", help="energy, time, money, carbon or etp.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help=f"Limit one of {', '.join(LIMIT_UNITS)}; repeatable."),
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
    objective = _objective(minimize) if minimize is not None else None
    with Progress(lines=True) as progress:
        given = read_scenario(scenario, changes)
        asked = asked_of(given, objective, limits, vary or [], fix or [])
        progress(f"loading the design search for {given.name} ...")
        import jax

        from energymodel.design.optimize import optimize
        from energymodel.report.json import optimum_json
        from energymodel.report.optimum import failure_line, optimum_report

        with jax.enable_x64(True):
            optimum = optimize(given, **asked, progress=progress)
            tree = optimum_json(optimum, written(asked, given))
            report = optimum_report(optimum)
    deliver(tree, report, as_json=as_json, output=output)
    if optimum.success:
        return TRUSTED
    code = INTERRUPTED if optimum.result == "interrupted" else NOT_TRUSTED
    return fail(failure_line(optimum), code, optimum.result)


def _objective(word: str) -> str:
    from energymodel.presets.files import suggest

    if word not in OBJECTIVES:
        raise InputError(f'--minimize: unknown "{word}". {suggest(word, OBJECTIVES)}')
    return word


def parse_limit(text: str) -> tuple[str, float]:
    """Name and SI value of "NAME=VALUE".

    **Raises:** `InputError`.
    """
    from energymodel.presets.files import suggest

    name, separator, value = (part.strip() for part in text.partition("="))
    if not separator or not name or not value:
        raise InputError(f'--limit: "{text}" is not NAME=VALUE. Write for example "time=60 days".')
    if name not in LIMIT_UNITS:
        raise InputError(f'--limit: unknown "{name}". {suggest(name, LIMIT_UNITS)}')
    number = parse_quantity(value, LIMIT_UNITS[name], f"--limit {name}")
    if number <= 0.0:
        raise InputError(f'--limit {name}: "{value}" leaves nothing. Give a positive value.')
    return name, number


def parse_range(text: str, units: Mapping[str, str]) -> tuple[str, tuple[float, float]]:
    """Path and SI bounds of "PATH=LOW:HIGH"; the low one may leave its unit to the high one.

    **Raises:** `InputError`.
    """
    from energymodel.presets.files import suggest

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
    from energymodel.presets.files import suggest

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
        "minimize": minimize or _objective(str(section.get("minimize", "energy"))),
        "limits": {**own_limits, **limits},
        "vary": ranges or None,
        "fix": tuple(fixed),
    }


def written(asked: Mapping[str, Any], scenario: "Scenario") -> dict[str, Any]:
    """What was asked, as the [optimize] section of a scenario holds it."""
    section = {
        "minimize": asked["minimize"],
        "limits": {name: f"{value!r} {LIMIT_UNITS[name]}" for name, value in asked["limits"].items()},
        "vary": {
            path: [f"{bound!r} {scenario.provenance[path].unit}" for bound in bounds]
            for path, bounds in (asked["vary"] or {}).items()
        },
        "fix": list(asked["fix"]),
    }
    return {key: value for key, value in section.items() if value}
