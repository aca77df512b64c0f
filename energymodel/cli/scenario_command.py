"""`energymodel scenario`: a scenario from a model, an accelerator, chips and tokens, as a file that one can edit."""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.errors import InputError

Model = Annotated[str | None, typer.Option("--model", metavar="NAME|FILE", help="A model preset, or a config.json.")]
Accelerator = Annotated[str, typer.Option("--accelerator", metavar="NAME", help="An accelerator, such as h100-sxm.")]
Chips = Annotated[str | None, typer.Option("--chips", metavar="N", help="The number of chips.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="TOKENS", help='Tokens of the run, such as "15 T".')]
Batch = Annotated[str | None, typer.Option("--batch", metavar="TOKENS", help='Tokens of a batch, such as "4 Mi".')]
Sequence = Annotated[str | None, typer.Option("--sequence", metavar="TOKENS", help="Tokens of a training sequence.")]
Training = Annotated[
    Path | None,
    typer.Option("--training", metavar="FILE", help="A configuration of Megatron, torchtitan, NeMo and others."),
]
Vocabulary = Annotated[
    str | None, typer.Option("--vocabulary", metavar="N", help="Rows of the embedding, where a tokenizer decides them.")
]
File = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the scenario (.toml).")]


@shell.guarded
def command(
    accelerator: Accelerator,
    model: Model = None,
    training: Training = None,
    chips: Chips = None,
    tokens: Tokens = None,
    vocabulary: Vocabulary = None,
    batch: Batch = None,
    sequence: Sequence = None,
    cluster: shell.Cluster = None,
    as_json: shell.AsJson = False,
    output: File = None,
) -> None:
    """Make a scenario of a model or a training configuration on an accelerator, and say what was assumed."""
    shell.check_output(output, (".toml",))
    if training is None and vocabulary is not None:
        raise InputError("--vocabulary: it belongs to a --training file. A --model says its own.")
    with shell.Progress() as progress:
        progress("loading JAX ...")
        with shell.interruptible():
            from energymodel.presets.pieces import scenario_of_pieces
            from energymodel.presets.training_file import scenario_of_training
            from energymodel.report import scenario_report
        progress("looking for a layout that fits ...")
        name = output.stem if output else "own"
        own = {"chips": chips, "tokens": tokens}
        further = {"batch": batch, "sequence": sequence, "cluster": cluster, "name": name}
        if training is not None:
            made = scenario_of_training(training, accelerator, model=model, vocabulary=vocabulary, **own, **further)
        else:
            given = {"--model": model, **{f"--{key}": value for key, value in own.items()}}
            if missing := [key for key, value in given.items() if value is None]:
                raise InputError(f"scenario: {', '.join(missing)} is missing. Give it, or a --training file.")
            made = scenario_of_pieces(str(model), accelerator, str(chips), str(tokens), **further)
    shell.deliver(
        {"scenario": made.scenario.named_tables, "assumed": list(made.assumed)},
        scenario_report.scenario_report(made, output),
        as_json=as_json,
        output=output,
        content=scenario_report.scenario_toml(made).encode(),
    )
