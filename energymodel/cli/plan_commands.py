"""Commands about one plan: what it yields and costs, its limits, its neighbours, and what to change next."""

import gc
import importlib.util
import sys
import webbrowser
from dataclasses import replace
from typing import Any, cast, get_args

import energymodel as em
from energymodel.cli import shell
from energymodel.cli.options import flag, option
from energymodel.cli.shell import Run, command
from energymodel.cli.source import LAUNCH, LAUNCHED, Adapted, PlanQuestion, Source, Tuned
from energymodel.errors import InputError, suggest
from energymodel.report import answers
from energymodel.runtime.progress import Progress


@command(Source, writes=LAUNCHED)
def evaluate(
    run: Run,
    launch: str | None = LAUNCH,
    trajectory: bool = flag("Show the run over time as well; -o run.csv then has a row for each time."),
    points: int | None = option("Times of the trajectory; 20 unless given.", "N"),
) -> Any:
    """Loss, time, energy, power, money and carbon of a run.

    With their intervals, temperature and limits; --trajectory follows the run over time.

    Example: energymodel evaluate llama-3.1-405b-h100 --set plan.clock=0.9
    """
    from energymodel.sweeps.outcome_spread import outcome_spread
    from energymodel.system.trajectory import USUAL_POINTS, run_trajectory

    if not trajectory and points is not None:
        raise InputError("--points is of a run over time: add --trajectory.")
    scenario = run.source.read()
    files = run.source.launch_files(run.show.output, scenario, launch)
    outcome = _evaluated(run, scenario)
    run.progress("moving the uncertain numbers ...")
    spread, followed = outcome_spread(scenario), None
    if trajectory:
        run.progress("following the run ...")
        _, followed = run_trajectory(scenario.system, scenario.plan, USUAL_POINTS if points is None else points)
    answer = answers.evaluate_answer(scenario, outcome, spread, trajectory=followed, details=run.show.details)
    return answer, files(scenario, scenario.plan, float(outcome.tokens))


@command(Source)
def limits(run: Run) -> Any:
    """Energy of a run beside the bounds of physics and technology.

    These are Landauer's bound, speed limits, the CMOS wall and the chip's roofline.

    Example: energymodel limits llama-3.1-405b-h100
    """
    from energymodel.sweeps.outcome_spread import outcome_spread

    scenario = run.source.read()
    outcome = _evaluated(run, scenario)
    return answers.limits_answer(scenario, outcome, outcome_spread(scenario))


def _evaluated(run: Run, scenario: "em.Scenario") -> "em.TrainingOutcome":
    """The outcome of a scenario as NumPy numbers; its model must fit in the memory of the chips."""
    import jax

    from energymodel.scenarios.checks import check_fit
    from energymodel.system.evaluate import evaluate_once

    run.progress("compiling and evaluating the model ...")
    outcome = jax.device_get(evaluate_once(scenario.system, scenario.plan))
    check_fit(scenario.system, float(outcome.memory_per_chip), float(outcome.out_of_memory))
    return outcome


@command(Source)
def batch(run: Run, points: int = option("Batches of the table, at most.", "N", 12)) -> Any:
    """Time, energy and money to the same loss against batch.

    The best batch for each has its interval: from there on a larger one stops to pay.

    Example: energymodel batch llama-3.1-405b-h100 --plot batch.svg
    """
    scenario = run.source.read()
    run.progress("evaluating the batches ...")
    return answers.batch_answer(scenario, em.batch_curve(scenario, points))


@command(Source)
def timeline(
    run: Run,
    clocks: bool = flag("Find the clocks of the ranks with the lowest energy instead (Perseus)."),
    per: str | None = option(
        "Of --clocks: a clock for each rank and direction (rank), for warm-up and cool-down apart (phase), or for each "
        "micro-batch (operation).",
        "KIND",
    ),
    points: int | None = option("Of --clocks: step times of the front, 6 unless given.", "N"),
    slowdown: str | None = option("Of --clocks: extra time of the slowest step; 20% unless given.", "SHARE"),
) -> Any:
    """Passes of a step by pipeline rank, or the ranks' best clocks.

    A step is simulated pass by pass; --clocks searches the clocks of its ranks with the lowest energy.

    Example: energymodel timeline llama-3.1-405b-h100 --plot step.svg
    """
    from energymodel.search.pipeline_clocks import Per, stage_front
    from energymodel.system.outputs import parse_number
    from energymodel.system.timeline import step_timeline

    for name, value in (("per", per), ("points", points), ("slowdown", slowdown)):
        if value is not None and not clocks:
            raise InputError(f"{name}: {value} belongs to a search of clocks. Add --clocks, or leave it out.")
    if per is not None and per not in get_args(Per):
        raise InputError(f'per: unknown "{per}". {suggest(per, get_args(Per))}')
    scenario = run.source.read()
    if not clocks:
        run.progress("simulating the step ...")
        return answers.timeline_answer(scenario, step_timeline(scenario.system, scenario.plan))
    run.progress("searching the clocks ...")
    longer = parse_number(slowdown or "20%", "1", "slowdown")
    wanted = {"per": cast(Per, per or "rank"), "points": 6 if points is None else points, "slowdown": longer}
    return answers.stage_clocks_answer(scenario, stage_front(scenario.system, scenario.plan, **wanted))


