"""Commands that search: the best plan, chip, hours and groups, fronts, the same on other hardware, and whole grids."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import energymodel as em
from energymodel.cli import completion, shell
from energymodel.cli.options import flag, option, pairs
from energymodel.cli.shell import Run, command
from energymodel.cli.source import LAUNCH, LAUNCHED, Objective, PlanQuestion, Question, Source, Stored, SweepSource
from energymodel.errors import InputError
from energymodel.report import answers

if TYPE_CHECKING:
    from energymodel.report.answer import Answer
    from energymodel.search.result import Optimum
    from energymodel.sweeps.first_order import SavingAtRisk


MODEL = "model."
ANY_TOKENS = "1 T"  # from which a search for the lowest loss begins


def at_risk(optimum: "Optimum") -> "SavingAtRisk | None":
    """How certain the saving of an optimum is, where there is one."""
    from energymodel.sweeps.first_order import saving_at_risk

    return saving_at_risk(optimum) if optimum.success else None


@command(Source, lines=True, writes=LAUNCHED)
def optimize(
    run: Run,
    question: PlanQuestion,
    tolerance: str | None = option(
        'Of plans this close to the best, take the one with the least energy, such as "0.5 %"; 0 for the best.', "SHARE"
    ),
    block: str | None = option("Chips come in multiples of this; of a node unless given.", "N"),
    launch: str | None = LAUNCH,
) -> Any:
    """Find the best plan within limits, and what each is worth.

    It is printed beside the scenario's own plan; -o launch.sh, train.toml or config.yaml writes it for a framework.

    Example: energymodel optimize --model config.json --accelerator h100-sxm --chips 64 --tokens "1 T" --limit
    "time=30 d"
    """
    own = run.source.read(tokens_otherwise=ANY_TOKENS if question.minimize == "loss" else None)
    files = run.source.launch_files(run.show.output, own, launch)
    if any(path.strip().startswith(MODEL) for path in question.vary or ()):
        if tolerance is not None or block is not None:
            raise InputError("--tolerance, --block: a search of the model's shape has none. Leave it out.")
        answer, optimum = _optimized_model(own, question, run)
    else:
        scenario = own.with_question(*question.words, tolerance, block)
        with shell.keeping():
            optimum = em.optimize(scenario, progress=run.progress)
        run.progress("moving the uncertain numbers")
        answer = answers.optimize_answer(optimum, at_risk(optimum), details=run.show.details)
    written = files(optimum.scenario_found, optimum.plan, float(optimum.outcome.tokens))
    return answer, written if optimum.success else None


def _optimized_model(scenario: "em.Scenario", question: PlanQuestion, run: Run) -> "tuple[Answer, Optimum]":
    """Search the shape of the model with the plan, at the loss of the scenario's own or for the lowest loss."""
    vary = [path.strip() for path in question.vary or ()]
    names = [path.removeprefix(MODEL) for path in vary if path.startswith(MODEL)]
    if bounded := next((name for name in names if "=" in name), None):
        raise InputError(
            f"vary {MODEL}{bounded}: the shape varies by up to a factor of 4, without bounds of its own. "
            f"Write {MODEL}{bounded.partition('=')[0]}, or {MODEL}* for the usual shape."
        )
    rest = [path for path in vary if not path.startswith(MODEL)]
    asked = scenario.with_question(question.minimize, question.limit, rest, question.fix or ())
    shape = None if "*" in names else [name for name in names if name != "layers"]
    best = em.optimize_architecture(asked, names=shape, progress=run.progress)
    return answers.architecture_answer(best, details=run.show.details), best.optimum


@command(Source, lines=True)
def design_chip(run: Run, question: Question) -> Any:
    """Design the accelerator together with the plan.

    At the area, power and price of the scenario's own. Limits chip_area, chip_power and chip_price, and numbers
    system.chip_design.* to vary, replace the usual ones.

    Example: energymodel design-chip olmo-2-13b-h100 --minimize energy
    """
    from energymodel.search.compare import chip_question
    from energymodel.search.compare import design_chip as design

    scenario = run.source.read(("system.chip_design=scaled",))
    asked = chip_question(scenario, question.minimize, question.limit or (), question.vary or ())
    designed = design(asked, run.progress)
    return answers.design_chip_answer(designed, at_risk(designed.optimum))


