"""`energymodel scenario`: a scenario from a model, an accelerator, chips and tokens, as a file that one can edit."""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli import shell

Model = Annotated[str, typer.Option("--model", metavar="NAME|FILE", help="A model preset, or a config.json.")]
Accelerator = Annotated[str, typer.Option("--accelerator", metavar="NAME", help="An accelerator, such as h100-sxm.")]
Chips = Annotated[str, typer.Option("--chips", metavar="N", help="The number of chips.")]
Tokens = Annotated[str, typer.Option("--tokens", metavar="TOKENS", help='Tokens of the run, such as "15 T".')]
Batch = Annotated[str | None, typer.Option("--batch", metavar="TOKENS", help='Tokens of a batch, such as "4 Mi".')]
Sequence = Annotated[str | None, typer.Option("--sequence", metavar="TOKENS", help="Tokens of a training sequence.")]
File = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the scenario (.toml).")]


@shell.guarded
def command(
    model: Model,
    accelerator: Accelerator,
    chips: Chips,
    tokens: Tokens,
    batch: Batch = None,
    sequence: Sequence = None,
    cluster: shell.Cluster = None,
    as_json: shell.AsJson = False,
    output: File = None,
) -> None:
    """Make a scenario of a model, an accelerator, chips and tokens, and say what was assumed for the rest."""
    shell.check_output(output, (".toml",))
    with shell.Progress() as progress:
        progress("loading JAX ...")
        with shell.interruptible():
            from energymodel.presets.pieces import scenario_of_pieces
            from energymodel.report import scenario_report
        progress("looking for a layout that fits ...")
        name = output.stem if output else "own"
        made = scenario_of_pieces(
            model, accelerator, chips, tokens, batch=batch, sequence=sequence, cluster=cluster, name=name
        )
    shell.deliver(
        {"scenario": made.scenario.named_tables, "assumed": list(made.assumed)},
        scenario_report.scenario_report(made, output),
        as_json=as_json,
        output=output,
        content=scenario_report.scenario_toml(made).encode(),
    )
