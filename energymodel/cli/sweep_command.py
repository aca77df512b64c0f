"""`energymodel sweep`: the best points of a whole grid of plans and systems, or random samples."""

from pathlib import Path
from typing import Any

from energymodel.cli import shell
from energymodel.cli.options import flag, option, pairs
from energymodel.cli.shell import Delivery, command
from energymodel.cli.source import Source
from energymodel.errors import InputError
from energymodel.runtime.progress import Progress


@command(lines=True, large=True, width=160)
def sweep(
    *,
    progress: Progress,
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
    source: Source,
    show: Delivery,
) -> Any:
    """Evaluate a whole grid of plans and systems, or samples.

    The best points of the grid are kept; --samples draws its uncertain numbers instead.

    Example: energymodel sweep llama-3.1-405b-h100 --axis "plan.batch=8..64 Mi token log 20" --axis plan.clock=0.5:1:11
    """
    from energymodel.scenarios.question import parse_limits

    for path in show.output or ():
        if dry_run and path.suffix not in shell.EXTENSIONS:
            raise InputError(f"{path}: --dry-run computes nothing that could be drawn. Leave it out, or write .json.")
    limits = parse_limits(limit)
    if samples is not None:
        of_grids = {"--axis": axis, "--polish": polish, "--keep": keep != "best", "--minimize": minimize != "energy"}
        for name, is_set in of_grids.items():
            if is_set:
                raise InputError(f"{name} needs a grid: leave it out, or leave out --samples.")
    elif of:
        raise InputError("--of needs samples: add --samples 100000.")
    axes = pairs(axis, "--axis", "PATH=VALUES", "plan.clock=0.5:1:11")
    if not axes and samples is None:
        raise InputError(
            'sweep: no axis. Give at least one, such as --axis "plan.batch=8..64 Mi token log 20", or --samples 100000.'
        )
    scenario = source.read()
    progress(f"loading the model for {scenario.name} ...")
    from energymodel.report.answers.samples import samples_answer
    from energymodel.report.answers.sweep import MOST_ROWS, ROWS, check_rows, cost_answer, sweep_answer
    from energymodel.sweeps.monte_carlo import PreparedMonteCarlo, prepare_monte_carlo
    from energymodel.sweeps.outcome_spread import outcome_spread
    from energymodel.sweeps.sweep import prepare_sweep

    if samples is not None:
        progress("evaluating a few samples ...")
        question: dict[str, Any] = {"samples": samples, "of": of, "seed": seed, "precision": precision}
        prepared = prepare_monte_carlo(scenario, **question, limits=limits)
    else:
        question = {"keep": keep, "minimize": minimize}
        prepared = prepare_sweep(scenario, axes, keep, minimize, limits, precision=precision)
    if dry_run:
        progress("compiling the model, and timing a chunk ...")
        return cost_answer(scenario, prepared.cost())
    words = {
        name: " ".join(value) if name == "of" else str(value) for name, value in question.items() if value is not None
    }
    words |= {f"limit {name}": str(value) for name, value in limits.items()}
    if isinstance(prepared, PreparedMonteCarlo):
        with shell.keeping(resume):
            return samples_answer(scenario, prepared.run(progress, resume=resume, engine=engine), words)
    in_full = bool(show.output or show.as_json or show.full)
    if in_full:
        check_rows(keep, prepared.program.grid.points)
    with shell.keeping(resume):
        swept = prepared.run(progress, polished=polish, resume=resume, engine=engine)
    spread = outcome_spread(scenario) if swept.winners and swept.complete else None
    most = MOST_ROWS if in_full else ROWS
    return sweep_answer(scenario, swept, minimize, spread, words, most=most, details=show.details)
