"""Commands that search: the best plan, chip, hours and groups, fronts, and the same on other hardware."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from energymodel.cli import shell
from energymodel.cli.options import flag, option
from energymodel.cli.shell import Delivery, command
from energymodel.cli.source import Objective, PlanQuestion, Question, Source, Stored
from energymodel.errors import InputError
from energymodel.runtime.progress import Progress

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario

MODEL = "model."


@command(lines=True)
def optimize(
    *,
    progress: Progress,
    question: PlanQuestion,
    tolerance: str | None = option(
        'Of plans this close to the best, take the one with the least energy, such as "0.5 %"; 0 for the best.', "SHARE"
    ),
    source: Source,
    show: Delivery,
) -> Any:
    """Find the best plan within limits, and what each is worth.

    It is printed beside the scenario's own plan.

    Example: energymodel optimize --model config.json --accelerator h100-sxm --chips 64 --tokens "1 T" --limit
    "time=30 d"
    """
    own = source.read()
    if any(path.strip().startswith(MODEL) for path in question.vary or ()):
        if tolerance is not None:
            raise InputError("--tolerance: a search of the model's shape has none. Leave it out.")
        return _optimize_model(own, question, show, progress)
    scenario = question.asked_of(own, tolerance)
    progress(f"loading the design search for {scenario.name} ...")
    from energymodel.report.answers.optimize import optimize_answer
    from energymodel.search.optimize import optimize
    from energymodel.sweeps.first_order import saving_at_risk

    with shell.float64():
        with shell.keeping():
            optimum = optimize(scenario, progress=progress)
        if optimum.success:
            progress("moving the uncertain numbers")
        risk = saving_at_risk(optimum) if optimum.success else None
        return optimize_answer(optimum, risk, details=show.details)


def _optimize_model(scenario: "Scenario", question: PlanQuestion, show: Delivery, progress: Progress) -> Any:
    """Search the shape of the model with the plan, at the loss of the scenario's own."""
    vary = [path.strip() for path in question.vary or ()]
    names = [path.removeprefix(MODEL) for path in vary if path.startswith(MODEL)]
    if bounded := next((name for name in names if "=" in name), None):
        raise InputError(
            f"vary {MODEL}{bounded}: the shape varies by up to a factor of 4, without bounds of its own. "
            f"Write {MODEL}{bounded.partition('=')[0]}, or {MODEL}* for the usual shape."
        )
    rest = [path for path in vary if not path.startswith(MODEL)]
    asked = scenario.with_question(question.minimize, question.limit, rest, question.fix or ())
    progress(f"loading the search of shapes for {scenario.name} ...")
    from energymodel.report.answers.optimize import architecture_answer
    from energymodel.search.architecture import optimize_architecture

    progress("searching depths, widths and the plan")
    shape = None if "*" in names else [name for name in names if name != "layers"]
    return architecture_answer(optimize_architecture(asked, names=shape), details=show.details)


@command(lines=True)
def design_chip(*, progress: Progress, question: Question, source: Source, show: Delivery) -> Any:
    """Design the accelerator together with the plan.

    At the area, power and price of the scenario's own. Limits chip_area, chip_power and chip_price, and numbers
    system.chip_design.* to vary, replace the usual ones.

    Example: energymodel design-chip olmo-2-13b-h100 --minimize energy
    """
    scenario = source.read(("system.chip_design=scaled",))
    progress(f"loading the design search for {scenario.name} ...")
    from energymodel.report.answers.optimize import design_chip_answer
    from energymodel.search.compare import chip_question
    from energymodel.search.compare import design_chip as design
    from energymodel.sweeps.first_order import saving_at_risk

    designed = design(chip_question(scenario, question.minimize, question.limit or (), question.vary or ()), progress)
    with shell.float64():
        risk = saving_at_risk(designed.optimum) if designed.optimum.success else None
        return design_chip_answer(designed, risk)


@dataclass(frozen=True)
class FrontQuestion(PlanQuestion):
    """Objectives that a front trades, within which limits and by which numbers."""

    minimize: list[str] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "Energy, time, money, carbon or loss; give it twice or more.", "OBJECTIVE"
    )