@dataclass(frozen=True)
class FrontQuestion(PlanQuestion):
    """Objectives that a front trades, within which limits and by which numbers."""

    minimize: list[str] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "Energy, time, money, carbon or loss; give it twice or more.", "OBJECTIVE"
    )


@command(Source, lines=True)
def pareto(run: Run, question: FrontQuestion, points: int = option("Points of the front.", None, 64)) -> Any:
    """Draw the front of plans that trade objectives.

    By default energy against time, with exchange rates.

    Example: energymodel pareto llama-3.1-405b-h100 --minimize energy --minimize time -o front.csv
    """
    from energymodel.sweeps.outcome_spread import outcome_spread

    scenario = run.source.read().with_question(None, *question.words[1:])
    with shell.keeping():
        front = em.pareto(scenario, question.minimize or ("energy", "time"), points, progress=run.progress)
    run.progress("moving the uncertain numbers")
    knee, own = outcome_spread(scenario, front.points[front.knee].plan), outcome_spread(scenario)
    return answers.pareto_answer(front, knee, own, details=run.show.details)


@dataclass(frozen=True)
class VariantSource(Source):
    """A scenario, or the parts of one, some of which are compared."""

    accelerator: list[str] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "An accelerator preset, such as b200-sxm; repeatable.", "NAME", complete=completion.accelerators
    )
    chips: list[int] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "The most chips, of --model or --training their number; repeatable.", "N", min=1
    )

    def variant(self, layers: Sequence[str], accelerator: str | None, chips: float | None) -> Any:
        """The scenario with further changes, on an accelerator; of so many chips if it is made of pieces."""
        own, over = {"accelerator": None, "chips": None}, accelerator
        if self.model is not None or self.training is not None:
            first = accelerator or next(iter(self.accelerator or ()), None), chips or next(iter(self.chips or ()), None)
            own = {"accelerator": first[0], "chips": None if first[1] is None else str(int(first[1]))}
            over = accelerator if self.cluster else None
        last = [] if over is None else [f"system.accelerator={over}"]
        return replace(self, **own, changes=[*(self.changes or ()), *layers, *last]).read()


@dataclass(frozen=True)
class Variants:
    """What else is compared."""

    precisions: list[str] | None = option(
        "bf16, fp8 or fp4 for the products with weights; repeatable.", "FORMAT", None, "--precision"
    )
    networks: list[str] | None = option(
        "A network preset, such as infiniband-400g; repeatable.", "NAME", None, "--network"
    )
    topologies: list[str] | None = option(
        "fat-tree, rail-only, dragonfly or torus of the same switches; repeatable.", "NAME", None, "--topology"
    )


@command(VariantSource, lines=True)
def compare(run: Run, variants: Variants, question: Question) -> Any:
    """Optimize and rank accelerators, formats, networks and chips.

    Each combination is optimized; the best is listed first, the scenario's own plan last.

    Example: energymodel compare --model llama-3.1-405b --accelerator h100-sxm --accelerator b200-sxm --chips 1024
    --tokens "1 T"
    """
    from energymodel.report.answers.pareto import OWN
    from energymodel.sweeps.outcome_spread import spreads_together

    source, asked = run.source, _on_hardware(run, question)
    choices = {"accelerators": source.accelerator or (), "chips": source.chips or ()}
    choices |= {name: values or () for name, values in vars(variants).items()}
    if not any(choices.values()):
        raise InputError(
            "compare: nothing to compare. Give --accelerator, --precision, --network, --topology or --chips, each "
            "repeatable."
        )
    compared = em.compare(source.variant, **choices, **asked)
    run.progress("moving the uncertain numbers")
    plans = {name: (best.scenario_found, best.plan) for name, best in compared.solved.items()}
    if compared.own is not None:
        plans[OWN] = compared.own, compared.own.plan
    return answers.compare_answer(compared, spreads_together(plans))


