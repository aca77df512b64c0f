"""`energymodel replan`: the best plan for the rest of a run, from what was measured of it."""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli import completion, shell
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
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
    as_json: shell.AsJson = False,
    rest: Rest = None,
    output: shell.TableOutput = None,
) -> int:
    """Update a scenario by what was measured of its run, forecast the end, and find the best plan for the rest."""
    shell.check_output(output)
    shell.check_output(rest, (".toml",))
    with shell.Progress(lines=True) as progress:
        scenario = source.read()
        progress(f"loading the design search for {scenario.name} ...")
        import jax

        from energymodel.readers.so_far import read_so_far
        from energymodel.report import replan_report
        from energymodel.report.plan_report import failure_line
        from energymodel.search.replan import MeasuredRun, replan
        from energymodel.sweeps.first_order import saving_at_risk

        measured = read_so_far(so_far, MeasuredRun._fields)
        if "tokens" not in measured:
            raise InputError(f"{so_far}: tokens is missing. Say how many tokens the run has processed and kept.")
        with jax.enable_x64(True):
            answer = replan(scenario, MeasuredRun(**measured), minimize, limit, vary, fix or (), progress)
            risk = saving_at_risk(answer.optimum) if answer.optimum.success else None
            tree = replan_report.replan_json(answer, risk)
            report = replan_report.replan_report(answer, str(rest or "REST.toml"), risk)
    if rest is not None:
        shell.write(rest, replan_report.rest_toml(answer).encode())
    shell.deliver(tree, report, as_json=as_json, output=output)
    return shell.verdict(answer.optimum.result, failure_line(answer.optimum))