@command(lines=True)
def pareto(
    *,
    progress: Progress,
    question: FrontQuestion,
    points: int = option("Points of the front.", None, 64),
    source: Source,
    show: Delivery,
) -> Any:
    """Draw the front of plans that trade objectives.

    By default energy against time, with exchange rates.

    Example: energymodel pareto llama-3.1-405b-h100 --minimize energy --minimize time -o front.csv
    """
    scenario = source.read().with_question(None, question.limit, question.vary, question.fix or ())
    progress(f"loading the design search for {scenario.name} ...")
    from energymodel.report.answers.pareto import pareto_answer
    from energymodel.search.pareto import pareto
    from energymodel.sweeps.outcome_spread import outcome_spread

    with shell.float64():
        with shell.keeping():
            front = pareto(scenario, question.minimize or ("energy", "time"), points, progress=progress)
        progress("moving the uncertain numbers")
        knee, own = outcome_spread(scenario, front.points[front.knee].plan), outcome_spread(scenario)
        return pareto_answer(front, knee, own, details=show.details)


@dataclass(frozen=True)
class Variants:
    """What is compared."""

    accelerators: list[str] | None = option(
        "An accelerator preset, such as b200-sxm; repeatable.", "NAME", None, "--accelerator"
    )
    precisions: list[str] | None = option(
        "bf16, fp8 or fp4 for the products with weights; repeatable.", "FORMAT", None, "--precision"
    )
    networks: list[str] | None = option(
        "A network preset, such as infiniband-400g; repeatable.", "NAME", None, "--network"
    )
    topologies: list[str] | None = option(
        "fat-tree, rail-only, dragonfly or torus of the same switches; repeatable.", "NAME", None, "--topology"
    )
    chips: list[float] | None = option("The most chips; repeatable.", "N")


@command(lines=True)
def compare(*, progress: Progress, variants: Variants, question: Question, source: Stored, show: Delivery) -> Any:
    """Optimize and rank accelerators, formats, networks and chips.

    Each combination is optimized; the best is listed first.

    Example: energymodel compare olmo-2-13b-h100 --accelerator b200-sxm --accelerator tpu-v5p
    """
    if not any(vars(variants).values()):
        raise InputError(
            "compare: nothing to compare. Give --accelerator, --precision, --network, --topology or --chips, each "
            "repeatable."
        )
    progress("loading the design search ...")
    from energymodel.report.answers.pareto import compare_answer
    from energymodel.search.compare import compare

    asked = {**{name: values or () for name, values in vars(variants).items()}, **question.keywords}
    comparison = compare(
        source.stored, changes=source.changes or (), cluster=source.cluster, **asked, progress=progress
    )
    return compare_answer(comparison)


@command(lines=True)
def frontier(
    *,
    progress: Progress,
    points: int = option("Steps of the path, at least 2.", "N", 7),
    generations: float = option("Process generations of the last step.", "G", 30.0),
    question: Question,
    source: Stored,
    show: Delivery,
) -> Any:
    """Best plans on ever more efficient hardware.

    From today's energy of an operation toward the Landauer limit, with what binds at each step.

    Example: energymodel frontier olmo-2-13b-h100 --points 7 --plot frontier.svg
    """
    progress("loading the design search ...")
    from energymodel.report.answers.pareto import frontier_answer
    from energymodel.search.compare import frontier

    path = {"points": points, "last": generations, "changes": source.changes or (), "cluster": source.cluster}
    return frontier_answer(frontier(source.stored, **path, **question.keywords, progress=progress))


@command(lines=True)
def replan(
    *,
    progress: Progress,
    so_far: Path = option(
        "What was measured: tokens, time, loss, power, equipment_power, chip_power, failures (.toml, .json), or what "
        "`energymodel monitor -o` wrote (.jsonl).",
        "FILE",
        ...,
    ),
    question: PlanQuestion,
    rest: Path | None = option("Write the rest of the run as a scenario (.toml).", "FILE"),
    source: Source,
    show: Delivery,
) -> Any:
    """Find the best plan for the rest of a run.

    What was measured of it updates the scenario; its end is forecast.

    Example: energymodel replan llama-3.1-405b-h100 --so-far so-far.toml --rest rest.toml
    """
    if rest is not None:
        shell.check_output(rest, (".toml",))
    scenario = source.read()
    progress(f"loading the design search for {scenario.name} ...")
    from energymodel.readers.text_file import read_so_far
    from energymodel.report.answers.scenario import replan_answer, rest_toml
    from energymodel.search.replan import MeasuredRun, replan
    from energymodel.sweeps.first_order import saving_at_risk

    measured = read_so_far(so_far, MeasuredRun._fields)
    if "tokens" not in measured:
        raise InputError(f"{so_far}: tokens is missing. Say how many tokens the run has processed and kept.")
    asked = (question.minimize, question.limit, question.vary, question.fix or ())
    with shell.float64():
        replanned = replan(scenario, MeasuredRun(**measured), *asked, progress)
        risk = saving_at_risk(replanned.optimum) if replanned.optimum.success else None
        answer = replan_answer(replanned, str(rest or "REST.toml"), risk)
    if rest is not None:
        shell.write(rest, rest_toml(replanned).encode())
    return answer


