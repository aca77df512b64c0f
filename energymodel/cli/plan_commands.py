"""Commands about one plan: what it yields and costs, its limits, its neighbours, and what to change next."""

import gc
import importlib.util
import sys
import webbrowser
from typing import TYPE_CHECKING, Any, cast, get_args

from energymodel.cli import shell
from energymodel.cli.options import flag, option
from energymodel.cli.shell import Delivery, command
from energymodel.cli.source import Parts, PlanQuestion, Source
from energymodel.errors import InputError, suggest
from energymodel.runtime.progress import Progress

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario
    from energymodel.system.outcome import TrainingOutcome


@command()
def evaluate(
    *,
    progress: Progress,
    trajectory: bool = flag("Show the run over time as well; -o run.csv then has a row for each time."),
    points: int | None = option("Times of the trajectory; 20 unless given.", "N"),
    source: Source,
    show: Delivery,
) -> Any:
    """Loss, time, energy, power, money and carbon of a run.

    With their intervals, temperature and limits; --trajectory follows the run over time.

    Example: energymodel evaluate llama-3.1-405b-h100 --set plan.clock=0.9
    """
    if not trajectory and points is not None:
        raise InputError("--points is of a run over time: add --trajectory.")
    scenario, outcome = evaluate_scenario(source, progress)
    progress("moving the uncertain numbers ...")
    from energymodel.report.answers.evaluate import evaluate_answer
    from energymodel.sweeps.outcome_spread import outcome_spread

    spread, run = outcome_spread(scenario), None
    if trajectory:
        progress("following the run ...")
        from energymodel.system.trajectory import USUAL_POINTS, run_trajectory

        _, run = run_trajectory(scenario.system, scenario.plan, USUAL_POINTS if points is None else points)
    return evaluate_answer(scenario, outcome, spread, trajectory=run, details=show.details)


@command()
def limits(*, progress: Progress, source: Source, show: Delivery) -> Any:
    """Energy of a run beside the bounds of physics and technology.

    These are Landauer's bound, speed limits, the CMOS wall and the chip's roofline.

    Example: energymodel limits llama-3.1-405b-h100
    """
    scenario, outcome = evaluate_scenario(source, progress)
    from energymodel.report.answers.limits import limits_answer
    from energymodel.sweeps.outcome_spread import outcome_spread

    with shell.float64():
        return limits_answer(scenario, outcome, outcome_spread(scenario))


def evaluate_scenario(source: Source, progress: Progress) -> "tuple[Scenario, TrainingOutcome]":
    """A scenario and its outcome in float64, as NumPy numbers.

    **Raises:** `InputError`, also if the model does not fit in the memory of the chips.
    """
    progress("loading JAX ...")
    import jax

    from energymodel.scenarios.checks import check_fit
    from energymodel.system.evaluate import evaluate_once

    progress(f"loading {source.name} ...")
    scenario = source.read()
    progress("compiling and evaluating the model ...")
    with shell.float64():
        outcome = jax.device_get(evaluate_once(scenario.system, scenario.plan))
        check_fit(scenario.system, float(outcome.memory_per_chip))
    return scenario, outcome


@command()
def batch(
    *,
    progress: Progress,
    points: int = option("Batches of the table, at most.", "N", 12),
    source: Source,
    show: Delivery,
) -> Any:
    """Time, energy and money to the same loss against batch.

    The best batch for each has its interval: from there on a larger one stops to pay.

    Example: energymodel batch llama-3.1-405b-h100 --plot batch.svg
    """
    progress("loading JAX ...")
    from energymodel.report.answers.batch import batch_answer
    from energymodel.sweeps.batch_curve import batch_curve

    scenario = source.read()
    progress("evaluating the batches ...")
    return batch_answer(scenario, batch_curve(scenario, points))


