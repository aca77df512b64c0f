"""`energymodel scenario`: a scenario from a model, an accelerator, chips and tokens, as a file that one can edit."""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli import shell, source
from energymodel.cli.delivery import Delivery
from energymodel.errors import InputError

File = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the scenario (.toml).")]


@shell.guarded
def command(
    model: source.Model = None,
    training: source.Training = None,
    accelerator: source.Accelerator = None,
    chips: source.Chips = None,
    tokens: source.Tokens = None,
    batch: source.Batch = None,
    sequence: source.Sequence = None,
    microbatch: source.Microbatch = None,
    vocabulary: source.Vocabulary = None,
    cluster: source.Cluster = None,
    changes: source.Changes = None,
    as_json: shell.AsJson = False,
    output: File = None,
) -> int:
    """Make a scenario of a model or a training configuration on an accelerator, and say what was assumed."""
    shell.check_output(output, (".toml",))
    if model is None and training is None:
        raise InputError("--model is missing. Give a preset or a config.json, or a --training file.")
    of_run = {"model": model, "training": training, "accelerator": accelerator, "chips": chips, "tokens": tokens}
    of_model = {"batch": batch, "sequence": sequence, "vocabulary": vocabulary, "microbatch": microbatch}
    pieces = source.Source(**of_run, **of_model, cluster=cluster, changes=changes)
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report.answers.scenario import scenario_answer, scenario_toml

        progress("looking for a layout that fits ...")
        made = pieces.pieces(output.stem if output else "own")
    if output is not None:
        shell.write(output, scenario_toml(made).encode())
    return Delivery(as_json=as_json).deliver(scenario_answer(made, output))