@command(lines=True)
def fleet(
    *,
    progress: Progress,
    group: list[str] | None = option('Further devices, such as "a100-sxm4-80gb 1024"; repeatable.', "GROUP"),
    question: Objective,
    site: bool = flag("Divide the power of one group's site over compute, memory, links and cooling."),
    power: list[str] | None = option('Of --site: a limit of all of it, such as "25 MW"; repeatable.', "POWER"),
    source: Source,
    show: Delivery,
) -> Any:
    """Evaluate unlike devices that train one model together.

    With --minimize, choose clocks and batch. With --site, divide the power of the site of one group for the most
    tokens per second.

    Example: energymodel fleet olmo-2-13b-h100 --group "a100-sxm4-80gb 512" --set "plan.batch=16 Mi token"
    """
    if site:
        for name, value in {"group": group, **vars(question)}.items():
            if value:
                raise InputError(f"{name}: a site has one group, whose tokens per second are highest. Leave it out.")
    elif power:
        raise InputError(f"power: {power[0]} is that of a site. Add --site, or leave it out.")
    elif question.limit and not question.minimize:
        raise InputError("fleet: a limit is for a search. Say what to --minimize, such as energy.")
    elif source.scenario is None or source.model or source.training:
        raise InputError("fleet: groups belong to a SCENARIO. Give its name or file, without --model or --training.")
    progress.lines = not site
    progress("loading JAX ...")
    from energymodel.report.answers.fleet import fleet_answer, site_answer
    from energymodel.search.fleet import load_fleet, optimize_fleet
    from energymodel.search.site import divide_site_power

    if site:
        scenario = source.read()
        progress("dividing the power ...")
        return site_answer(scenario, divide_site_power(scenario, power or []))
    groups = load_fleet(source.stored, group or (), source.changes or (), source.cluster)
    if question.minimize is None:
        progress("evaluating the groups ...")
        return fleet_answer(groups, None)
    progress("optimizing the clocks of the groups ...")
    return fleet_answer(groups, optimize_fleet(groups, question.minimize, question.limit))


@dataclass(frozen=True)
class Hours:
    """Hours of a grid, and what a calendar of a run over them is to reach."""

    grid: Path | None = option("CSV of hours, or of month-by-hour means; else the scenario's market.", "FILE")
    zone: str | None = option("Zone of the file.", "NAME")
    weather: str = option("file, or scenario for the mean cooling of the scenario's year.", "WHOSE", "file")
    minimize: str = option("money, carbon, carbon_operational or energy.", "OBJECTIVE", "money")
    deadline: str | None = option('Longest run, such as "120 d"; 1.25 times the shortest one.', "TIME")
    start: str = option("Hour of the file, or any.", "HOUR", "any")
    demand_charge: str | None = option('For the highest hour of a month, such as "15 USD/kW".', "PRICE")
    contract: str | None = option('Paid used or not, such as "0.04 USD/kWh at 20 MW".', "BLOCK")
    carbon_price: str | None = option('Added to money for all carbon, such as "100 USD/t".', "PRICE")


@command()
def calendar(
    *,
    progress: Progress,
    hours: Hours,
    battery: str | None = option("", hidden=True),
    battery_efficiency: float | None = option("", hidden=True),
    source: Source,
    show: Delivery,
) -> Any:
    """Cheapest or cleanest start and hourly power of a run.

    Beside the best constant power, over the hours of a grid.

    Example: energymodel calendar olmo-2-13b-h100 --deadline "40 d" --plot calendar.svg
    """
    for name, value in (("--battery", battery), ("--battery-efficiency", battery_efficiency)):
        if value is not None:
            raise InputError(f"{name}: a calendar plans no battery anymore. Leave it out.")
    progress("loading JAX ...")
    from energymodel.report.answers.calendar import calendar_answer
    from energymodel.search.calendar import calendar

    return calendar_answer(calendar(source.read(), **vars(hours), progress=progress))
