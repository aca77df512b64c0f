"""`energymodel sweep`: what is best over a whole grid of plans and systems?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from energymodel.cli.process import INTERRUPTED
from energymodel.cli.shell import (
    EXTENSIONS,
    NOT_TRUSTED,
    TRUSTED,
    AsJson,
    Open,
    Output,
    Progress,
    check_report,
    command_line,
    deliver,
    fail,
    guarded,
    keeping,
)
from energymodel.cli.source import Source
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario
    from energymodel.sweeps.monte_carlo import MonteCarlo, PreparedMonteCarlo
    from energymodel.sweeps.prepared_sweep import PreparedSweep
    from energymodel.sweeps.program_choice import Kernel, Offer
    from energymodel.sweeps.sweep_result import SweepResult
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


@guarded
def command(
    source: Source,
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
    as_json: AsJson = False,
    output: Output = None,
    opened: Open = False,
) -> int:
    """Evaluate a whole grid of plans and systems, and keep the best points; or draw its uncertain numbers."""
    from energymodel.scenarios.question import parse_limits

    check_report(output, opened=opened)
    if dry_run and output is not None and output.suffix not in EXTENSIONS:
        raise InputError(f"{output}: --dry-run computes nothing that could be drawn. Leave it out, or write .json.")
    limits = parse_limits(limit)
    if samples is not None:
        of_grids = {
            "--axis": axis,
            "--polish": polish,
            "--keep": keep != "best",
            "--minimize": minimize != "energy",
            "--kernel": kernel is not None,
        }
        for option, given in of_grids.items():
            if given:
                raise InputError(f"{option} needs a grid: leave it out, or leave out --samples.")
        drawn = {"samples": samples, "of": of, "limits": limits, "seed": seed, "precision": precision}
        return _draw(source.read(), drawn, resume, engine, dry_run, as_json, output, opened)
    if of:
        raise InputError("--of needs samples: add --samples 100000.")
    axes = dict(parse_axis_option(text) for text in axis or ())
    if not axes:
        raise InputError(
            'sweep: no axis. Give at least one, such as --axis "plan.batch=8..64 Mi token log 20", or --samples 100000.'
        )
    asked: dict[str, Any] = {"keep": keep, "minimize": minimize, "limits": limits}
    with Progress(lines=True) as progress:
        given = source.read()
        progress(f"loading the model for {given.name} ...")
        from energymodel.report import sweep_report as report
        from energymodel.report.page.sweep_page import sweep_chart, sweep_page
        from energymodel.report.sweep_rows import check_rows, sweep_csv
        from energymodel.sweeps.outcome_spread import outcome_spread
        from energymodel.sweeps.sweep import prepare_sweep

        prepared = prepare_sweep(given, axes, keep, minimize, limits, precision=precision)
        if dry_run:
            return _print_cost(prepared, progress, as_json, output)
        if output is not None or as_json:
            check_rows(keep, prepared.program.grid.points)
        with keeping(resume):
            swept = prepared.run(progress, polished=polish, resume=resume, engine=engine, kernel=_offer(kernel))
        tree = report.sweep_json(given, swept, asked)
        spread = outcome_spread(given) if swept.winners and swept.complete else None
        shown = report.sweep_report(given, swept, minimize, spread)
        content = sweep_csv(swept).encode() if output is not None and output.suffix == ".csv" else None
    deliver(
        tree,
        shown,
        as_json=as_json,
        output=output,
        content=content,
        page=lambda: sweep_page(given, swept, minimize, spread, command_line()),
        chart=lambda: sweep_chart(swept, minimize),
        opened=opened,
        width=WIDTH,
    )
    return _verdict(swept, "infeasible")


def _draw(
    given: "Scenario",
    asked: dict[str, Any],
    resume: Path | None,
    engine: str | None,
    dry_run: bool,
    as_json: bool,
    output: Path | None,
    opened: bool,
) -> int:
    with Progress(lines=True) as progress:
        progress(f"loading the model for {given.name} ...")
        from energymodel.report import uncertainty_report as report
        from energymodel.report.page.samples_page import samples_chart, samples_page
        from energymodel.sweeps.monte_carlo import prepare_monte_carlo

        progress("evaluating a few samples ...")
        prepared = prepare_monte_carlo(given, **asked)
        if dry_run:
            return _print_cost(prepared, progress, as_json, output)
        with keeping(resume):
            found = prepared.run(progress, resume=resume, engine=engine)
        tree = report.samples_json(given, found, {key: value for key, value in asked.items() if key != "samples"})
        shown = report.samples_report(given, found)
        content = report.samples_csv(found).encode() if output is not None and output.suffix == ".csv" else None
    deliver(
        tree,
        shown,
        as_json=as_json,
        output=output,
        content=content,
        page=lambda: samples_page(given, found, command_line()),
        chart=lambda: samples_chart(found),
        opened=opened,
        width=WIDTH,
    )
    return _verdict(found, "undefined")


def _offer(wanted: bool | None) -> "Offer":
    """The kernel for a sweep: compared with XLA unless it is wanted or refused."""

    def offer(program: "TileProgram") -> "Kernel | str":
        if wanted is False:
            return "--no-kernel was given"
        from energymodel_kernels.sweep_kernel import sweep_kernel

        return sweep_kernel(program, forced=wanted is True)

    return offer


def _print_cost(
    prepared: "PreparedSweep | PreparedMonteCarlo", progress: Progress, as_json: bool, output: Path | None
) -> int:
    from energymodel.report.sweep_report import cost_json, cost_report

    progress("compiling the model, and timing a chunk ...")
    cost = prepared.cost()
    deliver(cost_json(cost), cost_report(cost), as_json=as_json, output=output)
    return TRUSTED


def _verdict(found: "SweepResult | MonteCarlo", doubt: str) -> int:
    """How the command ends: interrupted, in doubt for this reason, or trusted."""
    if not found.complete:
        return fail(found.message, INTERRUPTED, "interrupted")
    return fail(found.message, NOT_TRUSTED, doubt) if found.message else TRUSTED


def parse_axis_option(text: str) -> tuple[str, str]:
    """Path and values of "PATH=VALUES".

    **Raises:** `InputError`.
    """
    path, separator, values = (part.strip() for part in text.partition("="))
    if not separator or not path or not values:
        raise InputError(f'--axis: "{text}" is not PATH=VALUES. Write for example plan.clock=0.5:1:11.')
    return path, values