@command(Adapted)
def post_train(
    run: Run,
    algorithm: str = option("grpo, dapo, rloo, reinforce++, or ppo with critic and reward model.", "NAME", "grpo"),
    prompts: float = option("Prompts of an iteration.", "N", 128.0, min=1.0),
    answers_each: float = option("Answers to each prompt.", "N", 8.0, "--answers", min=1.0),
    updates: float = option("Updates of the actor in an iteration.", "N", 1.0, min=1.0),
    prompt_length: float = option("Mean tokens of a prompt.", "TOKENS", 512.0, min=1.0),
    answer_length: float | None = option("Mean tokens of an answer; else a share of the longest.", "TOKENS", min=1.0),
    longest_answer: float | None = option("Most tokens of an answer; else a multiple of the mean.", "TOKENS", min=1.0),
    rollout_chips: float = option("Chips that write alone; else those that train write, too.", "N", 0.0, min=0.0),
    engine_chips: float | None = option("Chips that share the model of an engine; else the fewest.", "N", min=1.0),
    engine_share: float | None = option("Share of their memory that an engine takes.", "SHARE"),
    overlap: bool = flag("Write the answers of the next iteration while this one trains, on --rollout-chips."),
    offload: bool = flag(
        "Keep on the host what is not at work: training states while answers are written, other models."
    ),
) -> Any:
    """Memory and time of an iteration of GRPO or PPO.

    Whether actor, other models and engines fit, how many answers are written at once, and how long writing, scoring,
    updates and new weights take.

    Example: energymodel post-train --model llama-3.1-8b --accelerator h100-sxm --chips 8 --answer-length 1024
    """
    from energymodel.scenarios.pieces import tokens_of
    from energymodel.sweeps.post_training import PostTraining, post_training

    packed = None if run.source.sequence is None else tokens_of(run.source.sequence, "sequence")
    lengths, engine = (
        (prompt_length, answer_length, longest_answer, packed),
        (rollout_chips, engine_chips, engine_share),
    )
    asked = PostTraining(algorithm, prompts, answers_each, updates, *lengths, *engine, overlap, offload)

    def pieces(batch: float | None, sequence: float, changes: tuple[str, ...]) -> Any:
        run.progress("looking for a layout that fits ...")
        size = None if batch is None else str(round(batch))
        return replace(run.source, batch=size, sequence=str(round(sequence))).pieces("own", changes, "1 T")

    return answers.post_training_answer(asked, post_training(asked, pieces))


@command(Source, width=136)
def sensitivity(
    run: Run,
    question: PlanQuestion,
    of: list[str] | None = option(
        "Output of evaluate, such as energy, time, money, carbon, loss, mfu or energy.cooling; repeatable. The first "
        "one orders the tables.",
        "OUTPUT",
    ),
    optimum: bool = flag("Of the optimum instead of the scenario's own plan."),
    top: int = option("Lines of each table.", "N", 12, min=1),
) -> Any:
    """What to change or measure next.

    Elasticities by every number, and what its uncertainty does.

    Example: energymodel sensitivity llama-3.1-405b-h100 --of energy -o tornado.svg
    """
    from energymodel.search.sensitivity import OF
    from energymodel.sweeps.outcome_spread import outcome_spread

    for name, value in vars(question).items():
        if value and not optimum:
            raise InputError(f"--{name} is about the optimum: add --optimum.")
    if optimum and of:
        raise InputError("--of is about the plan as given: leave out --optimum, or name the objective by --minimize.")
    run.progress.lines = optimum
    scenario = run.source.read()
    scenario = scenario.with_question(*question.words) if optimum else scenario
    with shell.keeping():
        effects = em.sensitivity(scenario, tuple(of or OF), optimum=optimum, progress=run.progress)
    spread = outcome_spread(scenario, effects.optimum.plan if effects.optimum else None)
    return answers.sensitivity_answer(effects, spread, top)


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

        scenario = source.read()
        progress("compiling the model ...")
        server = ExplorerServer(Explorer(scenario), port)
        gc.freeze()  # what the trace left would be searched for garbage while a slider moves
    print(f"{scenario.title}: {server.address}")
    print("The address works on this machine only. Ctrl-C ends the explorer.", file=sys.stderr, flush=True)
    if not no_browser:
        webbrowser.open(server.address)
    server.serve()


@command(Tuned, writes=(".toml",))
def scenario(run: Run) -> Any:
    """Make a scenario of a model, an accelerator, chips and tokens.

    Or of a training configuration. It says what was assumed; -o mine.toml writes a scenario that one can edit.

    Example: energymodel scenario --training train.toml --accelerator h100-sxm --chips 64 -o mine.toml
    """
    if not run.source.is_given:
        raise InputError("--model is missing. Give a preset or a config.json, or a --training file.")
    run.progress("looking for a layout that fits ...")
    file = next((path for path in run.show.output or () if path.suffix == ".toml"), None)
    made = run.source.pieces(file.stem if file else "own")
    return answers.scenario_answer(made, file), {".toml": lambda: answers.scenario_toml(made)}
