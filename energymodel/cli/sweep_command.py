"""`energymodel sweep`: the best points of a whole grid of plans and systems, or random samples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.report.answer import Answer
    from energymodel.scenarios.scenario import Scenario
    from energymodel.sweeps.program_choice import Kernel, Offer
    from energymodel.sweeps.tile_program import TileProgram

WIDTH = 160  # of tables where the output is no terminal

Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--axis",
        metavar="PATH=VALUES",
        help='An axis of the grid, such as "plan.batch=8..64 Mi token log 20", plan.clock=0.5:1:11, '
        "system.accelerator=h100-sxm,h200-sxm or plan.layout=64 (the best of a coarse grid; all); repeatable.",
    ),
]
Keep = Annotated[
    str,
    typer.Option(
        "--keep",
        metavar="WHAT",
        help="best, top:K, along:AXIS, pareto:X,Y, bins:X,Y, count, histogram:X, quantiles:X, full:X.",
    ),
]
AnyObjective = Annotated[
    str, typer.Option("--minimize", metavar="OBJECTIVE", help="Any output, or a product such as energy*time^2.")
]
AnyLimit = Annotated[
    list[str] | None, typer.Option("--limit", metavar="NAME=VALUE", help="Limit any output; repeatable.")
]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="FOLDER", help="Keep finished tiles in a folder, and continue where it stopped."),
]
Engine = Annotated[
    str | None, typer.Option("--engine", metavar="WHERE", help="process, devices, distributed or dask://address.")
]
ByKernel = Annotated[
    bool | None,
    typer.Option(
        "--kernel/--no-kernel",
        help="Evaluate best or top by an accelerator kernel, or all by XLA; default: the faster one of a timed tile.",
        show_default=False,
    ),
]
Polish = Annotated[bool, typer.Option("--polish", help="Also search between the points of the grid.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the number of points, the time and the memory.")]
Precision = Annotated[int, typer.Option("--precision", metavar="BITS", help="Bits of the scan: 32 or 64.")]
Samples = Annotated[
    int | None, typer.Option("--samples", metavar="N", help="Draw all uncertain numbers N times, instead of axes.")
]
Of = Annotated[
    list[str] | None,
    typer.Option("--of", metavar="OUTPUT", help="Output that gets Sobol indices from --samples; repeatable."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the random numbers of --samples.")]


@shell.guarded
def command(
    source: Source,
    show: Delivery,
    axis: Axes = None,
    keep: Keep = "best",
    minimize: AnyObjective = "energy",
    limit: AnyLimit = None,
    resume: Resume = None,
    engine: Engine = None,
    kernel: ByKernel = None,
    polish: Polish = False,
    dry_run: DryRun = False,
    precision: Precision = 32,
    samples: Samples = None,
    of: Of = None,
    seed: Seed = 0,
) -> int:
    """Evaluate a whole grid of plans and systems, and keep the best points; or draw its uncertain numbers."""
    from energymodel.scenarios.question import parse_limits

    show.check()
    for path in show.output or ():
        if dry_run and path.suffix not in shell.EXTENSIONS:
            raise InputError(f"{path}: --dry-run computes nothing that could be drawn. Leave it out, or write .json.")
    limits = parse_limits(limit)
    if samples is not None:
        of_grids = {
            "--axis": axis,
            "--polish": polish,
            "--keep": keep != "best",
            "--minimize": minimize != "energy",
            "--kernel": kernel is not None,
        }
        for option, is_set in of_grids.items():
            if is_set:
                raise InputError(f"{option} needs a grid: leave it out, or leave out --samples.")
        drawn = {"samples": samples, "of": of, "limits": limits, "seed": seed, "precision": precision}
        return show.deliver(_draw(source.read(), drawn, resume, engine, dry_run), WIDTH)
    if of:
        raise InputError("--of needs samples: add --samples 100000.")
    axes = dict(parse_axis_option(text) for text in axis or ())
    if not axes:
        raise InputError(
            'sweep: no axis. Give at least one, such as --axis "plan.batch=8..64 Mi token log 20", or --samples 100000.'
        )
    with shell.Progress(lines=True) as progress:
        scenario = source.read()
        progress(f"loading the model for {scenario.name} ...")
        from energymodel.report.answers.sweep import MOST_ROWS, ROWS, check_rows, cost_answer, sweep_answer
        from energymodel.sweeps.outcome_spread import outcome_spread
        from energymodel.sweeps.sweep import prepare_sweep

        prepared = prepare_sweep(scenario, axes, keep, minimize, limits, precision=precision)
        if dry_run:
            progress("compiling the model, and timing a chunk ...")
            return show.deliver(cost_answer(scenario, prepared.cost()))
        whole = bool(show.output or show.as_json or show.full)
        if whole:
            check_rows(keep, prepared.program.grid.points)
        with shell.keeping(resume):
            swept = prepared.run(progress, polished=polish, resume=resume, engine=engine, kernel=_offer(kernel))
        spread = outcome_spread(scenario) if swept.winners and swept.complete else None
        asked = _asked({"keep": keep, "minimize": minimize, "limits": limits})
        most = MOST_ROWS if whole else ROWS
        answer = sweep_answer(scenario, swept, minimize, spread, asked, most=most, details=show.details)
    return show.deliver(answer, WIDTH)


def _asked(question: dict[str, Any]) -> dict[str, str]:
    """The question in words."""
    limits = {f"limit {name}": str(value) for name, value in question["limits"].items()}
    others = {name: value for name, value in question.items() if name != "limits" and value is not None}
    return {**{name: " ".join(value) if name == "of" else str(value) for name, value in others.items()}, **limits}


def _draw(
    scenario: "Scenario", question: dict[str, Any], resume: Path | None, engine: str | None, dry_run: bool
) -> "Answer":
    with shell.Progress(lines=True) as progress:
        progress(f"loading the model for {scenario.name} ...")
        from energymodel.report.answers.samples import samples_answer
        from energymodel.report.answers.sweep import cost_answer
        from energymodel.sweeps.monte_carlo import prepare_monte_carlo

        progress("evaluating a few samples ...")
        prepared = prepare_monte_carlo(scenario, **question)
        if dry_run:
            progress("compiling the model, and timing a chunk ...")
            return cost_answer(scenario, prepared.cost())
        with shell.keeping(resume):
            drawn = prepared.run(progress, resume=resume, engine=engine)
        return samples_answer(scenario, drawn, _asked(question))


def _offer(wanted: bool | None) -> "Offer":
    """The kernel for a sweep: compared with XLA unless it is wanted or refused."""

    def offer(program: "TileProgram") -> "Kernel | str":
        if wanted is False:
            return "--no-kernel was given"
        from energymodel_kernels.sweep_kernel import sweep_kernel

        return sweep_kernel(program, forced=wanted is True)

    return offer


def parse_axis_option(text: str) -> tuple[str, str]:
    """Path and values of "PATH=VALUES".

    **Raises:** `InputError`.
    """
    path, separator, values = (part.strip() for part in text.partition("="))
    if not separator or not path or not values:
        raise InputError(f'--axis: "{text}" is not PATH=VALUES. Write for example plan.clock=0.5:1:11.')
    return path, values