@command()
def timeline(
    *,
    progress: Progress,
    clocks: bool = flag("Find the clocks of the ranks with the lowest energy instead (Perseus)."),
    per: str | None = option(
        "Of --clocks: a clock for each rank and direction (rank), for warm-up and cool-down apart (phase), or for each "
        "micro-batch (operation).",
        "KIND",
    ),
    points: int | None = option("Of --clocks: step times of the front, 6 unless given.", "N"),
    slowdown: str | None = option("Of --clocks: extra time of the slowest step; 20% unless given.", "SHARE"),
    source: Source,
    show: Delivery,
) -> Any:
    """Passes of a step by pipeline rank, or the ranks' best clocks.

    A step is simulated pass by pass; --clocks searches the clocks of its ranks with the lowest energy.

    Example: energymodel timeline llama-3.1-405b-h100 --plot step.svg
    """
    for name, value in (("per", per), ("points", points), ("slowdown", slowdown)):
        if value is not None and not clocks:
            raise InputError(f"{name}: {value} belongs to a search of clocks. Add --clocks, or leave it out.")
    progress("loading JAX ...")
    from energymodel.report.answers.timeline import stage_clocks_answer, timeline_answer
    from energymodel.search.pipeline import Per, step_timeline
    from energymodel.search.pipeline_clocks import stage_front
    from energymodel.system.outputs import parse_number

    if per is not None and per not in get_args(Per):
        raise InputError(f'per: unknown "{per}". {suggest(per, get_args(Per))}')
    scenario = source.read()
    if not clocks:
        progress("simulating the step ...")
        return timeline_answer(scenario, step_timeline(scenario.system, scenario.plan))
    progress("searching the clocks ...")
    longer = parse_number(slowdown or "20%", "1", "slowdown")
    wanted = {"per": cast(Per, per or "rank"), "points": 6 if points is None else points, "slowdown": longer}
    return stage_clocks_answer(scenario, stage_front(scenario.system, scenario.plan, **wanted))


@command(width=136)
def sensitivity(
    *,
    progress: Progress,
    of: list[str] | None = option(
        "Output of evaluate, such as energy, time, money, carbon, loss, mfu or energy.cooling; repeatable. The first "
        "one orders the tables.",
        "OUTPUT",
    ),
    optimum: bool = flag("Of the optimum instead of the scenario's own plan."),
    question: PlanQuestion,
    top: int = option("Lines of each table.", "N", 12, min=1),
    source: Source,
    show: Delivery,
) -> Any:
    """What to change or measure next.

    Elasticities by every number, and what its uncertainty does.

    Example: energymodel sensitivity llama-3.1-405b-h100 --of energy -o tornado.svg
    """
    for name, value in vars(question).items():
        if value and not optimum:
            raise InputError(f"--{name} is about the optimum: add --optimum.")
    if optimum and of:
        raise InputError("--of is about the plan as given: leave out --optimum, or name the objective by --minimize.")
    progress.lines = optimum
    scenario = source.read()
    scenario = question.asked_of(scenario) if optimum else scenario
    progress(f"loading the model for {scenario.name} ...")
    from energymodel.report.answers.sensitivity import sensitivity_answer
    from energymodel.search.sensitivity import OF, sensitivity
    from energymodel.sweeps.outcome_spread import outcome_spread

    with shell.float64(), shell.keeping():
        effects = sensitivity(scenario, tuple(of or OF), optimum=optimum, progress=progress)
    spread = outcome_spread(scenario, effects.optimum.plan if effects.optimum else None)
    return sensitivity_answer(effects, spread, top)


@shell.guarded
def explore(
    *,
    port: int = option("A free one unless given.", "PORT", 0, min=0, max=65535),
    no_browser: bool = flag("Print the address and open no browser."),
    source: Source,
) -> None:
    """Open a page on which a plan follows sliders.

    It shows outcome, limits, roofline, temperature and front, on this machine only.

    Example: energymodel explore llama-3.1-405b-h100
    """
    needed = ("starlette", "uvicorn", "websockets")
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        raise InputError(f'explore needs {", ".join(missing)}. Install it: pip install "energymodel[explore]".')
    with Progress() as progress:
        progress("loading JAX ...")
        from energymodel.explorer.explorer import Explorer
        from energymodel.explorer.server import ExplorerServer

        progress(f"loading {source.name} ...")
        scenario = source.read()
        progress("compiling the model ...")
        server = ExplorerServer(Explorer(scenario), port)
        gc.freeze()  # what the trace left would be searched for garbage while a slider moves
    print(f"{scenario.title}: {server.address}")
    print("The address works on this machine only. Ctrl-C ends the explorer.", file=sys.stderr, flush=True)
    if not no_browser:
        webbrowser.open(server.address)
    server.serve()


@command(writes=(".toml",))
def scenario(*, progress: Progress, source: Parts, show: Delivery) -> Any:
    """Make a scenario of a model, an accelerator, chips and tokens.

    Or of a training configuration. It says what was assumed; -o mine.toml writes a scenario that one can edit.

    Example: energymodel scenario --training train.toml --accelerator h100-sxm --chips 64 -o mine.toml
    """
    if not source.is_given:
        raise InputError("--model is missing. Give a preset or a config.json, or a --training file.")
    progress("loading JAX ...")
    from energymodel.report.answers.scenario import scenario_answer, scenario_toml

    progress("looking for a layout that fits ...")
    file = next((path for path in show.output or () if path.suffix == ".toml"), None)
    made = source.pieces(file.stem if file else "own")
    return scenario_answer(made, file), {".toml": lambda: scenario_toml(made)}