def _on_hardware(run: Run, question: Question) -> dict[str, Any]:
    """What searches on other hardware are asked alike."""
    if shape := next((path.strip() for path in question.vary or () if path.strip().startswith(MODEL)), None):
        raise InputError(
            f"vary {shape}: the shape of the model is searched by `energymodel optimize --vary {shape}`, on one "
            "hardware at a time. Leave it out, or run that for each with --set system.accelerator=NAME."
        )
    asked = {"minimize": question.minimize, "limits": question.limit, "vary": question.vary, "progress": run.progress}
    return {**asked, "changes": run.source.changed, "cluster": run.source.cluster}


@command(Stored, lines=True)
def frontier(
    run: Run,
    question: Question,
    points: int = option("Steps of the path, at least 2.", "N", 7),
    generations: float = option("Process generations of the last step.", "G", 30.0),
) -> Any:
    """Best plans on ever more efficient hardware.

    From today's energy of an operation toward the Landauer limit, with what binds at each step.

    Example: energymodel frontier olmo-2-13b-h100 --points 7 --plot frontier.svg
    """
    path = {"points": points, "last": generations, **_on_hardware(run, question)}
    return answers.frontier_answer(em.frontier(run.source.stored, **path))


@command(Source, lines=True)
def replan(
    run: Run,
    question: PlanQuestion,
    so_far: Path = option(
        "What was measured: tokens, time, loss, power, equipment_power, chip_power, failures (.toml, .json), or what "
        "`energymodel monitor -o` wrote (.jsonl).",
        "FILE",
        ...,
    ),
    rest: Path | None = option("Write the rest of the run as a scenario (.toml).", "FILE"),
) -> Any:
    """Find the best plan for the rest of a run.

    What was measured of it updates the scenario; its end is forecast.

    Example: energymodel replan llama-3.1-405b-h100 --so-far so-far.toml --rest rest.toml
    """
    from energymodel.readers.text_file import read_so_far

    if rest is not None:
        shell.check_output(rest, (".toml",))
    scenario = run.source.read()
    measured = read_so_far(so_far, em.MeasuredRun._fields)
    if "tokens" not in measured:
        raise InputError(f"{so_far}: tokens is missing. Say how many tokens the run has processed and kept.")
    replanned = em.replan(scenario, em.MeasuredRun(**measured), *question.words, run.progress)
    answer = answers.replan_answer(replanned, str(rest or "REST.toml"), at_risk(replanned.optimum))
    return answer, {} if rest is None else {rest: lambda: answers.rest_toml(replanned)}


@command(Source, lines=True)
def fleet(
    run: Run,
    question: Objective,
    group: list[str] | None = option('Further devices, such as "a100-sxm4-80gb 1024"; repeatable.', "GROUP"),
    site: bool = flag("Divide the power of one group's site over compute, memory, links and cooling."),
    power: list[str] | None = option('Of --site: a limit of all of it, such as "25 MW"; repeatable.', "POWER"),
) -> Any:
    """Evaluate unlike devices that train one model together.

    With --minimize, choose clocks and batch. With --site, divide the power of the site of one group for the most
    tokens per second.

    Example: energymodel fleet olmo-2-13b-h100 --group "a100-sxm4-80gb 512" --set "plan.batch=16 Mi token"
    """
    source, progress = run.source, run.progress
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
    if site:
        scenario = source.read()
        progress("dividing the power ...")
        return answers.site_answer(scenario, em.divide_site_power(scenario, power or []))
    groups = em.load_fleet(source.stored, group or (), source.changed, source.cluster)
    if question.minimize is None:
        progress("evaluating the groups ...")
        return answers.fleet_answer(groups)
    progress("optimizing the clocks of the groups ...")
    return answers.fleet_answer(groups, em.optimize_fleet(groups, question.minimize, question.limit))


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


@command(Source)
def calendar(run: Run, hours: Hours) -> Any:
    """Cheapest or cleanest start and hourly power of a run.

    Beside the best constant power, over the hours of a grid.

    Example: energymodel calendar olmo-2-13b-h100 --deadline "40 d" --plot calendar.svg
    """
    return answers.calendar_answer(em.calendar(run.source.read(), **vars(hours), progress=run.progress))


