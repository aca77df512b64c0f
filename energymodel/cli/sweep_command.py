"""`energymodel sweep`: the best points of a whole grid of plans and systems, or random samples."""

from pathlib import Path
from typing import Any

from energymodel.cli import shell
from energymodel.cli.options import flag, option, pairs
from energymodel.cli.shell import Run, command
from energymodel.cli.source import Source
from energymodel.errors import InputError
from energymodel.report import answers


@command(Source, lines=True, large=True, width=160)
def sweep(
    run: Run,
    axis: list[str] | None = option(
        'An axis of the grid, such as "plan.batch=8..64 Mi token log 20", plan.clock=0.5:1:11, '
        "system.accelerator=h100-sxm,h200-sxm or plan.layout=64 (the best of a coarse grid; all); repeatable.",
        "PATH=VALUES",
    ),
    keep: str = option(
        "best, top:K, along:AXIS, pareto:X,Y, bins:X,Y, count, histogram:X, quantiles:X, full:X.", "WHAT", "best"
    ),
    minimize: str = option("Any output, or a product such as energy*time^2.", "OBJECTIVE", "energy"),
    limit: list[str] | None = option("Limit any output; repeatable.", "NAME=VALUE"),
    resume: Path | None = option("Keep finished tiles in a folder, and continue where it stopped.", "FOLDER"),
    engine: str | None = option("process, devices, distributed or dask://address.", "WHERE"),
    polish: bool = flag("Also search between the points of the grid."),
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
    of_grids = {"--axis": axis, "--polish": polish, "--keep": keep != "best", "--minimize": minimize != "energy"}
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
        swept = prepared.run(progress, polished=polish, resume=resume, engine=engine)
    spread = outcome_spread(scenario) if swept.winners and swept.complete else None
    asked = {"keep": keep, "minimize": minimize, **words}
    most = MOST_ROWS if in_full else ROWS
    return answers.sweep_answer(scenario, swept, minimize, spread, asked, most=most, details=show.details)


def _cost(run: Run, scenario: Any, prepared: Any) -> Any:
    run.progress("compiling the model, and timing a chunk ...")
    return answers.cost_answer(scenario, prepared.cost())
