"""`energymodel replan`: the best plan for the rest of a run, from what was measured of it."""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli import completion, shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source
from energymodel.errors import InputError

SoFar = Annotated[
    Path,
    typer.Option(
        "--so-far",
        metavar="FILE",
        help="What was measured: tokens, time, loss, power, equipment_power, chip_power, failures (.toml, .json), or "
        "what `energymodel monitor -o` wrote (.jsonl).",
        autocompletion=completion.files,
    ),
]
Rest = Annotated[
    Path | None, typer.Option("--rest", metavar="FILE", help="Write the rest of the run as a scenario (.toml).")
]


@shell.guarded
def command(
    source: Source,
    so_far: SoFar,
    show: Delivery,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
    rest: Rest = None,
) -> int:
    """Update a scenario by what was measured of its run, forecast the end, and find the best plan for the rest."""
    show.check()
    shell.check_output(rest, (".toml",))
    with shell.Progress(lines=True) as progress:
        scenario = source.read()
        progress(f"loading the design search for {scenario.name} ...")
        import jax

        from energymodel.readers.so_far import read_so_far
        from energymodel.report.answers.replan import replan_answer, rest_toml
        from energymodel.search.replan import MeasuredRun, replan
        from energymodel.sweeps.first_order import saving_at_risk

        measured = read_so_far(so_far, MeasuredRun._fields)
        if "tokens" not in measured:
            raise InputError(f"{so_far}: tokens is missing. Say how many tokens the run has processed and kept.")
        with jax.enable_x64(True):
            replanned = replan(scenario, MeasuredRun(**measured), minimize, limit, vary, fix or (), progress)
            risk = saving_at_risk(replanned.optimum) if replanned.optimum.success else None
            answer = replan_answer(replanned, str(rest or "REST.toml"), risk)
    if rest is not None:
        shell.write(rest, rest_toml(replanned).encode())
    return show.deliver(answer)