@command(SweepSource, lines=True, large=True, width=160)
def sweep(
    run: Run,
    axis: list[str] | None = option(
        'An axis of the grid, such as "plan.batch=8..64 Mi token log 20", plan.clock=0.5:1:11, '
        "system.accelerator=h100-sxm,h200-sxm or plan.layout=64 (the best of a coarse grid; all); repeatable.",
        "PATH=VALUES",
    ),
    keep: str = option("best, top:K, along:AXIS, pareto:X,Y, count, histogram:X, quantiles:X, full:X.", "WHAT", "best"),
    minimize: str = option("Any output, or a product such as energy*time^2.", "OBJECTIVE", "energy"),
    limit: list[str] | None = option("Limit any output; repeatable.", "NAME=VALUE"),
    resume: Path | None = option("Keep finished tiles in a folder, and continue where it stopped.", "FOLDER"),
    engine: str | None = option("process, devices, distributed or dask://address.", "WHERE"),
    dry_run: bool = flag("Only print the number of points, the time and the memory."),
    precision: int = option("Bits of the scan: 32 or 64.", "BITS", 32),
    samples: int | None = option("Draw all uncertain numbers N times, instead of axes.", "N"),
    of: list[str] | None = option("Output that gets Sobol indices from --samples; repeatable.", "OUTPUT"),
    seed: int = option("Of the random numbers of --samples.", "N", 0, min=0),
) -> Any:
    """Evaluate a whole grid of plans and systems, or samples.

    The best points of the grid are kept; --samples draws its uncertain numbers instead.

    Example: energymodel sweep llama-3.1-405b-h100 --axis "plan.batch=8..64 Mi token log 20" --axis plan.clock=0.5:1:11
    """
    from energymodel.report.answers.sweep import MOST_ROWS, ROWS, check_rows
    from energymodel.scenarios.question import parse_limits
    from energymodel.sweeps.monte_carlo import prepare_monte_carlo
    from energymodel.sweeps.outcome_spread import outcome_spread
    from energymodel.sweeps.sweep import prepare_sweep

    show, progress = run.show, run.progress
    for path in show.output or ():
        if dry_run and path.suffix not in shell.EXTENSIONS:
            raise InputError(f"{path}: --dry-run computes nothing that could be drawn. Leave it out, or write .json.")
    limits = parse_limits(limit)
    of_grids = {"--axis": axis, "--keep": keep != "best", "--minimize": minimize != "energy"}
    if samples is not None and (name := next((name for name, is_set in of_grids.items() if is_set), None)):
        raise InputError(f"{name} needs a grid: leave it out, or leave out --samples.")
    if samples is None and of:
        raise InputError("--of needs samples: add --samples 100000.")
    axes = pairs(axis, "--axis", "PATH=VALUES", "plan.clock=0.5:1:11")
    if not axes and samples is None:
        raise InputError(
            'sweep: no axis. Give at least one, such as --axis "plan.batch=8..64 Mi token log 20", or --samples 100000.'
        )
    scenario = run.source.read()
    words = {f"limit {name}": str(value) for name, value in limits.items()}
    if samples is not None:
        progress("evaluating a few samples ...")
        question: dict[str, Any] = {"samples": samples, "of": of, "seed": seed, "precision": precision}
        drawn = prepare_monte_carlo(scenario, **question, limits=limits)
        if dry_run:
            return _cost(run, scenario, drawn)
        asked = {
            name: " ".join(value) if name == "of" else str(value)
            for name, value in question.items()
            if value is not None
        }
        with shell.keeping(resume):
            return answers.samples_answer(scenario, drawn.run(progress, resume=resume, engine=engine), asked | words)
    prepared = prepare_sweep(scenario, axes, keep, minimize, limits, precision=precision)
    if dry_run:
        return _cost(run, scenario, prepared)
    in_full = bool(show.output or show.as_json or show.full)
    if in_full:
        check_rows(keep, prepared.program.grid.points)
    with shell.keeping(resume):
        swept = prepared.run(progress, resume=resume, engine=engine)
    spread = outcome_spread(scenario) if swept.winners and swept.complete else None
    asked = {"keep": keep, "minimize": minimize, **words}
    most = MOST_ROWS if in_full else ROWS
    return answers.sweep_answer(scenario, swept, minimize, spread, asked, most=most, details=show.details)


def _cost(run: Run, scenario: Any, prepared: Any) -> Any:
    run.progress("compiling the model, and timing a chunk ...")
    return answers.cost_answer(scenario, prepared.cost())
